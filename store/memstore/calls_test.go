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
	callstest "github.com/lastseen/lastseen/store/storetest/calls"
	"github.com/lastseen/lastseen/store/storetest/kit"
)

// callTest is a store with calls, on a machine whose clock the test sets.
type callTest struct {
	*kit.Machine
	*callstest.Calling
	t   *testing.T
	mem *Store
}

func newCallTest(t *testing.T) *callTest {
	m := &kit.Machine{}
	s := open(t, optionsOf(m))
	return &callTest{Machine: m, Calling: callstest.NewCalling(t, s), t: t, mem: s}
}

// call returns a call from alice to bob that rings for 30 seconds, and has a timeout of 60.
func (c *callTest) call() store.NewCall {
	call := c.Call("alice", "bob")
	call.Ring, call.Timeout, call.Key = 30*time.Second, time.Minute, call.ID
	return call
}

func (c *callTest) state(id string) lastseen.CallState { return c.Read(id).State }

// watch lets time pass while calls are watched.
func (c *callTest) watch(d time.Duration) {
	for ; d > store.MaxCallGap/2; d -= store.MaxCallGap / 2 {
		c.Passed.Add(store.MaxCallGap / 2)
		require.Empty(c.t, c.Expire().Steps)
	}
	c.Passed.Add(d)
}

// TestCallsExpire at the very instant, and are forgotten at the very instant.
func TestCallsExpire(t *testing.T) {
	t.Parallel()
	c := newCallTest(t)
	first := c.call()
	call := c.Begin(first)
	require.Equal(t, base.Add(30*time.Second), call.Expires)
	c.watch(30*time.Second - time.Millisecond)
	require.Equal(t, lastseen.Ringing, c.state(call.ID))
	require.Equal(t, store.ExpiredCalls{Calls: 1, Kept: 1, Next: time.Millisecond}, c.Expire())
	c.Passed.Add(time.Millisecond)
	require.Equal(t, lastseen.Missed, c.state(call.ID))
	missed := c.Expire()
	require.Len(t, missed.Steps, 1)
	require.Equal(t, base.Add(30*time.Second), missed.Steps[0].Call.Over)

	second := c.Accepted(c.call())
	require.Equal(t, base.Add(90*time.Second), second.Expires)
	c.watch(40 * time.Second)
	_, err := c.StepCall(t.Context(), "chat", store.CallAct{ID: second.ID, User: "alice", Action: lastseen.Alive})
	require.NoError(t, err)
	c.watch(20*time.Second - time.Millisecond)
	require.Equal(t, lastseen.Active, c.state(second.ID))
	require.Empty(t, c.KeepAlive("bob"))
	c.watch(40 * time.Second)
	require.Equal(t, lastseen.Active, c.state(second.ID))
	c.Passed.Add(time.Millisecond)
	require.Equal(t, lastseen.Lost, c.state(second.ID), "the caller was active a minute ago")
	lost := c.Expire()
	require.Len(t, lost.Steps, 1)
	require.Equal(t, base.Add(130*time.Second), lost.Steps[0].Call.Over)

	c.watch(store.CallsKept - 100*time.Second - time.Millisecond)
	require.Equal(t, lastseen.Missed, c.state(call.ID))
	require.Equal(t, 2, c.Expire().Kept)
	c.Passed.Add(time.Millisecond)
	require.Equal(t, 1, c.Expire().Kept)
	c.Unknown(call.ID)
	c.Begin(first) // its key is forgotten, too
	c.Act(first.ID, "alice", lastseen.End)
	c.watch(store.CallsKept + time.Millisecond)
	require.Zero(t, c.Expire().Kept)
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
		call := c.Begin(c.call())
		c.Passed.Add(time.Second)
		c.Wrong.Set(wrong)
		for range 5 { // the store follows the clock after a while
			c.watch(5 * time.Second)
			_, err := c.Now(t.Context())
			require.NoError(t, err)
			require.Empty(t, c.Expire().Steps)
			require.Equal(t, lastseen.Ringing, c.state(call.ID))
		}
		c.watch(4 * time.Second)
		require.Equal(t, lastseen.Missed, c.state(call.ID))
		step := c.Expire().Steps[0]
		now, err := c.Now(t.Context())
		require.NoError(t, err)
		require.LessOrEqual(t, step.Call.Over, now)
	}
}

// TestCallsSurviveGaps: time in which nobody watches calls does not count, beyond MaxCallGap.
func TestCallsSurviveGaps(t *testing.T) {
	t.Parallel()
	c := newCallTest(t)
	call := c.Begin(c.call())
	c.Passed.Add(time.Hour)
	require.Equal(t, lastseen.Ringing, c.state(call.ID))
	require.Equal(t, store.ExpiredCalls{Calls: 1, Kept: 1, Next: store.MaxCallGap / 2}, c.Expire())
	c.Passed.Add(store.MaxCallGap)
	require.Equal(t, lastseen.Ringing, c.state(call.ID))
	require.Empty(t, c.Expire().Steps)
	c.Passed.Add(time.Hour)
	require.Len(t, c.Expire().Steps, 1, "three gaps count for 30 seconds")
}

// TestMaxCalls: a namespace keeps MaxCalls calls. Those that are forgotten make room.
func TestMaxCalls(t *testing.T) {
	testenv.SkipWithRace(t, "there is one goroutine")
	t.Parallel()
	c := newCallTest(t)
	c.Act(c.Begin(c.call()).ID, "bob", lastseen.Reject)
	table, ok := c.mem.calls.tables.Get("chat")
	require.True(t, ok)
	for i := range store.MaxCalls - 2 { // which are only counted
		table.records[fmt.Sprint("full", i)] = nil
	}
	last := c.call()
	begun := c.Begin(last)
	another := store.NewCall{ID: "another", From: "carol", To: "dave", Ring: time.Minute, Timeout: time.Minute}
	require.ErrorIs(t, startCall(t.Context(), c.Store, another), store.ErrTooManyCalls)
	again, err := c.StartCall(t.Context(), "chat", last)
	require.NoError(t, err)
	require.Equal(t, begun, again.Call, "the same key returns the call that it started")
	c.Act(last.ID, "bob", lastseen.Reject)
	require.ErrorIs(t, startCall(t.Context(), c.Store, another), store.ErrTooManyCalls, "calls that have ended count")

	c.watch(store.CallsKept)
	require.Equal(t, store.MaxCalls-2, c.Expire().Kept)
	require.NoError(t, startCall(t.Context(), c.Store, another))
}

func startCall(ctx context.Context, s store.Store, c store.NewCall) error {
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
		table := f.tables.index.usersOf("chat").availability
		f.Passed.Add(10 * time.Second)
		purge()
		require.Len(t, table.inCalls, 101, "the feed has to have them")
		require.Equal(t, 1, f.advance(f.Instant()).Transitions)
		set("user-2", end.Add(time.Hour))
		purge()
		require.Len(t, table.inCalls, 2)
		require.Equal(t, 2, table.callEnds.Len())
		require.Empty(t, table.details)
		set("user-2", 0)
		set("other", 0)
		require.Empty(t, table.inCalls)
		require.Zero(t, table.callEnds.Len())
	}
}

// TestInCallsEndWithTheNamespace: a namespace that is removed and exists again has nobody in a call, whatever else is
// kept of it.
func TestInCallsEndWithTheNamespace(t *testing.T) {
	t.Parallel()
	s := open(t, Options{})
	availability.SetIn(t, s, "chat", "alice", invisible, base)
	require.NoError(t, s.SetInCall(t.Context(), "chat", "bob", base))
	_, err := s.Trim(t.Context(), "chat", store.TrimQuery{Age: time.Millisecond, Now: s.tables.readClock(), All: true})
	require.NoError(t, err)
	require.True(t, kit.RemoveEmpty(t, s, "chat"))
	require.False(t, s.tables.index.usersOf("chat").availability.empty())
	ping(t, s, "bob", base)
	_, details, err := s.Describe(t.Context(), "chat", []string{"bob"})
	require.NoError(t, err)
	require.Empty(t, details)
}
