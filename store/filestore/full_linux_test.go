package filestore

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store"
)

// smallDisk mounts a disk of 3 MiB, two thirds of which a file takes, and returns its directory and what frees them: a
// compaction needs more room than the data file has then.
func smallDisk(t *testing.T) (dir string, free func()) {
	t.Helper()
	dir = t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=3m"); err != nil {
		t.Skipf("a full disk needs the right to mount one (run as root): %v", err)
	}
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(dir, 0)) })
	ballast := filepath.Join(dir, "ballast")
	require.NoError(t, os.WriteFile(ballast, make([]byte, 2<<20), 0o600))
	return dir, func() { require.NoError(t, os.Remove(ballast)) }
}

// TestFullDisk fills a real disk: what was accepted is in the file once there is room again, and
// nothing more is accepted until then. The same holds with compactions that fail for want of room.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	for _, o := range []Options{
		{Sync: 0, CompactAfter: 1 << 40},
		{Sync: time.Millisecond, CompactAfter: 1 << 40},
		{Sync: 0, CompactAfter: 100_000},
		{Sync: time.Millisecond, CompactAfter: 100_000},
	} {
		t.Run(fmt.Sprintf("sync=%s,compact=%d", o.Sync, o.CompactAfter), func(t *testing.T) {
			t.Parallel()
			dir, free := smallDisk(t)
			o.Path = filepath.Join(dir, "lastseen.db")
			ctx := context.Background()
			s := open(t, o)
			accepted := fill(t, s)
			if o.CompactAfter > 1<<30 { // a compaction that fails leaves some room
				for n := 0; n < 100 && s.Ready(ctx) == nil; n++ { // it tried again, and there was room for that
					maps.Copy(accepted, fill(t, s))
				}
				require.ErrorIs(t, s.Ready(ctx), store.ErrFull)
			}
			require.Equal(t, accepted, truthOf(t, s)["chat"], "reads continue")
			free()
			require.Eventually(t, func() bool {
				_, err := s.Ping(ctx, "chat", []store.PresenceEvent{{User: "after", At: base}})
				return err == nil
			}, time.Minute, time.Millisecond)
			require.NoError(t, s.Ready(ctx))
			accepted["after"] = lastseen.State{At: base}
			require.NoError(t, s.Close())
			held := truthOf(t, open(t, Options{Path: o.Path, Sync: o.Sync}))["chat"]
			require.Equal(t, accepted, held)
		})
	}
}

// fillWithGarbage pings the same users until the file has been full.
func fillWithGarbage(t require.TestingT, s *Store) {
	first, full := inUse(s), false
	for at := base; inUse(s) == first; at++ {
		batch := make([]store.PresenceEvent, 100)
		for i := range batch {
			batch[i] = store.PresenceEvent{User: fmt.Sprintf("a-rather-long-user-name-%06d", i), At: at}
		}
		if _, err := s.Ping(context.Background(), "chat", batch); err != nil {
			require.ErrorIs(t, err, store.ErrFull)
			full = true
		}
	}
	require.True(t, full)
	awaitIdle(s)
	for s.Ready(context.Background()) != nil {
		time.Sleep(time.Millisecond)
	}
}

// exits makes the process end where a test would.
type exits struct{}

func (exits) Errorf(format string, args ...any) { fmt.Fprintf(os.Stderr, format, args...) }
func (exits) FailNow()                          { os.Exit(1) }

// limited runs in its own process, whose files can be 512 KiB long.
func limited(path string) {
	limit := syscall.Rlimit{Cur: 1 << 19, Max: 1 << 19}
	require.NoError(exits{}, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit))
	s, err := Open(Options{Path: path, Sync: 0, CompactAfter: 1 << 40, Logger: quiet()})
	require.NoError(exits{}, err)
	fillWithGarbage(exits{}, s)
	for n := 0; err == nil; n++ {
		_, err = s.Ping(context.Background(), "chat", []store.PresenceEvent{{User: fmt.Sprintf("%0200d", n), At: base}})
	}
	require.ErrorIs(exits{}, err, store.ErrFull)
	require.ErrorIs(exits{}, err, syscall.EFBIG)
	require.ErrorIs(exits{}, s.Ready(context.Background()), store.ErrFull)
	fmt.Println("full at", len(s.tables.Snapshot()), "namespace")
}

// TestLargestFile: where files cannot grow beyond a size, a file of that size is a full store.
func TestLargestFile(t *testing.T) {
	t.Parallel()
	cmd := testenv.Command(os.Args[0])
	cmd.Env = append(os.Environ(), limitedFile+"="+newPath(t))
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Equal(t, "full at 1 namespace\n", string(out))
}

// fill pings until the store is full, and returns what it accepted.
func fill(t *testing.T, s *Store) map[string]lastseen.State {
	t.Helper()
	accepted := map[string]lastseen.State{}
	for n := 0; ; n++ {
		batch := make([]store.PresenceEvent, 200)
		for i := range batch {
			batch[i] = store.PresenceEvent{User: fmt.Sprintf("a-rather-long-user-name-%06d", n*len(batch)+i), At: base}
		}
		if _, err := s.Ping(context.Background(), "chat", batch); err != nil {
			require.ErrorIs(t, err, store.ErrFull)
			return accepted
		}
		for _, b := range batch {
			accepted[b.User] = lastseen.State{At: b.At}
		}
	}
}
