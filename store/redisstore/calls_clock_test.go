package redisstore_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/storetest/redistest"
	"github.com/lastseen/lastseen/store/storetest/redistest/stores"
)

// newMovable has users call each other on a Redis whose clock the test moves.
func newMovable(t *testing.T) (*callers, *wrongClock) {
	s, clock := newMovableStore(t, redistest.Start(t), 0)
	return newCallers(t, s), clock
}

// TestCallsWhileTheClockJumps: a clock that jumps by years ends no call, and keeps none from ending.
func TestCallsWhileTheClockJumps(t *testing.T) {
	t.Parallel()
	for name, by := range map[string]time.Duration{"ahead": years, "back": -years, "a day": 24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, clock := newMovable(t)
			ringing, active := c.Call("alice", "bob"), c.Call("carol", "dave")
			ringing.Ring, active.Timeout = time.Minute, time.Minute
			c.Begin(ringing)
			c.Accepted(active)
			for _, moved := range []time.Duration{by, 0, by, 0} {
				clock.move(moved)
				require.Empty(t, c.Expire().Steps)
				require.Empty(t, c.KeepAlive("carol", "dave"))
				for _, id := range []string{ringing.ID, active.ID} {
					rest := c.Read(id).Expires - lastseen.InstantOf(time.Now()).Add(moved)
					require.InDelta(t, 35_000, int64(rest), 30_000, "what is shown is by the clock that it has")
				}
			}
			ended := map[string]lastseen.CallState{}
			for step := time.Duration(1); step <= 20 && len(ended) < 2; step++ {
				clock.move(by + step*store.MaxCallGap/2)
				for _, step := range c.Expire().Steps {
					ended[step.Call.ID] = step.Call.State
				}
			}
			want := map[string]lastseen.CallState{ringing.ID: lastseen.Missed, active.ID: lastseen.Lost}
			require.Equal(t, want, ended)
		})
	}
}

// TestCallsSurviveAnOutage: calls neither ring nor are lost for the time in which no server watched.
func TestCallsSurviveAnOutage(t *testing.T) {
	t.Parallel()
	c, clock := newMovable(t)
	n := c.Call("alice", "bob")
	n.Ring, n.Timeout = 15*time.Second, 15*time.Second
	c.Begin(n)
	clock.move(time.Hour)
	require.Empty(t, c.Expire().Steps)
	c.Act(n.ID, "bob", lastseen.Accept)
	clock.move(2 * time.Hour)
	require.Empty(t, c.Expire().Steps)
	require.Equal(t, lastseen.Active, c.Read(n.ID).State)
	clock.move(2*time.Hour + store.MaxCallGap)
	require.Equal(t, lastseen.Lost, c.Expire().Steps[0].Call.State)
}

// TestCallsAreKept: for CallsKept by the clock of calls, and no longer.
func TestCallsAreKept(t *testing.T) {
	t.Parallel()
	c, clock := newMovable(t)
	n := c.Call("alice", "bob")
	c.Begin(n)
	over := c.Act(n.ID, "bob", lastseen.Reject).Call
	watched := time.Duration(0)
	for ; watched < store.CallsKept-time.Minute; watched += store.MaxCallGap {
		clock.move(watched)
		require.Equal(t, 1, c.Expire().Kept)
		require.Equal(t, over, c.Read(n.ID))
	}
	for ; watched < store.CallsKept+time.Minute; watched += store.MaxCallGap {
		clock.move(watched)
		c.Expire()
	}
	_, err := store.ReadCall(context.Background(), c, "chat", n.ID)
	require.ErrorIs(t, err, store.ErrCallNotFound)
}

// TestInCallWhileTheClockJumps: what is copied ends with the call, by the clock that there is.
func TestInCallWhileTheClockJumps(t *testing.T) {
	t.Parallel()
	for name, by := range map[string]time.Duration{"ahead": years, "back": -years} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, clock := newMovable(t)
			n := c.Call("alice", "bob")
			n.Timeout = time.Minute
			c.Accepted(n)
			clock.move(by)
			require.Empty(t, c.KeepAlive("alice", "bob"))
			for _, end := range c.Until("alice", "bob") {
				require.InDelta(t, int64(lastseen.InstantOf(time.Now()).Add(by+time.Minute)), int64(end), 30_000)
			}
			clock.move(0)
			c.Act(n.ID, "alice", lastseen.End)
			require.Equal(t, []lastseen.Instant{0, 0}, c.Until("alice", "bob"))
			require.Empty(t, c.noted())
		})
	}
}

// TestCopiesAreRenewedInTime: parties are active four times in the time for which they need not be, at the same moments
// or not. Whenever one is active, at least a quarter of that time is left of what is copied; or a sixth, if they are
// active less often, but within half of that time.
func TestCopiesAreRenewedInTime(t *testing.T) {
	testenv.SkipWithRace(t, "it is about what Redis does")
	t.Parallel()
	const step = 5 * time.Second
	for _, every := range testenv.Variants(3*step, 4*step, 5*step, 6*step) {
		for apart := time.Duration(0); apart < every; apart += step {
			t.Run(fmt.Sprintf("%v apart %v", every, apart), func(t *testing.T) {
				t.Parallel()
				left := time.Minute / 6
				if every == 3*step {
					left = time.Minute / 4
				}
				keepAliveWhenDue(t, step, left, map[string]func(time.Duration) bool{
					"alice": func(moved time.Duration) bool { return moved%every == 0 },
					"bob":   func(moved time.Duration) bool { return moved%every == apart },
				})
			})
		}
	}
	t.Run("irregularly", func(t *testing.T) {
		t.Parallel()
		both := func(moved time.Duration) bool { // after 5, 20 and 10 s
			at := moved % (7 * step)
			return at == 0 || at == step || at == 5*step
		}
		keepAliveWhenDue(t, step, time.Minute/6, map[string]func(time.Duration) bool{"alice": both, "bob": both})
	})
}

// keepAliveWhenDue sends keepalives of two users when they are due. Before, it checks for how long copies are valid.
func keepAliveWhenDue(t *testing.T, step, left time.Duration, due map[string]func(time.Duration) bool) {
	c, clock := newMovable(t)
	n := c.Call("alice", "bob")
	n.Timeout = time.Minute
	c.Accepted(n)
	for moved := step; moved < 5*time.Minute; moved += step {
		clock.move(moved)
		c.Expire()
		for _, user := range []string{"alice", "bob"} {
			if !due[user](moved) {
				continue
			}
			now := lastseen.InstantOf(time.Now()).Add(moved)
			for _, end := range c.Until("alice", "bob") {
				require.Greater(t, int64(end-now), (left - time.Second).Milliseconds(), "after %v", moved)
			}
			c.KeepAlive(user)
		}
	}
}

// TestFlushInMidCall: Redis forgets everything while users are in a call. Copies that are late show nobody in a call
// that does not exist.
func TestFlushInMidCall(t *testing.T) {
	ctx, url, client := stores.StartRedis(t)
	c := newCallers(t, stores.New(t, redisstore.Options{URL: url}))
	n := c.Call("alice", "bob")
	c.Accepted(n)
	end := c.Until("alice")[0]
	require.NoError(t, client.FlushAll(ctx).Err())
	_, err := c.StepCall(ctx, "chat", store.CallAct{ID: n.ID, User: "bob", Action: lastseen.Alive})
	require.ErrorIs(t, err, store.ErrCallNotFound)
	require.Empty(t, c.KeepAlive("alice", "bob"))
	c.SetInCall("alice", end)
	require.Equal(t, []lastseen.Instant{0, 0}, c.Until("alice", "bob"), "the namespace does not exist")
	c.Expire()
	require.Empty(t, client.Keys(ctx, "presence:details*").Val())
	c.Accepted(n)
	require.NotContains(t, c.Until("alice", "bob"), lastseen.Instant(0), "calls work again at once")
}
