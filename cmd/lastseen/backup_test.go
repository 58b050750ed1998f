package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testserver"
	"github.com/lastseen/lastseen/store/filestore"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

func backup(s *testserver.Server, args ...string) (code int, out, log string) {
	return runInProcess(append([]string{"backup", "--admin-listen", s.Admin[len("http://"):]}, args...)...)
}

// load pings as different users, each with ever later times, and keeps the last one of each that was acknowledged.
type load struct {
	wg   sync.WaitGroup
	mu   sync.Mutex
	last map[string]int // Unix seconds
}

// startLoad pings a service until its process ends.
func startLoad(s *testserver.Server) *load {
	l := &load{last: map[string]int{}}
	for n := range 4 {
		l.wg.Go(func() {
			for i := 0; l.ping(s.URL, fmt.Sprintf("user-%d-%d", n, i%100), 1_000_000_000+i); i++ {
			}
		})
	}
	return l
}

// ping reports whether a ping at a time was acknowledged.
func (l *load) ping(server, user string, at int) bool {
	request, _ := http.NewRequestWithContext(context.Background(), http.MethodPost,
		server+"/v1/namespaces/load/users/"+user+"/ping", strings.NewReader(fmt.Sprintf(`{"at":%d}`, at)))
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	_, _ = io.Copy(io.Discard, response.Body)
	response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last[user] = at
	return true
}

func (l *load) acknowledged() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.last)
}

// requireKept requires that a server has what another one acknowledged, or what came later.
func (*load) requireKept(t *testing.T, s *testserver.Server, acknowledged map[string]int) {
	t.Helper()
	for user, at := range acknowledged {
		presence := s.Get(t, "/v1/namespaces/load/users/"+user)
		seen, err := time.Parse(time.RFC3339, fmt.Sprint(presence["last_seen"]))
		require.NoError(t, err)
		require.GreaterOrEqual(t, seen.Unix(), int64(at), user)
	}
}

// TestBackupAndRestore makes a backup under load, kills the server, and starts from the backup: every ping that was
// acknowledged before the backup is there.
func TestBackupAndRestore(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data.db")
	s := testserver.Start(t, "--store", data, "--admin-listen", "127.0.0.1:0")
	s.Post(t, "/v1/namespaces/chat/users/gone/leave", "")
	pings := startLoad(s)
	require.Eventually(t, func() bool { return len(pings.acknowledged()) == 400 }, time.Minute, time.Millisecond)
	expected := pings.acknowledged()
	saved := filepath.Join(t.TempDir(), "backup.db")
	code, out, log := backup(s, saved)
	require.Zero(t, code, log)
	require.Regexp(t, `^.*backup\.db: [0-9]+ bytes, verified\n$`, out)
	info, err := os.Stat(saved)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm(), "others must not read it")
	code, _, log = runInProcess("restore", "--store", data, "--force", saved)
	require.Equal(t, 1, code)
	require.Contains(t, log, "in use by another process; stop the server first\n")
	s.Kill()
	pings.wg.Wait()

	code, _, log = runInProcess("restore", "--store", data, saved)
	require.Equal(t, 1, code)
	require.Contains(t, log, "data.db exists; move it away, or replace it with --force\n")
	code, out, log = runInProcess("restore", "--store", data, "--force", saved)
	require.Zero(t, code, log)
	require.Equal(t, fmt.Sprintf("%s: %d bytes, verified\n", data, info.Size()), out)
	s = testserver.Start(t, "--store", data)
	pings.requireKept(t, s, expected)
	require.Equal(t, true, s.Get(t, "/v1/namespaces/chat/users/gone")["left"])
	s.Post(t, alice+"/ping", "")
	require.Zero(t, s.Terminate(t), s.Log)
}

// TestBackupReplacesNothing unless asked, and never the data file in use.
func TestBackupReplacesNothing(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data.db")
	s := testserver.Start(t, "--store", data, "--admin-listen", "127.0.0.1:0")
	saved := filepath.Join(t.TempDir(), "backup.db")
	require.NoError(t, os.WriteFile(saved, []byte("precious"), 0o600))
	code, _, log := backup(s, saved)
	require.Equal(t, 1, code)
	require.Contains(t, log, "exists; choose another file, or replace it with --force")
	content, err := os.ReadFile(saved)
	require.NoError(t, err)
	require.Equal(t, "precious", string(content))

	code, _, log = backup(s, "--force", saved)
	require.Zero(t, code, log)
	require.NoError(t, filestore.Verify(saved))
	code, _, log = backup(s, "--force", data)
	require.Equal(t, 1, code)
	require.Contains(t, log, "is the data file of a running server")
	code, _, log = backup(s, filepath.Join(t.TempDir(), "none", "backup.db"))
	require.Equal(t, 1, code)
	require.Contains(t, log, "no such file or directory")
}

// TestBackupLeavesNoPart: what the server sends is saved only if it is whole.
func TestBackupLeavesNoPart(t *testing.T) {
	store, err := filestore.Open(filestore.Options{Path: filepath.Join(t.TempDir(), "data.db")})
	require.NoError(t, err)
	var whole bytes.Buffer
	require.NoError(t, store.Register(t.Context(), []string{"a", "b"}))
	require.NoError(t, store.Backup(t.Context(), &whole))
	require.NoError(t, store.Close())
	for name, answer := range map[string]func(http.ResponseWriter){
		"is not complete": func(w http.ResponseWriter) { _, _ = w.Write(whole.Bytes()[:whole.Len()-1]) },
		"the server ended the backup early: unexpected EOF; its log has the reason": func(w http.ResponseWriter) {
			_, _ = w.Write(whole.Bytes())
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		},
		"503 Service Unavailable: busy": func(w http.ResponseWriter) { http.Error(w, "busy", http.StatusServiceUnavailable) },
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { answer(w) }))
		dir := t.TempDir()
		code, out, log := backup(&testserver.Server{Admin: server.URL}, filepath.Join(dir, "backup.db"))
		server.Close()
		require.Equal(t, 1, code)
		require.Empty(t, out)
		require.Contains(t, log, name)
		left, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Empty(t, left)
	}
}

func TestBackupNeedsServer(t *testing.T) {
	code, _, log := runInProcess("backup", "--admin-listen", "off", "x")
	require.Equal(t, 1, code)
	require.Contains(t, log, "admin-listen is off")
	server := httptest.NewServer(nil)
	server.Close()
	code, _, log = backup(&testserver.Server{Admin: server.URL}, filepath.Join(t.TempDir(), "x"))
	require.Equal(t, 1, code)
	require.Contains(t, log, "is the server running, with this --admin-listen?")
	code, _, _ = runInProcess("backup", "--admin-listen", "nonsense", "x")
	require.Equal(t, 2, code)
}

// TestBackupOfRedis: Redis has its own.
func TestBackupOfRedis(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, "--store", redistest.Start(t), "--admin-listen", "127.0.0.1:0",
		"--redis-timeout", "30s", "--redis-dial-timeout", "30s")
	code, _, log := backup(s, filepath.Join(t.TempDir(), "backup.db"))
	require.Equal(t, 1, code)
	require.Contains(t, log, "the store is Redis: use the backup of Redis")
}

// TestRestoreErrors: each says what is wrong with what.
func TestRestoreErrors(t *testing.T) {
	file := filepath.Join(t.TempDir(), "notes.txt")
	require.NoError(t, os.WriteFile(file, []byte("precious"), 0o600))
	data := filepath.Join(t.TempDir(), "data.db")
	for _, c := range []struct {
		code int
		args string
		log  string
	}{
		{1, "--store redis://u:secret@127.0.0.1 " + file, "the store is Redis: restore the backup of Redis"},
		{1, "--store " + data + " " + file, "nothing was restored from " + file + ": not a lastseen data file"},
		{1, "--store " + data + " " + file + ".none", file + ".none: no such file or directory"},
		{1, "--store " + file + "/data.db " + file, "not a directory"},
		{2, "--config " + file + ".none " + file, "notes.txt.none: no such file or directory"},
		{2, "--store " + data, "expected \"<file>\""},
	} {
		code, out, log := runInProcess(append([]string{"restore"}, strings.Fields(c.args)...)...)
		require.Equal(t, c.code, code, c.args)
		require.Empty(t, out)
		require.Contains(t, log, c.log)
		require.NoFileExists(t, data)
	}
}
