package filestore

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/devices"
	"github.com/lastseen/lastseen/store/storetest/kit"
)

func sizeOf(t testing.TB, s *Store) int64 {
	t.Helper()
	info, err := os.Stat(s.Path())
	require.NoError(t, err)
	return info.Size()
}

func pingMany(t testing.TB, s *Store, namespace string, n int, at lastseen.Instant) {
	t.Helper()
	batch := make([]store.PresenceEvent, n)
	for i := range batch {
		batch[i] = store.PresenceEvent{User: fmt.Sprintf("a-rather-long-user-name-%06d", i), At: at}
	}
	kit.Write(s.Ping).Send(t, namespace, batch)
}

// awaitIdle waits until no compaction is in progress.
func awaitIdle(s *Store) {
	for s.writer.log.busy.Load() {
		time.Sleep(time.Millisecond)
	}
}

// compactNow compacts the file of a store that is not written to meanwhile.
func compactNow(s *Store) error {
	log := s.writer.log
	s.writer.mu.Lock()
	for !log.busy.CompareAndSwap(false, true) { // busy keeps the writer from beginning a compaction, too
		s.writer.mu.Unlock()
		awaitIdle(s)
		s.writer.mu.Lock()
	}
	frozen := s.tables.Snapshot()
	log.mu.Lock() // a delayed flush can be in progress
	from := log.end
	log.mu.Unlock()
	s.writer.mu.Unlock()
	defer log.busy.Store(false)
	return log.compact(frozen, from)
}

// TestCompaction fills the log, waits for its compaction, and finds everything after a restart, and nothing of what
// was deleted.
func TestCompaction(t *testing.T) {
	const users = 1500
	for _, sync := range []time.Duration{0, time.Millisecond} {
		t.Run(sync.String(), func(t *testing.T) {
			ctx := context.Background()
			t.Parallel()
			s := open(t, Options{Path: newPath(t), Sync: sync, CompactAfter: 20_000})
			// What is deleted, and the namespace without users, come first: they are in the snapshot's part.
			for _, namespace := range []string{"chat", "gone", "empty"} {
				kit.Write(s.Ping).Send(t, namespace, []store.PresenceEvent{{User: "erased", At: base}})
			}
			require.NoError(t, s.Forget(ctx, "chat", "erased"))
			require.NoError(t, s.Forget(ctx, "empty", "erased"))
			require.NoError(t, s.DeleteNamespace(ctx, "gone"))
			first := inUse(s)
			for round := range lastseen.Instant(4) {
				for i := range users {
					ping(t, s, fmt.Sprintf("user-%d", i), base+lastseen.Instant(i)+round)
				}
			}
			awaitCompaction(t, s, first)
			ping(t, s, "last", base)
			held := truthOf(t, s)
			require.Len(t, held["chat"], users+1)
			require.NotContains(t, held["chat"], "erased")
			require.Contains(t, held, "empty")
			require.NotContains(t, held, "gone")
			require.NoError(t, s.Close())
			require.Equal(t, held, truthOf(t, open(t, Options{Path: s.Path(), Sync: sync})))
		})
	}
}

// TestFileStaysInProportion writes the same users over and over: the file does not grow with the number of writes.
func TestFileStaysInProportion(t *testing.T) {
	t.Parallel()
	const users = 200
	s := open(t, Options{Path: newPath(t), Sync: 0, CompactAfter: 1 << 14})
	written := int64(0)
	for round := range lastseen.Instant(300) {
		pingMany(t, s, "chat", users, base+round)
		written += users * int64(len("a-rather-long-user-name-000000"))
	}
	awaitIdle(s)
	ping(t, s, "last", base) // begins a compaction if one is due, before the next write
	ping(t, s, "last", base)
	awaitIdle(s)
	require.Less(t, sizeOf(t, s), int64(1<<16), "%d bytes of IDs alone were written", written)
}

// TestFileShrinks: after most of the data is deleted the file is as small as what is left, however little that is.
func TestFileShrinks(t *testing.T) {
	ctx := context.Background()
	for what, remove := range map[string]func(*Store) error{
		"delete": func(s *Store) error { return s.DeleteNamespace(ctx, "large") },
		"trim": func(s *Store) error {
			for {
				now := kit.Now(t, s)
				r, err := s.Trim(ctx, "large", store.TrimQuery{Age: time.Hour, Now: now, All: true})
				if err != nil || r.Deleted == 0 {
					return err
				}
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := open(t, Options{Path: newPath(t), Sync: 0, CompactAfter: 1 << 17})
			ping(t, s, "stays", base)
			pingMany(t, s, "large", 12_000, base)
			require.Greater(t, sizeOf(t, s), int64(3<<17))
			require.InEpsilon(t, sizeOf(t, s), liveOf(s), 0.05)
			first := inUse(s)
			require.NoError(t, remove(s))
			awaitCompaction(t, s, first)
			awaitIdle(s)
			ping(t, s, "stays", base+1) // begins a compaction if one is due, before the next write
			ping(t, s, "stays", base+1)
			awaitIdle(s)
			require.Less(t, sizeOf(t, s), int64(2<<17), "at most CompactAfter of superseded records")
			require.NoError(t, compactNow(s))
			require.Less(t, sizeOf(t, s), int64(200))
			require.Equal(t, lastseen.State{At: base + 1}, inFile(t, s)["chat"]["stays"])
		})
	}
}

// TestLiveBytes: whatever happens, what is counted is about what a new file takes.
func TestLiveBytes(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := open(t, Options{Path: newPath(t), Sync: 0})
	check := func() {
		require.NoError(t, compactNow(s))
		require.InDelta(t, sizeOf(t, s), liveOf(s), 100+float64(liveOf(s))/20)
	}
	check()
	for i := range 20 {
		namespace := fmt.Sprint(i % 3)
		pingMany(t, s, namespace, 10*i+1, base+lastseen.Instant(i))
		batch := make([]store.DeviceEvent, 50)
		for n := range batch {
			batch[n] = devices.On(fmt.Sprintf("a-rather-long-user-name-%06d", n), fmt.Sprint("device-", i), base)
			batch[n].Meta = strings.Repeat(" ", 10*i)
		}
		_, err := s.RecordDevices(ctx, namespace, time.Minute, batch)
		require.NoError(t, err)
		require.NoError(t, s.Forget(ctx, namespace, "a-rather-long-user-name-000000"))
		if i%7 == 6 {
			require.NoError(t, s.DeleteNamespace(ctx, namespace))
		}
		check()
	}
	live := liveOf(s)
	require.NoError(t, s.Close())
	again := open(t, Options{Path: s.Path()})
	require.Equal(t, live, liveOf(again))
	for i := range 3 {
		require.NoError(t, again.DeleteNamespace(ctx, fmt.Sprint(i)))
	}
	require.Zero(t, liveOf(again))
}

// TestWritesDuringCompaction: what is appended while the new file is written is in it, too. At every moment, the file
// is what a crash may leave, and holds what was written before.
func TestWritesDuringCompaction(t *testing.T) {
	t.Parallel()
	const users = 1000
	for _, sync := range []time.Duration{0, time.Millisecond} {
		s := open(t, Options{Path: newPath(t), Sync: sync, CompactAfter: 1})
		pingMany(t, s, "chat", users, base)
		file, replaced := inUse(s), 0
		for n := 0; replaced < 10; n++ {
			at := base + lastseen.Instant(n)
			pingMany(t, s, "chat", 1+n%300, at)
			require.NoError(t, s.Forget(context.Background(), "chat", "a-rather-long-user-name-000999"))
			if next := inUse(s); next != file {
				file = next
				replaced++
				held := inFile(t, s)["chat"]
				require.Len(t, held, users-1)
				require.GreaterOrEqual(t, held["a-rather-long-user-name-000000"].At, at)
			}
		}
		held := truthOf(t, s)
		require.NoError(t, s.Close())
		require.Equal(t, held, truthOf(t, open(t, Options{Path: s.Path(), Sync: sync})))
	}
}

// TestFailedCompaction: what it wrote is removed, appending continues, and a later compaction succeeds, but not at
// once.
func TestFailedCompaction(t *testing.T) {
	t.Parallel()
	const users = 5000
	var passed atomic.Int64
	now := func() time.Time { return time.Now().Add(time.Duration(passed.Load())) }
	s := open(t, Options{Path: newPath(t), Sync: 0, CompactAfter: 1 << 18, Now: now})
	log := s.writer.log
	require.NoError(t, os.Mkdir(tempName(s.Path()), 0o700)) // nothing can be written there
	first := inUse(s)
	for round := range lastseen.Instant(4) {
		pingMany(t, s, "chat", users, base+round)
	}
	ping(t, s, "last", base)
	awaitIdle(s)
	require.True(t, log.failed.Load())
	require.Equal(t, first, inUse(s))
	require.NoError(t, s.Ready(context.Background()))
	require.NoError(t, os.Remove(tempName(s.Path())))
	pingMany(t, s, "chat", users, base+10)
	awaitIdle(s)
	require.Equal(t, first, inUse(s), "it is not tried again with every flush")
	passed.Store(int64(retryCompaction))
	pingMany(t, s, "chat", users, base+11)
	ping(t, s, "more", base)
	awaitCompaction(t, s, first)
	require.Len(t, inFile(t, s)["chat"], users+2)
}

// TestStoppedCompaction: closing the store does not wait for a compaction, and leaves nothing of it.
func TestStoppedCompaction(t *testing.T) {
	t.Parallel()
	s := open(t, Options{Path: newPath(t), Sync: 0, CompactAfter: 1 << 40})
	pingMany(t, s, "chat", 1000, base)
	log := s.writer.log
	from := log.end
	ping(t, s, "last", base)
	held := truthOf(t, s)
	close(log.stop)
	require.ErrorIs(t, compactNow(s), errStopped)
	next, err := newFile(s.Path(), log.version)
	require.NoError(t, err)
	next.stop = log.stop
	require.ErrorIs(t, log.replace(next, from), errStopped, "also while it copies what was appended meanwhile")
	next.discard()
	require.NoFileExists(t, tempName(s.Path()))
	log.stop = make(chan struct{})
	require.NoError(t, s.Close())
	require.Equal(t, held, truthOf(t, open(t, Options{Path: s.Path()})))
}

// TestOneCompactionAtATime: the names that a compaction reads may be written over as soon as the next one begins.
func TestOneCompactionAtATime(t *testing.T) {
	s := open(t, Options{Path: newPath(t), Sync: time.Hour, CompactAfter: 1})
	log := s.writer.log
	require.False(t, log.compactionDue(log.end, false))
	require.True(t, log.compactionDue(0, false))
	log.busy.Store(true)
	require.False(t, log.compactionDue(0, true))
}

// TestUnsyncedName: after a compaction nothing is accepted until the name of the new file is on the disk, because a
// loss of power could bring the old file back.
func TestUnsyncedName(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := open(t, Options{Path: newPath(t), Sync: 0})
		ping(t, s, "alice", base)
		s.writer.log.renamed = true
		s.writer.log.path = "/no/such/directory/lastseen.db"
		_, err := s.Ping(context.Background(), "chat", []store.PresenceEvent{{User: "bob", At: base}})
		require.ErrorIs(t, err, store.ErrUnavailable)
		s.writer.log.path = s.Path()
		require.Eventually(t, func() bool { return s.Ready(context.Background()) == nil }, time.Minute,
			time.Millisecond)
		require.False(t, s.writer.log.renamed)
	})
}

// TestCompactionKeepsEmptyNamespaces, however many come one after the other: their names alone can be longer than a
// record.
func TestCompactionKeepsEmptyNamespaces(t *testing.T) {
	t.Parallel()
	s := open(t, Options{Path: newPath(t), Sync: 0})
	ping(t, s, "first", base)
	names := make([]string, 900)
	for i := range names {
		// Longer than a real name, so that fewer of them fill a record.
		names[i] = fmt.Sprintf("empty-%03d-%s", i, strings.Repeat("x", 10_000))
	}
	require.Greater(t, len(names)*len(names[0]), maxPart)
	require.Eventually(t, func() bool { // a busy disk can take too long
		return s.Register(context.Background(), names) == nil
	}, time.Minute, time.Millisecond)
	held := truthOf(t, s)
	require.NoError(t, compactNow(s))
	require.NoError(t, s.Close())
	again := truthOf(t, open(t, Options{Path: s.Path()}))
	require.Len(t, again, len(held))
	require.Equal(t, held["chat"], again["chat"])
}
