package jobs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// shiftedClock is a store whose clock a test sets, as that of a Redis: Trim reads it, too.
type shiftedClock struct {
	store.Store
	by time.Duration
}

func (s *shiftedClock) Now(ctx context.Context) (lastseen.Instant, error) {
	now, err := s.Store.Now(ctx)
	return now.Add(s.by), err
}

func (s *shiftedClock) Trim(ctx context.Context, namespace string, q store.TrimQuery) (store.TrimResult, error) {
	q.Now, q.Age = q.Now.Add(-s.by), q.Age-s.by
	if q.Age <= 0 {
		return store.TrimResult{}, fmt.Errorf("age %s", q.Age)
	}
	return s.Store.Trim(ctx, namespace, q)
}

// TrimContacts reckons by the true clock, by which contacts are too young while this one is ahead.
func (s *shiftedClock) TrimContacts(
	ctx context.Context, namespace string, q store.TrimQuery,
) (store.ContactsTrimResult, error) {
	q.Now, q.Age = q.Now.Add(-s.by), max(1, q.Age-s.by)
	return s.Store.TrimContacts(ctx, namespace, q)
}

// TestRetentionWaitsForTheClock: when the store's clock moves, ahead or back, nobody is deleted until it has been
// steady for ten minutes. That is logged once.
func TestRetentionWaitsForTheClock(t *testing.T) {
	const years = 50 * 365 * 24 * time.Hour
	for _, by := range []time.Duration{20 * time.Minute, -20 * time.Minute, -years, 2 * time.Second} {
		j := newRetentionTest(t, time.Hour)
		s := &shiftedClock{Store: j.openFile(t)}
		j.store = s
		ping(t, s, "chat", map[string]time.Duration{"young": 0, "old": 50 * time.Minute})
		j.meantime = func() {
			switch at := j.Monotonic(); {
			case at == roundEvery:
				s.by = by
			case at == 6*roundEvery:
				s.by = 0 // moves again, while the job waits
			case at < 6*roundEvery+steadyFor:
				requireUsers(t, s, "chat", "young", "old")
			}
		}
		j.Run(j.ctx)
		requireUsers(t, s, "chat", "young")
		for _, line := range []string{"clock moved: nothing is deleted", "is deleted again"} {
			require.Equal(t, 1, strings.Count(j.log.String(), line), "%s: %s", by, j.log.String())
		}
	}
}

// TestRetentionWaitsAtStart: the machine's clock is wrong when the server starts, and a user pings before it is set. By
// that clock all others are past their retention.
func TestRetentionWaitsAtStart(t *testing.T) {
	for _, wrong := range []time.Duration{1000 * time.Hour, 0} {
		j := newRetentionTest(t, 2*steadyFor)
		j.Wrong.Set(wrong)
		s := j.openFile(t)
		ping(t, s, "chat", map[string]time.Duration{"young": 0, "old": 2 * time.Hour})
		now, err := s.Now(j.ctx)
		require.NoError(t, err)
		_, err = s.Ping(j.ctx, "chat", []store.PresenceEvent{{User: "early", At: now}})
		require.NoError(t, err)
		served := NewRetention(s, j.rules, j.logger) // as the server does
		served.pause, served.monotonic = j.pause, j.Monotonic
		j.meantime = func() {
			if j.Monotonic() < steadyFor {
				requireUsers(t, s, "chat", "young", "old", "early")
			}
			j.Wrong.Set(0)
		}
		served.Run(j.ctx)
		requireUsers(t, s, "chat", "young", "early")
	}
}

// TestRetentionUsesTheStoresClock: a clock that moved between the job's reading and the store's own.
func TestRetentionUsesTheStoresClock(t *testing.T) {
	j := newRetentionTest(t, 15*roundEvery)
	s := j.openFile(t)
	ping(t, s, "chat", map[string]time.Duration{"young": 0, "old": 2 * time.Hour})
	w := j.watch(s)
	w.fail["chat"] = fmt.Errorf("%w: for once", store.ErrClockMoved)
	j.meantime = func() { delete(w.fail, "chat") }
	j.Run(j.ctx)
	require.Equal(t, []time.Duration{0, steadyFor}, w.trims["chat"][:2])
	require.Equal(t, 1, strings.Count(j.log.String(), "for once"))
}

// TestRetentionEmptiesLate: everyone in a namespace is deleted only when every round for ten minutes would have done
// so.
func TestRetentionEmptiesLate(t *testing.T) {
	j := newRetentionTest(t, 30*roundEvery)
	s := j.openFile(t)
	old := map[string]time.Duration{}
	addOld(old, 2*store.MaxTrim+1)
	for _, namespace := range []string{"left", "visited"} {
		ping(t, s, namespace, old)
	}
	alive := func(namespace string) bool {
		newest, err := s.Newest(j.ctx, namespace)
		require.NoError(t, err)
		return newest > 0
	}
	emptied := map[string]time.Duration{}
	j.meantime = func() {
		at := j.Monotonic()
		if at == 5*roundEvery {
			ping(t, s, "visited", map[string]time.Duration{"guest": 0})
		}
		if at == 6*roundEvery {
			require.NoError(t, s.Forget(j.ctx, "visited", "guest"))
			ping(t, s, "visited", map[string]time.Duration{"another": 3 * time.Hour})
		}
		for _, namespace := range []string{"left", "visited"} {
			if _, known := emptied[namespace]; !known && !alive(namespace) {
				emptied[namespace] = at
			}
		}
	}
	j.Run(j.ctx)
	require.InDelta(t, steadyFor, emptied["left"], float64(2*roundEvery))
	require.GreaterOrEqual(t, emptied["left"], steadyFor)
	require.GreaterOrEqual(t, emptied["visited"], 6*roundEvery+steadyFor)
	require.Less(t, emptied["visited"], 9*roundEvery+steadyFor)
	require.Equal(t, 2, strings.Count(j.log.String(), "retention would delete everyone"), j.log.String())
}

// TestRetentionForgetsWaitingWithItsLease: this server does not know what another one saw in the meantime.
func TestRetentionForgetsWaitingWithItsLease(t *testing.T) {
	j := newRetentionTest(t, 19*roundEvery)
	s := j.openFile(t)
	ping(t, s, "chat", map[string]time.Duration{"old": 2 * time.Hour})
	w := j.watch(s)
	w.lease = func() (bool, error) { return j.Monotonic()/roundEvery != 9, nil }
	j.Run(j.ctx)
	requireUsers(t, s, "chat", "old")
}

// TestHeldNamespaces: the wait of a namespace goes on while each round notes it in the end, as when a call deletes
// users of one shard and the next call finds only users to keep.
func TestHeldNamespaces(t *testing.T) {
	h := newBackoffs("would delete everyone")
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	for at := time.Duration(0); at < steadyFor; at += roundEvery {
		require.False(t, h.longEnough("chat", at))
		h.note("chat", false, at)
		h.note("chat", true, at)
		h.endRound(logger)
	}
	require.True(t, h.longEnough("chat", steadyFor))
	require.Equal(t, 1, strings.Count(log.String(), "would delete everyone"))
	h.note("chat", true, steadyFor)
	h.note("chat", false, steadyFor)
	h.endRound(logger)
	require.False(t, h.longEnough("chat", steadyFor+roundEvery), "one round would not")
}

// unlisted is a store that cannot list its namespaces for a while.
type unlisted struct {
	*shiftedClock
	down bool
}

func (s *unlisted) Namespaces(ctx context.Context, after string, limit int) ([]store.NamespaceInfo, error) {
	if s.down {
		return nil, errors.New("cannot list")
	}
	return s.shiftedClock.Namespaces(ctx, after, limit)
}

// TestRetentionForgetsWaitingWithTheClock: what rounds found before the clock moved says nothing about the time after
// it, even if no round visited a namespace while the clock was not steady.
func TestRetentionForgetsWaitingWithTheClock(t *testing.T) {
	j := newRetentionTest(t, 24*roundEvery)
	s := &unlisted{shiftedClock: &shiftedClock{Store: j.openFile(t)}}
	j.store = s
	ping(t, s, "chat", map[string]time.Duration{"old": 2 * time.Hour})
	j.meantime = func() {
		switch at := j.Monotonic(); at {
		case 5 * roundEvery:
			s.by, s.down = 2*time.Second, true
		case 5*roundEvery + steadyFor + roundEvery:
			s.down = false
		}
	}
	j.Run(j.ctx)
	require.Contains(t, j.log.String(), "is deleted again")
	requireUsers(t, s, "chat", "old")
}
