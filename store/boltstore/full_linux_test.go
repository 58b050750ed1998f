package boltstore

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// smallDisk mounts a disk of 2 MiB, half of which a file takes, and returns its directory and what
// frees that half.
func smallDisk(t *testing.T) (dir string, free func()) {
	t.Helper()
	dir = t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=2m"); err != nil {
		t.Skipf("a full disk needs the right to mount one (run as root): %v", err)
	}
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(dir, 0)) })
	ballast := filepath.Join(dir, "ballast")
	require.NoError(t, os.WriteFile(ballast, make([]byte, 1<<20), 0o600))
	return dir, func() { require.NoError(t, os.Remove(ballast)) }
}

// TestFullDisk fills a real disk: what was accepted is in the file once there is room again, and
// nothing more is accepted until then. It holds with folds that fail for want of room, too.
func TestFullDisk(t *testing.T) {
	for _, o := range []Options{
		{Sync: 0, FoldAfter: 1 << 40},
		{Sync: time.Millisecond, FoldAfter: 1 << 40},
		{Sync: 0, FoldAfter: 100_000},
		{Sync: time.Millisecond, FoldAfter: 100_000},
	} {
		t.Run(fmt.Sprintf("sync=%s,fold=%d", o.Sync, o.FoldAfter), func(t *testing.T) {
			dir, free := smallDisk(t)
			o.Path = filepath.Join(dir, "lastseen.db")
			ctx := context.Background()
			s := open(t, o)
			accepted := fill(t, s)
			if o.FoldAfter > 1<<30 { // a fold that gives up leaves some room
				require.ErrorIs(t, s.Ready(ctx), store.ErrFull)
			}
			require.Equal(t, accepted, truthOf(t, s)["chat"], "reads go on")
			free()
			require.Eventually(t, func() bool {
				_, err := s.Ping(ctx, "chat", []store.Sighting{{User: "after", At: base}})
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

// fill pings until the store is full, and returns what it accepted.
func fill(t *testing.T, s *Store) map[string]lastseen.State {
	t.Helper()
	accepted := map[string]lastseen.State{}
	for n := 0; ; n++ {
		batch := make([]store.Sighting, 200)
		for i := range batch {
			batch[i] = store.Sighting{User: fmt.Sprintf("a-rather-long-user-name-%06d", n*len(batch)+i), At: base}
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
