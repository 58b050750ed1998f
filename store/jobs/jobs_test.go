package jobs

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/storetest/kit"
	"github.com/lastseen/lastseen/store/storetest/redistest"
	"github.com/lastseen/lastseen/store/storetest/redistest/stores"
)

func TestRunnerSpreadsNamespaces(t *testing.T) {
	j := newRetentionTest(t, 2*roundEvery)
	s := j.openFile(t)
	for _, namespace := range []string{"a", "b", "c", "d"} {
		ping(t, s, namespace, map[string]time.Duration{"young": 0})
	}
	w := j.watch(s)
	j.Run(j.ctx)
	require.Equal(t, map[string][]time.Duration{
		"a": {0, time.Minute}, "b": {15 * time.Second, 75 * time.Second},
		"c": {30 * time.Second, 90 * time.Second}, "d": {45 * time.Second, 105 * time.Second},
	}, w.trims)
	require.Equal(t, 1, w.released, "when it stops, it gives up its lease")
}

// TestRunnerRenewsItsLease during a long deletion, and stops when another server has it.
func TestRunnerRenewsItsLease(t *testing.T) {
	j := newRetentionTest(t, time.Hour)
	s := j.openFile(t)
	w := j.watch(s)
	ping(t, s, "chat", map[string]time.Duration{"young": 0})
	w.endless = true // a real store would need 900 times 1000 users
	w.lease = func() (bool, error) { return len(w.leases) < 4, nil }
	j.pause = func(ctx context.Context, d time.Duration) {
		if d != trimPause {
			j.cancel()
		}
		j.pass(ctx, d)
	}
	j.Run(j.ctx)
	require.Equal(t, []time.Duration{0, leaseRenew, 2 * leaseRenew, 3 * leaseRenew}, w.leases[:4])
	require.Zero(t, w.released, "there was none to give up")
	require.Equal(t, 3*leaseRenew-trimPause, w.trims["chat"][len(w.trims["chat"])-1], "nothing after it was lost")
}

// TestRunnerSkipsABrokenNamespace: those after it are still visited, unless nothing can be reached.
func TestRunnerSkipsABrokenNamespace(t *testing.T) {
	for _, c := range []struct {
		err, ready error
		back       bool // soon
		reached    bool
	}{
		{err: store.ErrWrongType, reached: true},
		{err: store.ErrUnavailable, reached: true},
		{err: store.ErrUnavailable, ready: store.ErrUnavailable, reached: false},
		{err: store.ErrUnavailable, ready: store.ErrUnavailable, back: true, reached: true},
	} {
		j := newRetentionTest(t, roundEvery)
		s := j.openFile(t)
		for _, namespace := range []string{"a", "b"} {
			ping(t, s, namespace, map[string]time.Duration{"young": 0})
		}
		w := j.watch(s)
		w.fail["a"], w.ready = c.err, c.ready
		j.meantime = func() {
			if c.back {
				w.ready = nil
			}
		}
		j.Run(j.ctx)
		require.Equal(t, c.reached, len(w.trims["b"]) > 0)
		require.Contains(t, j.log.String(), "namespace=a error=\""+c.err.Error())
	}
}

// TestTwoServersTakeTurns on one Redis: only the holder of the lease deletes; when it has stopped, the other one
// does. That a lease ends by itself is Redis' own doing.
func TestTwoServersTakeTurns(t *testing.T) {
	url := redistest.Start(t)
	var jobs []*Retention
	for range 2 {
		r := newSteadyRetention(stores.New(t, redisstore.Options{URL: url}), slog.New(slog.DiscardHandler))
		r.pause = func(context.Context, time.Duration) {}
		jobs = append(jobs, r)
	}
	first, second := jobs[0], jobs[1]
	once := func(r *Retention) { require.NoError(t, r.round(t.Context())) }
	old := map[string]time.Duration{"old": 0} // in 2023
	kit.Ping(t, first.store, "young", lastseen.InstantOf(time.Now()))
	ping(t, first.store, "chat", old)
	once(first)
	requireUsers(t, first.store, "chat", "young")

	ping(t, first.store, "chat", old)
	once(second)
	requireUsers(t, first.store, "chat", "young", "old")
	once(first)
	requireUsers(t, first.store, "chat", "young")

	left := stores.NewClient(t, url).PTTL(t.Context(), "presence::lease:janitor").Val()
	require.Greater(t, left, time.Duration(0))
	require.LessOrEqual(t, left, leaseTime)

	ping(t, first.store, "chat", old)
	first.release(t.Context()) // as when it stops
	require.Eventually(t, func() bool { return second.hasLease(t.Context()) }, time.Minute, time.Millisecond)
	once(second)
	requireUsers(t, first.store, "chat", "young")
	first.release(t.Context())
	require.False(t, first.hasLease(t.Context()), "what it does not hold it does not give up")
}

// TestRunnerKeepsToItsMinute with very many namespaces, and visits them evenly.
func TestRunnerKeepsToItsMinute(t *testing.T) {
	namespaces := testenv.Choose(100_000, 10_000)
	j := newRetentionTest(t, 2*roundEvery)
	s := j.openFile(t)
	for n := range namespaces {
		ping(t, s, fmt.Sprintf("room-%05d", n), map[string]time.Duration{"young": 0})
	}
	w := j.watch(s)
	j.Run(j.ctx)
	trimmed := len(w.trims) // a failure does not show them all
	require.Equal(t, namespaces, trimmed)
	at := map[time.Duration]int{}
	for namespace, trims := range w.trims {
		require.Len(t, trims, 2)
		require.InDelta(t, roundEvery, trims[1]-trims[0], float64(2*time.Second), namespace)
		at[trims[0]]++
	}
	for _, n := range at {
		require.LessOrEqual(t, n, 10*namespaces*int(shortestPause)/int(roundEvery), "at one moment")
	}
}

// TestRunnerVisitsSeveralAtOnce looks after each of many namespaces once, several at a time.
func TestRunnerVisitsSeveralAtOnce(t *testing.T) {
	j := newRetentionTest(t, time.Hour)
	s := j.openFile(t)
	j.workers = workers
	for n := range manyNamespaces {
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
	require.NoError(t, j.round(j.ctx))
	trimmed := len(w.trims) // a failure does not show them all
	require.Equal(t, manyNamespaces, trimmed)
	for namespace, trims := range w.trims {
		require.Len(t, trims, 1)
		requireUsers(t, s, namespace, "young")
	}
	require.Greater(t, most.Load(), int64(1))
}
