package main

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// shifted is a store whose clock a test sets, as that of a Redis: Trim reads it, too.
type shifted struct {
	store.Store
	by time.Duration
}

func (s *shifted) Now(ctx context.Context) (lastseen.Instant, error) {
	now, err := s.Store.Now(ctx)
	return now.Add(s.by), err
}

func (s *shifted) Trim(ctx context.Context, namespace string, q store.TrimQuery) (store.TrimResult, error) {
	q.Now, q.Age = q.Now.Add(-s.by), q.Age-s.by
	if q.Age <= 0 {
		return store.TrimResult{}, fmt.Errorf("age %s", q.Age)
	}
	return s.Store.Trim(ctx, namespace, q)
}

// TestJanitorWaitsForTheClock: when the store's clock moves, ahead or back, nobody is deleted until it has been steady
// for ten minutes. That is logged once.
func TestJanitorWaitsForTheClock(t *testing.T) {
	for _, by := range []time.Duration{20 * time.Minute, -20 * time.Minute, -50 * 365 * 24 * time.Hour, 2 * time.Second} {
		j := newJanitorTest(t, time.Hour)
		s := &shifted{Store: j.openFile(t)}
		j.store = s
		ping(t, s, "chat", map[string]time.Duration{"young": 0, "old": 50 * time.Minute})
		j.meantime = func() {
			switch at := j.monotonic(); {
			case at == sweepEvery:
				s.by = by
			case at == 6*sweepEvery:
				s.by = 0 // moves again, while the janitor waits
			case at < 6*sweepEvery+steadyFor:
				requireUsers(t, s, "chat", "young", "old")
			}
		}
		j.run(j.ctx)
		requireUsers(t, s, "chat", "young")
		for _, line := range []string{"clock moved: nobody is deleted", "are deleted again"} {
			require.Equal(t, 1, strings.Count(j.log.String(), line), "%s: %s", by, j.log.String())
		}
	}
}

// TestJanitorWaitsAtStart: the machine's clock is wrong when the server starts, and somebody pings before it is set. By
// that clock all others are past their retention.
func TestJanitorWaitsAtStart(t *testing.T) {
	for _, wrong := range []time.Duration{1000 * time.Hour, 0} {
		j := newJanitorTest(t, 2*steadyFor)
		j.wrong.Store(int64(wrong))
		s := j.openFile(t)
		ping(t, s, "chat", map[string]time.Duration{"young": 0, "old": 2 * time.Hour})
		now, err := s.Now(j.ctx)
		require.NoError(t, err)
		_, err = s.Ping(j.ctx, "chat", []store.Sighting{{User: "early", At: now}})
		require.NoError(t, err)
		served := newJanitor(s, &runtimeConfig{}, j.logger) // as serve does
		served.retention, served.configured, served.pause, served.monotonic = j.retention, j.configured, j.pause, j.monotonic
		j.meantime = func() {
			if j.monotonic() < steadyFor {
				requireUsers(t, s, "chat", "young", "old", "early")
			}
			j.wrong.Store(0)
		}
		served.run(j.ctx)
		requireUsers(t, s, "chat", "young", "early")
	}
}

// TestJanitorBelievesTheStore: a clock that moved between the janitor's reading and the store's own.
func TestJanitorBelievesTheStore(t *testing.T) {
	j := newJanitorTest(t, 15*sweepEvery)
	s := j.openFile(t)
	ping(t, s, "chat", map[string]time.Duration{"young": 0, "old": 2 * time.Hour})
	w := j.watch(s)
	w.fail["chat"] = fmt.Errorf("%w: for once", store.ErrClockMoved)
	j.meantime = func() { delete(w.fail, "chat") }
	j.run(j.ctx)
	require.Equal(t, []time.Duration{0, steadyFor}, w.trims["chat"][:2])
	require.Equal(t, 1, strings.Count(j.log.String(), "for once"))
}

// TestJanitorEmptiesLate: everyone in a namespace is deleted only when every sweep for ten minutes would have done so.
func TestJanitorEmptiesLate(t *testing.T) {
	j := newJanitorTest(t, 30*sweepEvery)
	s := j.openFile(t)
	old := map[string]time.Duration{}
	for n := range 2*store.MaxTrim + 1 {
		old[fmt.Sprint(n)] = 2 * time.Hour
	}
	for _, room := range []string{"left", "visited"} {
		ping(t, s, room, old)
	}
	alive := func(room string) bool {
		newest, err := s.Newest(j.ctx, room)
		require.NoError(t, err)
		return newest > 0
	}
	emptied := map[string]time.Duration{}
	j.meantime = func() {
		at := j.monotonic()
		if at == 5*sweepEvery {
			ping(t, s, "visited", map[string]time.Duration{"guest": 0})
		}
		if at == 6*sweepEvery {
			require.NoError(t, s.Forget(j.ctx, "visited", "guest"))
			ping(t, s, "visited", map[string]time.Duration{"another": 3 * time.Hour})
		}
		for _, room := range []string{"left", "visited"} {
			if _, known := emptied[room]; !known && !alive(room) {
				emptied[room] = at
			}
		}
	}
	j.run(j.ctx)
	require.InDelta(t, steadyFor, emptied["left"], float64(2*sweepEvery))
	require.GreaterOrEqual(t, emptied["left"], steadyFor)
	require.GreaterOrEqual(t, emptied["visited"], 6*sweepEvery+steadyFor)
	require.Less(t, emptied["visited"], 9*sweepEvery+steadyFor)
	require.Equal(t, 2, strings.Count(j.log.String(), "retention would delete everyone"), j.log.String())
}

// TestJanitorForgetsWaitingWithItsLease: what another server saw meanwhile, this one does not know.
func TestJanitorForgetsWaitingWithItsLease(t *testing.T) {
	j := newJanitorTest(t, 19*sweepEvery)
	s := j.openFile(t)
	ping(t, s, "chat", map[string]time.Duration{"old": 2 * time.Hour})
	w := j.watch(s)
	w.lease = func() (bool, error) { return j.monotonic()/sweepEvery != 9, nil }
	j.run(j.ctx)
	requireUsers(t, s, "chat", "old")
}

// TestJanitorRemovesEmptyNamespaces, also where no namespace has a retention.
func TestJanitorRemovesEmptyNamespaces(t *testing.T) {
	for _, keep := range []time.Duration{0, time.Hour} {
		j := newJanitorTest(t, 30*sweepEvery)
		s := j.openFile(t)
		j.retention = func(string) time.Duration { return keep }
		j.configured = func(namespace string) bool { return namespace == "configured" }
		require.NoError(t, s.Register(j.ctx, []string{"configured", "empty"}))
		for n := range sweepPage + 1 {
			room := fmt.Sprintf("room-%03d", n)
			ping(t, s, room, map[string]time.Duration{"gone": 0})
			require.NoError(t, s.Forget(j.ctx, room, "gone"))
		}
		ping(t, s, "full", map[string]time.Duration{"young": 0})
		ping(t, s, "old", map[string]time.Duration{"old": 2 * time.Hour})
		j.run(j.ctx)
		infos, err := s.Namespaces(context.Background(), "", 10)
		require.NoError(t, err)
		want := []string{"configured", "full", "old"}
		if keep > 0 {
			want = want[:2] // emptied, and then removed
		}
		var got []string
		for _, info := range infos {
			got = append(got, info.Name)
		}
		require.Equal(t, want, got)
	}
}

// TestJanitorKeepsToItsMinute with very many namespaces, and comes to each evenly.
func TestJanitorKeepsToItsMinute(t *testing.T) {
	const rooms = 100_000
	j := newJanitorTest(t, 2*sweepEvery)
	s := j.openFile(t)
	for n := range rooms {
		ping(t, s, fmt.Sprintf("room-%05d", n), map[string]time.Duration{"young": 0})
	}
	w := j.watch(s)
	j.run(j.ctx)
	swept := len(w.trims) // a failure does not show them all
	require.Equal(t, rooms, swept)
	at := map[time.Duration]int{}
	for room, trims := range w.trims {
		require.Len(t, trims, 2)
		require.InDelta(t, sweepEvery, trims[1]-trims[0], float64(2*time.Second), room)
		at[trims[0]]++
	}
	for _, n := range at {
		require.LessOrEqual(t, n, 10*rooms*int(sweepPause)/int(sweepEvery), "at one moment")
	}
}

// TestJanitorsCrew looks after each of many namespaces once, several at a time.
func TestJanitorsCrew(t *testing.T) {
	j := newJanitorTest(t, time.Hour)
	s := j.openFile(t)
	j.crew = sweepCrew
	for n := range manyRooms {
		ping(t, s, fmt.Sprintf("room-%05d", n), map[string]time.Duration{"young": 0, "old": 2 * time.Hour})
	}
	w := j.watch(s)
	var atOnce, most atomic.Int64
	w.during = func() {
		most.Store(max(most.Load(), atOnce.Add(1)))
		time.Sleep(10 * time.Microsecond) // so that others come
		atOnce.Add(-1)
	}
	j.pause = func(context.Context, time.Duration) {}
	require.True(t, j.holds(j.ctx))
	j.round(j.ctx, 0)
	swept := len(w.trims) // a failure does not show them all
	require.Equal(t, manyRooms, swept)
	for room, trims := range w.trims {
		require.Len(t, trims, 1)
		requireUsers(t, s, room, "young")
	}
	require.Greater(t, most.Load(), int64(1))
}
