package boltstore

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// buckets returns the names of the buckets of a closed data file.
func buckets(t testing.TB, path string) (names []string) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true})
	require.NoError(t, err)
	defer db.Close()
	require.NoError(t, db.View(func(tx *bbolt.Tx) error {
		return tx.ForEach(func(name []byte, _ *bbolt.Bucket) error {
			names = append(names, string(name))
			return nil
		})
	}))
	return names
}

// TestFold fills the log, sees it folded, and finds everything after a restart, the erased erased.
func TestFold(t *testing.T) {
	for _, sync := range []time.Duration{0, time.Millisecond} {
		t.Run(sync.String(), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "lastseen.db")
			ctx := context.Background()
			s := open(t, Options{Path: path, Sync: sync, FoldAfter: 50_000})
			// What is erased, and the namespace without users, come first: they are in the snapshot's part.
			for _, namespace := range []string{"chat", "gone", "empty"} {
				_, err := s.Ping(ctx, namespace, []store.Sighting{{User: "erased", At: base}})
				require.NoError(t, err)
			}
			require.NoError(t, s.Forget(ctx, "chat", "erased"))
			require.NoError(t, s.Forget(ctx, "empty", "erased"))
			require.NoError(t, s.DeleteNamespace(ctx, "gone"))
			for i := range 5000 {
				ping(t, s, fmt.Sprintf("user-%d", i), base+lastseen.Instant(i))
			}
			ping(t, s, "last", base)
			awaitFold(t, s)
			held := truthOf(t, s)
			require.Len(t, held["chat"], 5001)
			require.NotContains(t, held["chat"], "erased")
			require.Contains(t, held, "empty")
			require.NotContains(t, held, "gone")
			require.NoError(t, s.Close())
			require.Contains(t, fmt.Sprint(buckets(t, path)), "snapshot-")
			require.NotContains(t, buckets(t, path), "log-0", "what is in the snapshot leaves the log")

			again := open(t, Options{Path: path, Sync: sync})
			require.Equal(t, held, truthOf(t, again))
		})
	}
}

// TestFileStaysInProportion writes the same users over and over: the file does not grow with the
// number of writes.
func TestFileStaysInProportion(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lastseen.db")
	s := open(t, Options{Path: path, Sync: 0, FoldAfter: 1 << 16})
	batch := make([]store.Sighting, 1000)
	written := 0
	for round := range lastseen.Instant(300) {
		for i := range batch {
			batch[i] = store.Sighting{User: fmt.Sprintf("user-%06d", i), At: base + round}
		}
		_, err := s.Ping(context.Background(), "chat", batch)
		require.NoError(t, err)
		written += len(batch) * len("user-000000")
	}
	require.NoError(t, s.Close())
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Less(t, info.Size(), int64(written/2), "%d bytes of IDs alone were written", written)
}

// TestInterruptedFold ends a fold after its first chunk, as a crash would, at which the file is
// copied; copy and store hold everything.
func TestInterruptedFold(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "lastseen.db")
	s := open(t, Options{Path: path, Sync: 0, FoldAfter: 1 << 40})
	batch := make([]store.Sighting, 60_000)
	for i := range batch {
		batch[i] = store.Sighting{User: fmt.Sprintf("a-rather-long-user-name-%06d", i), At: base}
	}
	_, err := s.Ping(context.Background(), "chat", batch)
	require.NoError(t, err)
	held := truthOf(t, s)

	log := s.writer.log
	w := snapshotWriter{log: log, bucket: snapshotBucket(log.generation + 1)}
	w.run.set("chat", "somebody-else", lastseen.State{At: base})
	require.NoError(t, w.write())
	copied := filepath.Join(dir, "copy.db")
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(copied, data, 0o600))

	require.Equal(t, held, truthOf(t, open(t, Options{Path: copied})))
	require.NoError(t, s.Close())
	require.Contains(t, buckets(t, path), "snapshot-1")
	again := open(t, Options{Path: path, Sync: 0, FoldAfter: 1})
	require.Equal(t, held, truthOf(t, again))
	ping(t, again, "one-more", base)
	awaitFold(t, again)
	held = truthOf(t, again)
	require.Len(t, held["chat"], len(batch)+1)
	require.NoError(t, again.Close())
	require.Equal(t, held, truthOf(t, open(t, Options{Path: path})))
}

// TestFailedFold: what a fold wrote before the disk was full goes, so that the log has the room; a
// later fold succeeds.
func TestFailedFold(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lastseen.db")
	s := open(t, Options{Path: path, Sync: 0, FoldAfter: 2 << 20})
	log := s.writer.log
	batch := make([]store.Sighting, 70_000)
	for i := range batch {
		batch[i] = store.Sighting{User: fmt.Sprintf("a-rather-long-user-name-%06d", i), At: base}
	}
	write := func() {
		for i := range batch {
			batch[i].At++
		}
		_, err := s.Ping(context.Background(), "chat", batch)
		require.NoError(t, err)
	}
	ping(t, s, "first", base)
	log.db.MaxSize = 5 << 20 // enough for the log, and for a part of the snapshot
	write()
	ping(t, s, "second", base) // after the fold has begun
	log.folding.Wait()
	require.Zero(t, log.snapshot.Load())
	require.NoError(t, log.db.View(func(tx *bbolt.Tx) error {
		require.Nil(t, tx.Bucket(snapshotBucket(1)), "half a snapshot is still there")
		return nil
	}))
	log.db.MaxSize = 0
	write()
	awaitFold(t, s)
	held := truthOf(t, s)
	require.Len(t, held["chat"], len(batch)+2)
	require.NoError(t, s.Close())
	require.Equal(t, held, truthOf(t, open(t, Options{Path: path})))
}

// TestOneFoldAtATime: the names that a fold reads may be written over as soon as the next one begins.
func TestOneFoldAtATime(t *testing.T) {
	s := open(t, Options{Path: filepath.Join(t.TempDir(), "lastseen.db"), Sync: time.Millisecond, FoldAfter: 1})
	require.NoError(t, s.Close())
	s.writer.log.unfolded = 1 << 20
	require.True(t, s.writer.log.foldDue())
	s.writer.log.busy.Store(true)
	require.False(t, s.writer.log.foldDue())
}
