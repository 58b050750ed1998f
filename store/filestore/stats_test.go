package filestore

import (
	"context"
	"errors"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// clocked opens a store in a bubble, whose time it has from base on, and which notes how long flushes take.
func clocked(t *testing.T, sync time.Duration) (s *Store, flushes chan time.Duration) {
	begin := time.Now()
	flushes = make(chan time.Duration, 100)
	s = open(t, Options{
		Path: newPath(t), Sync: sync, ObserveFlush: func(d time.Duration) { flushes <- d },
		Now: func() time.Time { return time.UnixMilli(int64(base)).Add(time.Since(begin)) },
	})
	return s, flushes
}

// TestStats: what is pending counts as dirty until the flush after it.
func TestStats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, flushes := clocked(t, time.Hour)
		require.Equal(t, Stats{LastFlush: time.UnixMilli(int64(base)), Size: headerSize}, s.Stats())

		release, inFlush := make(chan struct{}), make(chan struct{})
		commit := s.writer.commit
		s.writer.commit = func(run changes) error { // before the first write, so that the writer waits for a signal
			inFlush <- struct{}{}
			<-release
			return commit(run)
		}
		ping(t, s, "alice", base)
		<-inFlush
		ping(t, s, "bob", base)
		ping(t, s, "bob", base+1)
		require.EqualValues(t, 3, s.Stats().Dirty, "one is being flushed, one is pending twice")
		require.EqualValues(t, 2, s.Stats().Users)

		time.Sleep(3 * time.Second)
		release <- struct{}{}
		require.Equal(t, 3*time.Second, <-flushes)
		flushed := func(write func() error) {
			t.Helper()
			done := make(chan error)
			go func() { done <- write() }()
			<-inFlush
			release <- struct{}{}
			require.NoError(t, <-done)
		}
		flushed(func() error { return s.Forget(context.Background(), "chat", "alice") })
		stats := s.Stats()
		require.Zero(t, stats.Dirty)
		require.EqualValues(t, 1, stats.Users)
		require.Equal(t, time.UnixMilli(int64(base)).Add(3*time.Second), stats.LastFlush)
		info, err := os.Stat(s.Path())
		require.NoError(t, err)
		require.Equal(t, info.Size(), stats.Size)
		require.Positive(t, stats.Live)
		require.Less(t, stats.Live, stats.Size)
		flushed(func() error { return s.DeleteNamespace(context.Background(), "chat") })
		require.Zero(t, s.Stats().Users)
	})
}

// TestStatsOfFailures: users whose flush failed stay dirty, and the time of the last flush that succeeded stays.
func TestStatsOfFailures(t *testing.T) {
	for _, sync := range []time.Duration{0, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			s, flushes := clocked(t, sync)
			failing := atomic.Bool{}
			failing.Store(true)
			commit := s.writer.commit
			s.writer.commit = func(run changes) error {
				time.Sleep(time.Second)
				if failing.Load() {
					return errors.New("the disk is broken")
				}
				return commit(run)
			}
			_, err := s.Ping(context.Background(), "chat", []store.PresenceEvent{{User: "alice", At: base}})
			require.Equal(t, time.Second, <-flushes)
			stats := s.Stats()
			if sync == 0 {
				require.ErrorIs(t, err, store.ErrUnavailable)
				require.Zero(t, stats.Dirty, "the ping was refused")
			} else {
				require.NoError(t, err)
				require.EqualValues(t, 1, stats.Dirty)
			}
			require.Positive(t, stats.Failures)
			require.Equal(t, time.UnixMilli(int64(base)), stats.LastFlush)
			failing.Store(false)
			require.Eventually(t, func() bool {
				stats := s.Stats()
				return stats.Dirty == 0 && stats.LastFlush.After(time.UnixMilli(int64(base)))
			}, time.Minute, time.Millisecond, "it is tried again")
			require.Positive(t, s.Stats().Failures)
		})
	}
}

// TestStatsOfCompactions counts them, and follows the size of the file.
func TestStatsOfCompactions(t *testing.T) {
	s := open(t, Options{Path: newPath(t), Sync: 0, CompactAfter: 1})
	before := inUse(s)
	for n := range 100 {
		ping(t, s, "alice", base+lastseen.Instant(n))
		if inUse(s) != before {
			break
		}
	}
	awaitCompaction(t, s, before)
	require.Eventually(t, func() bool { return s.Stats().Compactions > 0 }, time.Minute, time.Millisecond)
	require.Eventually(t, func() bool {
		info, err := os.Stat(s.Path())
		return err == nil && info.Size() == s.Stats().Size
	}, time.Minute, time.Millisecond)
}
