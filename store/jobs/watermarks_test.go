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

// advancedStore is a fake, so that a test can decide what an advance finds, and because its clock is that of a bubble.
type advancedStore struct {
	store.Store // nil: nothing else is called
	start       time.Time

	mu       sync.Mutex
	advances []string // "<second> <namespaces>" of each call
	records  []string // "<second> <namespace>"
	result   func(*store.ChangesAdvance)
	failing  error
}

func (s *advancedStore) second() string { return time.Since(s.start).Truncate(time.Second).String() }

func (s *advancedStore) Now(context.Context) (lastseen.Instant, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return lastseen.InstantOf(time.Now()), s.failing
}

func (s *advancedStore) RecordChanges(_ context.Context, namespace string, _ lastseen.Thresholds) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records = append(s.records, s.second()+" "+namespace)
	return s.failing
}

func (s *advancedStore) AdvanceChanges(_ context.Context, advances []*store.ChangesAdvance) {
	s.mu.Lock()
	defer s.mu.Unlock()
	call := []string{}
	for _, w := range advances {
		call = append(call, w.Namespace)
		s.result(w)
	}
	slices.Sort(call)
	s.advances = append(s.advances, s.second()+" "+strings.Join(call, " "))
}

func (s *advancedStore) set(result func(*store.ChangesAdvance), failing error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.result, s.failing, s.advances, s.records = result, failing, nil, nil
}

func (s *advancedStore) calls() (advances, records []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.advances), slices.Clone(s.records)
}

// watermarksTest runs the job. Namespaces whose names begin with "on" always have a feed.
type watermarksTest struct {
	*Watermarks
	*advancedStore
	log strings.Builder
	off atomic.Bool
	on  []string

	lagsMu sync.Mutex
	lags   []time.Duration
}

func inWatermarks(t *testing.T, on []string, test func(*watermarksTest)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
		s := &advancedStore{start: time.Now(), result: func(*store.ChangesAdvance) {}}
		j := &watermarksTest{advancedStore: s, on: on}
		settings := func(namespace string) feed.Settings {
			switch {
			case j.off.Load():
				return feed.Settings{Mode: feed.Off}
			case strings.HasPrefix(namespace, "on"):
				return feed.Settings{Mode: feed.On}
			}
			return feed.Settings{Mode: feed.Auto}
		}
		j.Watermarks = NewWatermarks(
			j.advancedStore, func() []string { return j.on }, settings, slog.New(slog.NewTextHandler(&j.log, nil)),
		)
		j.Observe = func(lag time.Duration) {
			j.lagsMu.Lock()
			defer j.lagsMu.Unlock()
			j.lags = append(j.lags, lag)
		}
		defer runWatermarks(t, j.Watermarks)()
		test(j)
	})
}

// runWatermarks runs the job until the function that it returns is called.
func runWatermarks(t *testing.T, j *Watermarks) (stop func()) {
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

func TestWatermarksEverySecond(t *testing.T) {
	inWatermarks(t, []string{"on1", "auto"}, func(j *watermarksTest) {
		pass(500 * time.Millisecond)
		j.Add("chat")
		pass(2 * time.Second)
		advances, records := j.calls()
		require.Equal(t, []string{"0s on1", "1s chat on1", "2s chat on1"}, advances)
		require.Equal(t, []string{"0s on1"}, records, "namespaces with auto are not recorded without watchers")
		pass(2 * time.Minute)
		_, records = j.calls()
		require.Equal(t, []string{"0s on1", "1m0s on1", "2m0s on1"}, records)
	})
}

func TestWatermarksDropsFeedsThatEnded(t *testing.T) {
	inWatermarks(t, []string{"on1"}, func(j *watermarksTest) {
		j.Add("chat")
		j.Add("room")
		pass(500 * time.Millisecond)
		j.set(func(w *store.ChangesAdvance) {
			if w.Namespace != "room" {
				w.Err = store.ErrNotRecorded
			}
		}, nil)
		pass(2 * time.Second)
		advances, records := j.calls()
		require.Equal(t, []string{"1s chat on1 room", "2s on1 room"}, advances)
		require.NotEmpty(t, records, "a feed that is always there begins again at once")
		require.Empty(t, j.log.String())

		j.Add("chat")
		pass(time.Second)
		advances, _ = j.calls()
		require.Equal(t, "3s chat on1 room", advances[2])
		j.off.Store(true)
		j.set(func(*store.ChangesAdvance) {}, nil)
		pass(3 * time.Second)
		advances, records = j.calls()
		require.Empty(t, advances)
		require.Empty(t, records)
	})
}

// TestWatermarksKeepsWhatIsAddedMeanwhile: an advance that began before a feed did says nothing about it.
func TestWatermarksKeepsWhatIsAddedMeanwhile(t *testing.T) {
	inWatermarks(t, nil, func(j *watermarksTest) {
		j.set(func(w *store.ChangesAdvance) {
			w.Err = store.ErrNotRecorded
			j.Add(w.Namespace)
		}, nil)
		j.Add("chat")
		pass(500 * time.Millisecond)
		j.set(func(*store.ChangesAdvance) {}, nil)
		pass(time.Second)
		advances, _ := j.calls()
		require.Equal(t, []string{"1s chat"}, advances)
	})
}

func TestWatermarksBacklog(t *testing.T) {
	inWatermarks(t, nil, func(j *watermarksTest) {
		pass(500 * time.Millisecond)
		j.Add("chat")
		j.Add("room")
		j.Add("other")
		left, others := 3, 2
		j.set(func(w *store.ChangesAdvance) {
			switch w.Namespace {
			case "chat":
				left--
				w.Transitions, w.Lag, w.More = 1000, time.Duration(left+1)*time.Second, left > 0
			case "other": // another process advances one of its shards, and this one another
				others--
				w.Elsewhere, w.More = true, others > 0
			}
		}, nil)
		pass(time.Second)
		advances, _ := j.calls()
		require.Equal(t, []string{"1s chat other room", "1s chat other", "1s chat"}, advances)
		require.Equal(t, WatermarkStats{Transitions: 3000}, j.Stats())
		require.Equal(t, []time.Duration{3 * time.Second, 2 * time.Second, time.Second}, j.lags)

		j.set(func(w *store.ChangesAdvance) { w.More = true }, nil)
		pass(time.Second)
		advances, _ = j.calls()
		require.Len(t, advances, advanceCalls, "others get their turn, whatever is left")
		j.set(func(w *store.ChangesAdvance) { w.Begun = w.Namespace == "chat" }, nil)
		pass(time.Second)
		require.EqualValues(t, 1, j.Stats().Begun)
	})
}

func TestWatermarksLogsAnOutageOnce(t *testing.T) {
	inWatermarks(t, []string{"on1"}, func(j *watermarksTest) {
		pass(500 * time.Millisecond)
		j.Add("chat")
		down := func(w *store.ChangesAdvance) { w.Err = store.ErrUnavailable }
		j.set(down, nil)
		pass(10 * time.Second)
		require.Equal(t, 1, strings.Count(j.log.String(), "level=WARN"), j.log.String())
		j.set(down, store.ErrUnavailable)
		pass(2 * time.Minute)
		require.Equal(t, 2, strings.Count(j.log.String(), "level=WARN"), j.log.String())
		require.Contains(t, j.log.String(), "cannot record changes")
		j.set(func(*store.ChangesAdvance) {}, nil)
		pass(10 * time.Second)
		j.set(down, nil)
		pass(10 * time.Second)
		require.Equal(t, 3, strings.Count(j.log.String(), "level=WARN"), "the next outage is another one")
		advances, _ := j.calls()
		require.Equal(t, "chat on1", strings.SplitN(advances[0], " ", 2)[1], "nothing is dropped in an outage")
	})
}

// TestWatermarksTransitions: with a real store, a user turns yellow and grey in the feed without being asked for.
func TestWatermarksTransitions(t *testing.T) {
	thresholds := lastseen.Thresholds{Green: 3 * time.Second, Yellow: 6 * time.Second}
	synctest.Test(t, func(t *testing.T) {
		s := openFile(t, 0, nil, nil)
		require.NoError(t, s.Register(t.Context(), []string{"chat"}))
		j := NewWatermarks(
			s, func() []string { return []string{"chat"} },
			func(string) feed.Settings { return feed.Settings{Mode: feed.On, Thresholds: thresholds} },
			slog.New(slog.DiscardHandler),
		)
		defer runWatermarks(t, j)()
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
		require.Equal(t, WatermarkStats{Transitions: 2}, j.Stats())
	})
}
