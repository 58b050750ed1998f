package filestore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/store"
)

// inFile opens a copy of a store's file, as it would be found after a crash at this moment.
func inFile(t testing.TB, s *Store) truth {
	t.Helper()
	data, err := os.ReadFile(s.Path())
	require.NoError(t, err)
	path := newPath(t)
	require.NoError(t, os.WriteFile(path, data, 0o600))
	crashed := open(t, Options{Path: path, Sync: defaultSync})
	defer crashed.Close()
	return truthOf(t, crashed)
}

// TestFlushWithinSync runs on a clock that only moves when everything waits.
func TestFlushWithinSync(t *testing.T) {
	path := newPath(t)
	synctest.Test(t, func(t *testing.T) {
		s := open(t, Options{Path: path, Sync: defaultSync})
		ping(t, s, "first", base)
		synctest.Wait()
		require.Contains(t, inFile(t, s)["chat"], "first", "an idle store flushes at once")
		ping(t, s, "second", base)
		time.Sleep(defaultSync)
		synctest.Wait()
		require.Contains(t, inFile(t, s)["chat"], "second", "a second later it is safe")
	})
}

// gate is a commit that a test holds up, or makes fail.
type gate struct {
	entered chan struct{}
	open    chan error
}

// hold puts a gate in front of a store's commits.
func hold(s *Store) *gate {
	g := &gate{entered: make(chan struct{}, 100), open: make(chan error)}
	commit := s.writer.commit
	s.writer.commit = func(run changes) error {
		g.entered <- struct{}{}
		if err := <-g.open; err != nil {
			return err
		}
		return commit(run)
	}
	return g
}

// opened opens a store whose commits a test holds up. The goroutine reads the gate when it first
// writes, after the test has set it.
func opened(t *testing.T, sync time.Duration) (*Store, *gate) {
	t.Helper()
	s := open(t, Options{Path: newPath(t), Sync: sync})
	return s, hold(s)
}

// TestClockSetDuringAFlush: a flush takes no longer because the machine's clock is set while it is in progress.
func TestClockSetDuringAFlush(t *testing.T) {
	for _, sync := range []time.Duration{0, defaultSync} {
		synctest.Test(t, func(t *testing.T) {
			var wrong atomic.Int64
			s := open(t, Options{Path: newPath(t), Sync: sync, Now: func() time.Time {
				return time.Now().Add(time.Duration(wrong.Load()))
			}})
			g := hold(s)
			done := make(chan error, 2)
			write := func(user string) {
				_, err := s.Ping(context.Background(), "chat", []store.PresenceEvent{{User: user, At: base}})
				done <- err
			}
			go write("alice")
			<-g.entered
			wrong.Store(int64(time.Hour))
			ready := s.Ready(context.Background())
			go write("bob")
			synctest.Wait()
			close(g.open)
			require.NoError(t, ready)
			require.NoError(t, <-done)
			require.NoError(t, <-done)
		})
	}
}

// TestSlowFlushHoldsWritesBack: while a flush takes longer than Sync, writes wait; reads do not.
func TestSlowFlushHoldsWritesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, g := opened(t, defaultSync)
		ping(t, s, "first", base)
		<-g.entered
		time.Sleep(defaultSync)
		ping(t, s, "in-time", base)
		time.Sleep(time.Millisecond)

		held := make(chan error, 2)
		send := func(ctx context.Context, user string) {
			_, err := s.Ping(ctx, "chat", []store.PresenceEvent{{User: user, At: base}})
			held <- err
		}
		ctx, cancel := context.WithCancel(context.Background())
		go send(ctx, "impatient")
		go send(context.Background(), "held")
		synctest.Wait()
		require.Empty(t, held, "answered while the flush is late")
		cancel()
		require.ErrorIs(t, <-held, context.Canceled)
		shown := truthOf(t, s)["chat"]
		require.Contains(t, shown, "in-time", "reads continue")
		require.Len(t, shown, 2)
		g.open <- nil
		require.NoError(t, <-held)
		close(g.open)
		require.Len(t, truthOf(t, s)["chat"], 3)
	})
}

// TestHangingFlush: a disk that neither writes nor fails makes the store unready, and writes that wait for it fail,
// until it responds.
func TestHangingFlush(t *testing.T) {
	for _, sync := range []time.Duration{0, defaultSync} {
		synctest.Test(t, func(t *testing.T) {
			s, g := opened(t, sync)
			ctx := context.Background()
			first, forgotten := make(chan error, 1), make(chan error, 1)
			write := func(user string) error {
				_, err := s.Ping(ctx, "chat", []store.PresenceEvent{{User: user, At: base}})
				return err
			}
			go func() { first <- write("alice") }()
			<-g.entered
			go func() { forgotten <- s.Forget(ctx, "chat", "alice") }()
			require.Zero(t, s.Load())
			time.Sleep(sync + stallAfter/2)
			require.InDelta(t, 0.25, s.Load(), 0.001)
			time.Sleep(stallAfter / 2)
			require.NoError(t, s.Ready(ctx), "slow is not hanging")
			require.InDelta(t, 0.5, s.Load(), 0.001)
			time.Sleep(time.Millisecond)
			require.ErrorIs(t, s.Ready(ctx), store.ErrUnavailable)
			require.Zero(t, s.Load(), "a disk that hangs is not loaded")
			require.ErrorIs(t, <-forgotten, store.ErrUnavailable)
			if err := <-first; sync == 0 {
				require.ErrorIs(t, err, store.ErrUnavailable)
			}
			begin := time.Now()
			require.ErrorIs(t, write("bob"), store.ErrUnavailable)
			require.Zero(t, time.Since(begin), "later writes do not wait")
			close(g.open)
			synctest.Wait()
			require.NoError(t, s.Ready(ctx))
			require.Zero(t, s.Load())
			require.NoError(t, write("carol"))
		})
	}
}

// TestSyncZero: a write shows in reads, and is answered, after its flush; those that wait share the
// next one; those whose caller has gone are dropped.
func TestSyncZero(t *testing.T) {
	s, g := opened(t, 0)
	ctx, cancel := context.WithCancel(context.Background())
	answers := make(chan error, 100)
	send := func(ctx context.Context, user string) {
		_, err := s.Ping(ctx, "chat", []store.PresenceEvent{{User: user, At: base}})
		answers <- err
	}
	go send(context.Background(), "first")
	<-g.entered
	require.Empty(t, truthOf(t, s), "not in the file, so not in a read")
	for i := range 20 {
		go send(context.Background(), fmt.Sprintf("waiting-%d", i))
	}
	go send(ctx, "gone")
	require.Eventually(t, func() bool { return len(s.writer.requests) == 21 }, time.Minute, time.Millisecond)
	cancel()
	require.ErrorIs(t, <-answers, context.Canceled)
	g.open <- nil
	require.NoError(t, <-answers)
	<-g.entered
	require.Len(t, truthOf(t, s)["chat"], 1)
	close(g.open)
	for range 20 {
		require.NoError(t, <-answers)
	}
	require.Len(t, truthOf(t, s)["chat"], 21)
	require.NotContains(t, truthOf(t, s)["chat"], "gone")
	require.Empty(t, g.entered, "one flush serves all that wait")
	require.Len(t, inFile(t, s)["chat"], 21)
}

// TestFailedFlush fails flushes by an injected error, since a real disk does not fail on demand.
func TestFailedFlush(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for cause, want := range map[error]error{
			syscall.ENOSPC:    store.ErrFull,
			syscall.EDQUOT:    store.ErrFull,
			syscall.EFBIG:     store.ErrFull,
			errors.New("EIO"): store.ErrUnavailable,
		} {
			ctx := context.Background()
			s, g := opened(t, time.Millisecond)
			ping(t, s, "kept", base)
			<-g.entered
			g.open <- cause
			<-g.entered // it is tried again
			require.ErrorIs(t, s.Ready(ctx), want)
			_, err := s.Ping(ctx, "chat", []store.PresenceEvent{{User: "refused", At: base}})
			require.ErrorIs(t, err, want)
			require.ErrorIs(t, s.Forget(ctx, "chat", "kept"), want)
			require.Contains(t, truthOf(t, s)["chat"], "kept", "reads continue")
			close(g.open)
			require.Eventually(t, func() bool { return s.Ready(ctx) == nil }, time.Minute, time.Millisecond)
			ping(t, s, "again", base)
			require.NoError(t, s.Forget(ctx, "chat", "nobody"))
			require.NoError(t, s.Close())
			kept := truthOf(t, open(t, Options{Path: s.Path()}))["chat"]
			require.Len(t, kept, 2)
			require.Contains(t, kept, "kept")
		}
	})
}

// TestFailedSync: what was not synced is written again. A second sync alone would succeed, although the kernel has
// dropped what it could not write. The test drops it, too.
func TestFailedSync(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, sync := range []time.Duration{0, time.Millisecond} {
			ctx := context.Background()
			s := open(t, Options{Path: newPath(t), Sync: sync})
			log, failures := s.writer.log, make(chan bool, 1)
			ping(t, s, "before", base)
			require.NoError(t, s.Forget(ctx, "chat", "nobody")) // the flush has ended
			log.fsync = func(f *os.File) error {
				select {
				case <-failures:
					info, err := f.Stat()
					require.NoError(t, err)
					_, err = f.WriteAt(make([]byte, info.Size()-log.end), log.end)
					require.NoError(t, err)
					return syscall.EIO
				default:
					return f.Sync()
				}
			}
			failures <- true
			_, err := s.Ping(ctx, "chat", []store.PresenceEvent{{User: "failed", At: base}})
			require.Eventually(t, func() bool {
				return len(failures) == 0 && s.Ready(ctx) == nil && s.Forget(ctx, "chat", "nobody") == nil
			}, time.Minute, time.Millisecond)
			held := inFile(t, s)["chat"]
			require.Contains(t, held, "before")
			if sync == 0 {
				require.ErrorIs(t, err, store.ErrUnavailable)
				require.NotContains(t, held, "failed", "it was cut off")
			} else {
				require.NoError(t, err)
				require.Contains(t, held, "failed")
			}
			require.Equal(t, truthOf(t, s), inFile(t, s))
		}
	})
}

// TestForgottenAfterAFailure: what a failed flush left in the file does not come back after somebody has asked to
// forget it, although nothing is known of it.
func TestForgottenAfterAFailure(t *testing.T) {
	s := open(t, Options{Path: newPath(t), Sync: 0})
	commit, failed := s.writer.commit, false
	s.writer.commit = func(run changes) error {
		if !failed {
			failed = true
			log := s.writer.log // the record is in the file, and cutting it off fails
			_, first := log.file.WriteAt(log.header.head(log.end, run.buf), log.end)
			_, second := log.file.WriteAt(run.buf, log.end+headSize)
			return errors.Join(first, second, syscall.EIO)
		}
		return commit(run)
	}
	_, err := s.Ping(context.Background(), "chat", []store.PresenceEvent{{User: "alice", At: base}})
	require.ErrorIs(t, err, store.ErrUnavailable)
	require.Contains(t, inFile(t, s)["chat"], "alice", "it may have happened or not")
	require.NoError(t, s.Forget(context.Background(), "chat", "alice"))
	require.Empty(t, inFile(t, s)["chat"])
}

func TestFailedFlushWithSyncZero(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		s, g := opened(t, 0)
		go func() { <-g.entered; g.open <- syscall.ENOSPC }()
		_, err := s.Ping(ctx, "chat", []store.PresenceEvent{{User: "refused", At: base}})
		require.ErrorIs(t, err, store.ErrFull)
		require.ErrorIs(t, s.Ready(ctx), store.ErrFull)
		require.Empty(t, truthOf(t, s))
		close(g.open)
		require.Eventually(t, func() bool { return s.Ready(ctx) == nil }, time.Minute, time.Millisecond,
			"it tries again by itself: who is not ready gets no writes")
		ping(t, s, "kept", base)
		require.NoError(t, s.Ready(ctx))
		require.Len(t, inFile(t, s)["chat"], 1)
	})
}

// TestFailedFlushIsRetriedSoon, however rare flushes are: nothing is written meanwhile.
func TestFailedFlushIsRetriedSoon(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, g := opened(t, time.Hour)
		defer close(g.open)
		ping(t, s, "alice", base)
		<-g.entered
		g.open <- syscall.EIO
		select {
		case <-g.entered:
			g.open <- nil
		case <-time.After(time.Minute):
			require.Fail(t, "not retried")
		}
		require.Eventually(t, func() bool { return s.Ready(context.Background()) == nil }, time.Minute,
			time.Millisecond)
	})
}

// TestCloseReportsWhatIsLost: accepted writes that cannot be written are an error.
func TestCloseReportsWhatIsLost(t *testing.T) {
	s, err := Open(Options{Path: newPath(t), Sync: time.Hour, Logger: quiet()})
	require.NoError(t, err)
	s.writer.commit = func(changes) error { return errors.New("no disk") }
	ping(t, s, "lost", base)
	require.ErrorContains(t, s.Close(), "no disk")
}

// TestFailedDurableWrites: contacts and the availability of users fail if they cannot be written.
func TestFailedDurableWrites(t *testing.T) {
	t.Parallel()
	for _, sync := range []time.Duration{0, time.Hour} {
		s := open(t, Options{Path: newPath(t), Sync: sync})
		set := func(s *Store) error { return s.SetContacts(t.Context(), "chat", "alice", []string{"bob"}) }
		commit := s.writer.commit
		var broken atomic.Bool
		s.writer.commit = func(run changes) error { // before anything is flushed
			if broken.Load() {
				return errors.New("broken")
			}
			return commit(run)
		}
		broken.Store(true)
		for _, write := range []func(*Store) error{set, sayOf("alice", busy), sayOf("alice", invisible)} {
			require.ErrorIs(t, write(s), store.ErrUnavailable)
		}
		if sync == 0 {
			require.Empty(t, keptIn(s))
			require.Empty(t, truthOf(t, s))
			require.Empty(t, contactsOf(t, s, "alice"))
		}
		broken.Store(false)
		require.Eventually(t, func() bool { return s.Ready(t.Context()) == nil }, time.Minute, time.Millisecond)
		require.NoError(t, set(s))
		require.Equal(t, "bob", contactsOf(t, crashedCopy(t, s), "alice"))
	}
}
