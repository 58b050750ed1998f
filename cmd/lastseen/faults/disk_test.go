//go:build faults

package faults

import (
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testenv"
)

// flushWindow is far beyond what a kill can lose with --sync=1s: that second and the flush in progress.
const flushWindow = 10 * time.Second

// startOnDisk starts a server whose data file is in a folder, and a load of pings, leaves and lookups.
func startOnDisk(t testing.TB, dir, sync string) (*server, *load) {
	t.Helper()
	s := startServer(t, filepath.Join(dir, "lastseen.db"), "--sync", sync)
	l := startLoad(t, loadOptions{leaves: 0.1}, s.url)
	l.awaitPings(t, 100)
	return s, l
}

// requireReadsOnly waits until pings fail with a code and /readyz fails, and checks that lookups succeed.
func requireReadsOnly(t testing.TB, s *server, l *load, code string) {
	t.Helper()
	await(t, "503 "+code, func() bool { return l.snapshot().failures["503 "+code] >= 20 })
	await(t, "/readyz to fail", func() bool { return !s.ready(t) })
	lookups := l.snapshot().lookups
	await(t, "lookups", func() bool { return l.snapshot().lookups >= lookups+20 })
	require.Equal(t, http.StatusOK, s.request(t, http.MethodGet, "/healthz").status)
}

// requireRecovered waits until pings succeed again by themselves, and checks what was acknowledged.
func requireRecovered(t testing.TB, s *server, l *load) {
	t.Helper()
	l.awaitPings(t, 100)
	await(t, "/readyz to succeed", func() bool { return s.ready(t) })
	l.verify(t, s.url)
}

// requireDurable kills the server under load and starts it again: everything acknowledged is in the file, except with
// --sync=1s what the kill can lose.
func requireDurable(t testing.TB, s *server, l *load, sync string) {
	t.Helper()
	window := time.Duration(0)
	if sync != "0" {
		window = flushWindow
	}
	crashAndRestart := func() {
		s.kill(t)
		s.start(t)
	}
	if window == 0 {
		crashAndRestart()
	} else {
		l.mayLose(window, crashAndRestart)
	}
	l.awaitPings(t, 20)
	l.stop(t)
	t.Logf("%d users verified", l.verify(t, s.url))
}

// TestDiskFull fills the disk under load and frees it again.
func TestDiskFull(t *testing.T) {
	for _, sync := range []string{"0", "1s"} {
		t.Run("sync="+sync, func(t *testing.T) {
			dir := mountTmpfs(t)
			s, l := startOnDisk(t, dir, sync)
			ballast := filepath.Join(dir, "ballast")
			err := os.WriteFile(ballast, make([]byte, tmpfsMegabytes<<20), 0o600)
			require.ErrorIs(t, err, syscall.ENOSPC)
			requireReadsOnly(t, s, l, "store_full")
			s.awaitLog(t, "cannot write to the data file")
			require.Positive(t, s.metric(t, "lastseen_file_flush_failures_total"))
			require.NoError(t, os.Remove(ballast))
			requireRecovered(t, s, l)
			s.awaitLog(t, "the data file can be written to again")
			requireDurable(t, s, l, sync)
		})
	}
}

// TestDiskReadOnly: the kernel makes a file system with an error read-only. It stays so until it is checked, for which
// the server has to stop.
func TestDiskReadOnly(t *testing.T) {
	d := mountDisk(t)
	s, l := startOnDisk(t, d.dir, "0")
	d.fail(t)
	requireReadsOnly(t, s, l, "store_unavailable")
	s.awaitLog(t, "cannot write to the data file")
	s.terminate(t)
	d.repair(t)
	s.start(t)
	requireRecovered(t, s, l)
	l.stop(t)
}

// TestDiskHangs: a disk hangs under load, and responds again.
func TestDiskHangs(t *testing.T) {
	for _, sync := range testenv.Choose([]string{"0", "1s"}, []string{"0"}) {
		t.Run("sync="+sync, func(t *testing.T) {
			d := mountDisk(t)
			s, l := startOnDisk(t, d.dir, sync)
			thaw := d.freeze(t)
			requireReadsOnly(t, s, l, "store_unavailable")
			t.Logf("while the disk hangs: %s", l.reset())
			thaw()
			requireRecovered(t, s, l)
			requireDurable(t, s, l, sync)
		})
	}
}

// TestKilledWhileTheDiskHangs: the process ends when the disk responds again, at the latest, and what it acknowledged
// is there when it starts again.
func TestKilledWhileTheDiskHangs(t *testing.T) {
	d := mountDisk(t)
	s, l := startOnDisk(t, d.dir, "0")
	thaw := d.freeze(t)
	lookups := l.snapshot().lookups // which go on while pings wait
	await(t, "lookups", func() bool { return l.snapshot().lookups >= lookups+50 })
	s.signal(t, syscall.SIGKILL)
	thaw()
	<-s.ended
	s.start(t)
	requireRecovered(t, s, l)
	l.stop(t)
}
