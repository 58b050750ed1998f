package memstore

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/availability"
	"github.com/lastseen/lastseen/store/storetest/kit"
)

// callTest is a store with calls, on a machine whose clock the test sets.
type callTest struct {
	*kit.Machine
	*Store
	t *testing.T
	n int // calls that were started
}

func newCallTest(t *testing.T) *callTest {
	m := &kit.Machine{}
	return &callTest{Machine: m, Store: open(t, optionsOf(m)), t: t}
}

// ring starts a call from alice to bob that rings for 30 seconds, and may be quiet for 60.
func (c *callTest) ring() lastseen.Call {
	c.t.Helper()
	c.n++
	step, err := c.StartCall(context.Background(), "chat", store.NewCall{
		ID: fmt.Sprint("call", c.n), From: "alice", To: "bob", Ring: 30 * time.Second, Quiet: time.Minute, Shown: true,
		Key: fmt.Sprint("key", c.n),
	})
	require.NoError(c.t, err)
	return step.Call
}

func (c *callTest) accept(id string) store.CallStep { return c.act(id, "bob", lastseen.Accept) }

func (c *callTest) act(id, user string, action lastseen.CallAction) store.CallStep {
	c.t.Helper()
	step, err := c.StepCall(context.Background(), "chat", store.CallAct{ID: id, User: user, Action: action})
	require.NoError(c.t, err)
	return step
}

func (c *callTest) expire() store.ExpiredCalls {
	c.t.Helper()
	expired, err := c.ExpireCalls(context.Background(), "chat")
	require.NoError(c.t, err)
	return expired
}

// watch lets time pass while calls are watched.
func (c *callTest) watch(d time.Duration) {
	for ; d > store.MaxCallGap/2; d -= store.MaxCallGap / 2 {
		c.Passed.Add(store.MaxCallGap / 2)
		require.Empty(c.t, c.expire().Steps)
	}
	c.Passed.Add(d)
}

func (c *callTest) state(id string) lastseen.CallState {
	c.t.Helper()
	call, err := store.ReadCall(context.Background(), c, "chat", id)
	require.NoError(c.t, err)
	return call.State
}

// TestCallsExpire at the very instant, and are forgotten at the very instant.
func TestCallsExpire(t *testing.T) {
	t.Parallel()
	c := newCallTest(t)
	call := c.ring()
	require.Equal(t, base.Add(30*time.Second), call.Expires)
	c.watch(30*time.Second - time.Millisecond)
	require.Equal(t, lastseen.Ringing, c.state(call.ID))
	require.Equal(t, store.ExpiredCalls{Calls: 1, Kept: 1, Next: time.Millisecond}, c.expire())
	c.Passed.Add(time.Millisecond)
	require.Equal(t, lastseen.Missed, c.state(call.ID))
	missed := c.expire()
	require.Len(t, missed.Steps, 1)
	require.Equal(t, base.Add(30*time.Second), missed.Steps[0].Call.Over)

	second := c.ring()
	accepted := c.accept(second.ID).Call
	require.Equal(t, base.Add(90*time.Second), accepted.Expires)
	c.watch(40 * time.Second)
	c.act(second.ID, "alice", lastseen.Alive)
	c.watch(20*time.Second - time.Millisecond)
	require.Equal(t, lastseen.Active, c.state(second.ID))
	heard, err := c.HearCalls(t.Context(), "chat", []store.CallHeard{{User: "bob"}})
	require.NoError(t, err)
	require.Empty(t, heard.Steps)
	c.watch(40 * time.Second)
	require.Equal(t, lastseen.Active, c.state(second.ID))
	c.Passed.Add(time.Millisecond)
	require.Equal(t, lastseen.Lost, c.state(second.ID), "the caller was heard a minute ago")
	lost := c.expire()
	require.Len(t, lost.Steps, 1)
	require.Equal(t, base.Add(130*time.Second), lost.Steps[0].Call.Over)

	c.watch(store.CallsKept - 100*time.Second - time.Millisecond)
	require.Equal(t, lastseen.Missed, c.state(call.ID))
	require.Equal(t, 2, c.expire().Kept)
	c.Passed.Add(time.Millisecond)
	require.Equal(t, 1, c.expire().Kept)
	_, err = store.ReadCall(t.Context(), c, "chat", call.ID)
	require.ErrorIs(t, err, store.ErrCallNotFound)
	c.n = 0
	require.Equal(t, lastseen.Ringing, c.ring().State, "the key is forgotten, too")
	c.act("call1", "alice", lastseen.End)
	c.watch(store.CallsKept + time.Millisecond)
	require.Zero(t, c.expire().Kept)
	require.Empty(t, c.names(), "nothing is left in memory")
}

// SetInCall implements [kit.InCallSetter].
func (s *Store) SetInCall(_ context.Context, namespace, user string, until lastseen.Instant) error {
	s.tables.mu.Lock()
	defer s.tables.mu.Unlock()
	s.setInCalls(namespace, []string{user}, func(string) lastseen.Instant { return until })
	return nil
}

func (c *callTest) names() []string {
	names, err := c.CallNamespaces(context.Background(), "", 10)
	require.NoError(c.t, err)
	return names
}

// TestCallsAndWrongClocks: a clock that is set neither ends a call nor keeps it.
func TestCallsAndWrongClocks(t *testing.T) {
	t.Parallel()
	const years = 30 * 365 * 24 * time.Hour
	for _, wrong := range []time.Duration{years, -years, time.Hour, -time.Hour} {
		c := newCallTest(t)
		call := c.ring()
		c.Passed.Add(time.Second)
		c.Wrong.Set(wrong)
		for range 5 { // the store follows the clock after a while
			c.watch(5 * time.Second)
			_, err := c.Now(t.Context())
			require.NoError(t, err)
			require.Empty(t, c.expire().Steps)
			require.Equal(t, lastseen.Ringing, c.state(call.ID))
		}
		c.watch(4 * time.Second)
		require.Equal(t, lastseen.Missed, c.state(call.ID))
		step := c.expire().Steps[0]
		now, err := c.Now(t.Context())
		require.NoError(t, err)
		require.LessOrEqual(t, step.Call.Over, now)
	}
}

// TestCallsSurviveGaps: time in which nobody watches calls does not count, beyond MaxCallGap.
func TestCallsSurviveGaps(t *testing.T) {
	t.Parallel()
	c := newCallTest(t)
	call := c.ring()
	c.Passed.Add(time.Hour)
	require.Equal(t, lastseen.Ringing, c.state(call.ID))
	require.Equal(t, store.ExpiredCalls{Calls: 1, Kept: 1, Next: store.MaxCallGap / 2}, c.expire())
	c.Passed.Add(store.MaxCallGap)
	require.Equal(t, lastseen.Ringing, c.state(call.ID))
	require.Empty(t, c.expire().Steps)
	c.Passed.Add(time.Hour)
	require.Len(t, c.expire().Steps, 1, "three gaps count for 30 seconds")
}

// TestMaxCalls: a namespace keeps MaxCalls calls. Those that are forgotten make room.
func TestMaxCalls(t *testing.T) {
	testenv.SkipWithRace(t, "there is one goroutine")
	t.Parallel()
	c := newCallTest(t)
	first := c.ring()
	c.act(first.ID, "bob", lastseen.Reject)
	table, ok := c.calls.tables.Get("chat")
	require.True(t, ok)
	for i := range store.MaxCalls - 2 { // which are only counted
		table.records[fmt.Sprint("full", i)] = nil
	}
	last := c.ring()
	another := store.NewCall{ID: "another", From: "carol", To: "dave", Ring: time.Minute, Quiet: time.Minute}
	require.ErrorIs(t, startCall(t.Context(), c.Store, another), store.ErrTooManyCalls)
	c.n--
	require.Equal(t, last, c.ring(), "the same key returns the call that it started")
	c.act(last.ID, "bob", lastseen.Reject)
	require.ErrorIs(t, startCall(t.Context(), c.Store, another), store.ErrTooManyCalls, "calls that are over count")

	c.watch(store.CallsKept)
	require.Equal(t, store.MaxCalls-2, c.expire().Kept)
	require.NoError(t, startCall(t.Context(), c.Store, another))
}

func startCall(ctx context.Context, s *Store, c store.NewCall) error {
	_, err := s.StartCall(ctx, "chat", c)
	return err
}

// TestPurgeInCalls: what ended is deleted, once it is in the feed.
func TestPurgeInCalls(t *testing.T) {
	t.Parallel()
	for _, staged := range []bool{false, true} {
		f := newFeedTest(t, staged)
		end := f.Instant() + 100
		set := func(user string, until lastseen.Instant) {
			require.NoError(t, f.SetInCall(t.Context(), "chat", user, until))
		}
		ping(t, f.Store, "user-1", f.Instant())
		for n := range 100 {
			set(fmt.Sprint("user-", n), end)
		}
		purge := func() {
			for range 20 {
				set("other", end.Add(time.Hour))
			}
		}
		people := f.tables.index.usersOf("chat").people
		f.Passed.Add(10 * time.Second)
		purge()
		require.Len(t, people.inCalls, 101, "the feed has to have them")
		require.Equal(t, 1, f.sweep(f.Instant()).Decays)
		set("user-2", end.Add(time.Hour))
		purge()
		require.Len(t, people.inCalls, 2)
		require.Equal(t, 2, people.callEnds.Len())
		require.Empty(t, people.details)
		set("user-2", 0)
		set("other", 0)
		require.Empty(t, people.inCalls)
		require.Zero(t, people.callEnds.Len())
	}
}

// TestInCallsEndWithTheNamespace: a namespace that is removed and exists again has nobody in a call, whatever else is
// kept of it.
func TestInCallsEndWithTheNamespace(t *testing.T) {
	t.Parallel()
	s := open(t, Options{})
	availability.SayIn(t, s, "chat", "alice", invisible, base)
	require.NoError(t, s.SetInCall(t.Context(), "chat", "bob", base))
	_, err := s.Trim(t.Context(), "chat", store.TrimQuery{Age: time.Millisecond, Now: s.tables.readClock(), All: true})
	require.NoError(t, err)
	require.True(t, kit.RemoveEmpty(t, s, "chat"))
	require.False(t, s.tables.index.usersOf("chat").people.empty())
	ping(t, s, "bob", base)
	_, details, err := s.Describe(t.Context(), "chat", []string{"bob"})
	require.NoError(t, err)
	require.Empty(t, details)
}
