package jobs

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/feed"
	"github.com/lastseen/lastseen/store/storetest/kit"
)

// sweptStore is a fake, so that a test can decide what a sweep finds, and because its clock is that of a bubble.
type sweptStore struct {
	store.Store // nil: nothing else is called
	start       time.Time

	mu      sync.Mutex
	sweeps  []string // "<second> <namespaces>" of each call
	records []string // "<second> <namespace>"
	result  func(*store.ChangesSweep)
	failing error
}

func (s *sweptStore) second() string { return time.Since(s.start).Truncate(time.Second).String() }

func (s *sweptStore) Now(context.Context) (lastseen.Instant, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return lastseen.InstantOf(time.Now()), s.failing
}

func (s *sweptStore) RecordChanges(_ context.Context, namespace string, _ lastseen.Thresholds) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records = append(s.records, s.second()+" "+namespace)
	return s.failing
}

func (s *sweptStore) SweepChanges(_ context.Context, sweeps []*store.ChangesSweep) {
	s.mu.Lock()
	defer s.mu.Unlock()
	call := []string{}
	for _, w := range sweeps {
		call = append(call, w.Namespace)
		s.result(w)
	}
	slices.Sort(call)
	s.sweeps = append(s.sweeps, s.second()+" "+strings.Join(call, " "))
}

func (s *sweptStore) set(result func(*store.ChangesSweep), failing error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.result, s.failing, s.sweeps, s.records = result, failing, nil, nil
}

func (s *sweptStore) calls() (sweeps, records []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.sweeps), slices.Clone(s.records)
}

// sweepTest runs the job. Namespaces whose names begin with "on" always have a feed.
type sweepTest struct {
	*Sweep
	*sweptStore
	log strings.Builder
	off atomic.Bool
	on  []string

	lagsMu sync.Mutex
	lags   []time.Duration
}

func inSweep(t *testing.T, on []string, test func(*sweepTest)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
		j := &sweepTest{sweptStore: &sweptStore{start: time.Now(), result: func(*store.ChangesSweep) {}}, on: on}
		settings := func(namespace string) feed.Settings {
			switch {
			case j.off.Load():
				return feed.Settings{Mode: feed.Off}
			case strings.HasPrefix(namespace, "on"):
				return feed.Settings{Mode: feed.On}
			}
			return feed.Settings{Mode: feed.Auto}
		}
		j.Sweep = NewSweep(
			j.sweptStore, func() []string { return j.on }, settings, slog.New(slog.NewTextHandler(&j.log, nil)),
		)
		j.Observe = func(lag time.Duration) {
			j.lagsMu.Lock()
			defer j.lagsMu.Unlock()
			j.lags = append(j.lags, lag)
		}
		defer runSweep(t, j.Sweep)()
		test(j)
	})
}

// runSweep runs the job until the function that it returns is called.
func runSweep(t *testing.T, j *Sweep) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { j.Run(ctx) })
	return func() {
		cancel()
		running.Wait()
	}
}

// pass lets time pass. Tests are half a second off the job, so that the order of timers does not matter.
func pass(d time.Duration) {
	synctest.Wait()
	time.Sleep(d)
	synctest.Wait()
}

func TestSweepEverySecond(t *testing.T) {
	inSweep(t, []string{"on1", "auto"}, func(j *sweepTest) {
		pass(500 * time.Millisecond)
		j.Add("chat")
		pass(2 * time.Second)
		sweeps, records := j.calls()
		require.Equal(t, []string{"0s on1", "1s chat on1", "2s chat on1"}, sweeps)
		require.Equal(t, []string{"0s on1"}, records, "namespaces with auto are not recorded without watchers")
		pass(2 * time.Minute)
		_, records = j.calls()
		require.Equal(t, []string{"0s on1", "1m0s on1", "2m0s on1"}, records)
	})
}

func TestSweepDropsFeedsThatEnded(t *testing.T) {
	inSweep(t, []string{"on1"}, func(j *sweepTest) {
		j.Add("chat")
		j.Add("room")
		pass(500 * time.Millisecond)
		j.set(func(w *store.ChangesSweep) {
			if w.Namespace != "room" {
				w.Err = store.ErrNotRecorded
			}
		}, nil)
		pass(2 * time.Second)
		sweeps, records := j.calls()
		require.Equal(t, []string{"1s chat on1 room", "2s on1 room"}, sweeps)
		require.NotEmpty(t, records, "a feed that is always there begins again at once")
		require.Empty(t, j.log.String())

		j.Add("chat")
		pass(time.Second)
		sweeps, _ = j.calls()
		require.Equal(t, "3s chat on1 room", sweeps[2])
		j.off.Store(true)
		j.set(func(*store.ChangesSweep) {}, nil)
		pass(3 * time.Second)
		sweeps, records = j.calls()
		require.Empty(t, sweeps)
		require.Empty(t, records)
	})
}

// TestSweepKeepsWhatIsAddedMeanwhile: a sweep that began before a feed did says nothing about it.
func TestSweepKeepsWhatIsAddedMeanwhile(t *testing.T) {
	inSweep(t, nil, func(j *sweepTest) {
		j.set(func(w *store.ChangesSweep) {
			w.Err = store.ErrNotRecorded
			j.Add(w.Namespace)
		}, nil)
		j.Add("chat")
		pass(500 * time.Millisecond)
		j.set(func(*store.ChangesSweep) {}, nil)
		pass(time.Second)
		sweeps, _ := j.calls()
		require.Equal(t, []string{"1s chat"}, sweeps)
	})
}

func TestSweepBacklog(t *testing.T) {
	inSweep(t, nil, func(j *sweepTest) {
		pass(500 * time.Millisecond)
		j.Add("chat")
		j.Add("room")
		j.Add("other")
		left, others := 3, 2
		j.set(func(w *store.ChangesSweep) {
			switch w.Namespace {
			case "chat":
				left--
				w.Decays, w.Lag, w.More = 1000, time.Duration(left+1)*time.Second, left > 0
			case "other": // another process sweeps one of its shards, and this one another
				others--
				w.Elsewhere, w.More = true, others > 0
			}
		}, nil)
		pass(time.Second)
		sweeps, _ := j.calls()
		require.Equal(t, []string{"1s chat other room", "1s chat other", "1s chat"}, sweeps)
		require.Equal(t, SweepStats{Decays: 3000}, j.Stats())
		require.Equal(t, []time.Duration{3 * time.Second, 2 * time.Second, time.Second}, j.lags)

		j.set(func(w *store.ChangesSweep) { w.More = true }, nil)
		pass(time.Second)
		sweeps, _ = j.calls()
		require.Len(t, sweeps, sweepCalls, "others get their turn, whatever is left")
		j.set(func(w *store.ChangesSweep) { w.Begun = w.Namespace == "chat" }, nil)
		pass(time.Second)
		require.EqualValues(t, 1, j.Stats().Begun)
	})
}

func TestSweepLogsAnOutageOnce(t *testing.T) {
	inSweep(t, []string{"on1"}, func(j *sweepTest) {
		pass(500 * time.Millisecond)
		j.Add("chat")
		down := func(w *store.ChangesSweep) { w.Err = store.ErrUnavailable }
		j.set(down, nil)
		pass(10 * time.Second)
		require.Equal(t, 1, strings.Count(j.log.String(), "level=WARN"), j.log.String())
		j.set(down, store.ErrUnavailable)
		pass(2 * time.Minute)
		require.Equal(t, 2, strings.Count(j.log.String(), "level=WARN"), j.log.String())
		require.Contains(t, j.log.String(), "cannot record changes")
		j.set(func(*store.ChangesSweep) {}, nil)
		pass(10 * time.Second)
		j.set(down, nil)
		pass(10 * time.Second)
		require.Equal(t, 3, strings.Count(j.log.String(), "level=WARN"), "the next outage is another one")
		sweeps, _ := j.calls()
		require.Equal(t, "chat on1", strings.SplitN(sweeps[0], " ", 2)[1], "nothing is dropped in an outage")
	})
}

// TestSweepDecays: with a real store, a user decays in the feed without being asked for.
func TestSweepDecays(t *testing.T) {
	thresholds := lastseen.Thresholds{Green: 3 * time.Second, Yellow: 6 * time.Second}
	synctest.Test(t, func(t *testing.T) {
		s := openFile(t, 0, nil, nil)
		require.NoError(t, s.Register(t.Context(), []string{"chat"}))
		j := NewSweep(
			s, func() []string { return []string{"chat"} },
			func(string) feed.Settings { return feed.Settings{Mode: feed.On, Thresholds: thresholds} },
			slog.New(slog.DiscardHandler),
		)
		defer runSweep(t, j)()
		pass(100 * time.Millisecond)
		begin := &store.ChangesRead{Namespace: "chat", Limit: 1}
		s.ReadChanges(t.Context(), []*store.ChangesRead{begin})
		require.NoError(t, begin.Err)
		at := lastseen.InstantOf(time.Now())
		kit.Ping(t, s, "ann", at)
		pass(8 * time.Second)

		read := &store.ChangesRead{Namespace: "chat", After: begin.Positions, Limit: 10}
		s.ReadChanges(t.Context(), []*store.ChangesRead{read})
		require.NoError(t, read.Err)
		statuses := []lastseen.Status{}
		for _, c := range read.Changes {
			statuses = append(statuses, c.Status)
		}
		require.Equal(t, []lastseen.Status{lastseen.Green, lastseen.Yellow, lastseen.Grey}, statuses)
		require.Equal(t, SweepStats{Decays: 2}, j.Stats())
	})
}
