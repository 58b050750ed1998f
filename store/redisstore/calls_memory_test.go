package redisstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/storetest/redistest"
	"github.com/lastseen/lastseen/store/storetest/redistest/stores"
)

// TestCallsWithoutMemory: calls continue, and end when their time passes, also while Redis has no memory left.
func TestCallsWithoutMemory(t *testing.T) {
	ctx, url, client := stores.StartRedis(t)
	s, clock := newMovableStore(t, url, 0)
	c := newCallers(t, s)
	active, lost := c.Call("alice", "bob"), c.Call("carol", "dave")
	active.Timeout, lost.Timeout = 15*time.Second, 15*time.Second
	c.Accepted(active)
	c.Accepted(lost)
	require.NoError(t, client.ConfigSet(ctx, "maxmemory", "1").Err())
	_, err := c.StartCall(ctx, "chat", c.Call("erin", "frank"))
	require.ErrorIs(t, err, store.ErrFull)
	before := c.Until("alice")
	for _, moved := range []time.Duration{8 * time.Second, 16 * time.Second} {
		clock.move(moved)
		require.Empty(t, c.KeepAlive("alice", "bob"))
		for _, step := range c.Expire().Steps {
			require.Equal(t, lost.ID, step.Call.ID)
		}
	}
	require.Equal(t, lastseen.Active, c.Read(active.ID).State)
	require.Equal(t, lastseen.Lost, c.Read(lost.ID).State, "the clock of calls went on")
	require.Greater(t, c.Until("alice")[0], before[0], "it was copied")
	require.Equal(t, []lastseen.Instant{0, 0}, c.Until("carol", "dave"))
}

// TestStepsWithoutMemory: while Redis has no memory left, parties can say that they take part, and end calls, also
// again. What is to be copied is confirmed, or noted again. What an app adds is refused, with all of its step.
func TestStepsWithoutMemory(t *testing.T) {
	ctx, url, client := stores.StartRedis(t)
	s, clock := newMovableStore(t, url, 0)
	c := newCallers(t, s)
	n, rings := c.Call("alice", "bob"), c.Call("carol", "dave")
	n.Timeout = 8 * time.Second
	step := func(id, user string, action lastseen.CallAction, app string) (store.CallStep, error) {
		return s.StepCall(ctx, "chat", store.CallAct{ID: id, User: user, Action: action, App: app})
	}
	c.Accepted(n)
	before := c.Until("alice")[0]
	c.Begin(rings)
	require.NoError(t, client.ConfigSet(ctx, "maxmemory", "1").Err())
	clock.move(6 * time.Second)
	for _, user := range []string{"alice", "bob"} {
		_, err := step(n.ID, user, lastseen.Alive, "{}")
		require.ErrorIs(t, err, store.ErrFull)
		alive, err := step(n.ID, user, lastseen.Alive, "")
		require.NoError(t, err)
		require.Equal(t, lastseen.Repeated, alive.Outcome)
	}
	clock.move(12 * time.Second)
	call := c.Read(n.ID)
	require.Equal(t, lastseen.Active, call.State, "both were active")
	require.Empty(t, call.App)
	require.Greater(t, c.Until("alice")[0], before, "the end has moved")
	for _, app := range []string{"", "{}"} {
		_, err := step(rings.ID, "dave", lastseen.Accept, app)
		require.ErrorIs(t, err, store.ErrFull)
	}
	require.Equal(t, lastseen.Ringing, c.Read(rings.ID).State)
	for _, id := range []string{n.ID, rings.ID} {
		user := c.Read(id).From
		c.Act(id, user, lastseen.End)
		again, err := step(id, user, lastseen.End, "")
		require.NoError(t, err)
		require.Equal(t, lastseen.Repeated, again.Outcome)
	}
	require.Equal(t, []lastseen.Instant{0, 0}, c.Until("alice", "bob"))
	require.Empty(t, c.noted())
}

// TestManyOldCalls: those that were over for long are deleted in batches, one at once after the other.
func TestManyOldCalls(t *testing.T) {
	testenv.SkipWithRace(t, "it is about what Redis does")
	t.Parallel()
	url := redistest.Start(t)
	c := newCallers(t, stores.New(t, redisstore.Options{URL: url}))
	for i := range store.MaxCallBatch + 1 {
		n := c.Call(fmt.Sprint("from", i), fmt.Sprint("to", i))
		c.Begin(n)
		c.Act(n.ID, n.From, lastseen.End)
	}
	passKept(t, stores.NewClient(t, url))
	require.Equal(t, store.ExpiredCalls{Kept: 1}, c.Expire())
	require.Equal(t, store.ExpiredCalls{Next: store.MaxCallGap / 2}, c.Expire())
}

// TestMaxCalls: a namespace keeps MaxCalls calls. Those that are forgotten make room.
func TestMaxCalls(t *testing.T) {
	testenv.SkipWithRace(t, "it is about what Redis does")
	ctx, url, client := stores.StartRedis(t)
	c := newCallers(t, stores.New(t, redisstore.Options{URL: url}))
	first, last, another := c.Call("alice", "bob"), c.Call("alice", "bob"), c.Call("carol", "dave")
	last.Key = "k"
	c.Begin(first)
	c.Act(first.ID, "bob", lastseen.Reject)
	require.NoError(t, client.ConfigSet(ctx, "appendonly", "no").Err())
	const part = 1000
	fill := redis.NewScript(`
		local fields = {}
		for i = 1, ARGV[2] do
			fields[2 * i - 1], fields[2 * i] = ARGV[1] + i, ''
		end
		return redis.call('HSET', KEYS[1], unpack(fields))`)
	for kept := 1; kept < store.MaxCalls-1; kept += part { // which are only counted
		n := min(part, store.MaxCalls-1-kept)
		require.NoError(t, fill.Run(ctx, client, []string{callKey("calls")}, kept, n).Err())
	}
	require.EqualValues(t, store.MaxCalls, client.HLen(ctx, callKey("calls")).Val(), "with the clock")
	begun := c.Begin(last)
	full := func() {
		t.Helper()
		_, err := c.StartCall(ctx, "chat", another)
		require.ErrorIs(t, err, store.ErrTooManyCalls)
	}
	full()
	again, err := c.StartCall(ctx, "chat", last)
	require.NoError(t, err)
	require.Equal(t, begun, again.Call, "the same key returns the call that it started")
	c.Act(last.ID, "bob", lastseen.Reject)
	full()

	passKept(t, client)
	require.Equal(t, store.MaxCalls-2, c.Expire().Kept)
	c.Begin(another)
}
