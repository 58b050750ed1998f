package calls

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/availability"
	"github.com/lastseen/lastseen/store/storetest/kit"
)

// ringSoon starts a call that is missed soon. It can have been missed when ringSoon returns.
func (c *Calling) ringSoon(from, to string) store.NewCall {
	call := c.Call(from, to)
	call.Ring, call.App = soon, `"offer"`
	c.Begin(call)
	return call
}

// activeSoon starts a call that is accepted, and lost soon.
func (c *Calling) activeSoon(from, to string) store.NewCall {
	call := c.Call(from, to)
	call.Timeout, call.App = soon, `"offer"`
	c.Accepted(call)
	return call
}

// pass waits until a call has ended, for those who read it.
func (c *Calling) pass(call store.NewCall) lastseen.Call {
	var got lastseen.Call
	c.poll("the call expires", func() bool {
		got = c.Read(call.ID)
		return got.State.Over()
	})
	requireOver(c.t, got)
	return got
}

// expireOne waits until ExpireCalls ends one call, alone.
func (c *Calling) expireOne() store.CallStep {
	var step store.CallStep
	c.poll("a call expires", func() bool {
		steps := c.Expire().Steps
		require.LessOrEqual(c.t, len(steps), 1)
		if len(steps) == 0 {
			return false
		}
		step = steps[0]
		return true
	})
	return step
}

// testCallMissed: ExpireCalls ends a call that nobody accepts, once.
func testCallMissed(t *testing.T, c *Calling) {
	before := kit.Now(t, c)
	other := c.Ring("carol", "dave")
	call := c.ringSoon("alice", "bob")
	step := c.expireOne()
	missed := lastseen.Call{
		ID: call.ID, From: "alice", To: "bob", State: lastseen.Missed, Version: 2,
		Created: step.Call.Created, Over: step.Call.Over,
	}
	require.Equal(t, store.CallStep{Call: missed, Outcome: lastseen.Stepped, Expired: true}, step)
	requireNear(t, before, missed.Over, 10_000+float64(eventually.Milliseconds()))
	require.GreaterOrEqual(t, missed.Over, missed.Created.Add(soon)-2)
	require.Equal(t, missed, c.Read(call.ID))
	require.Equal(t, []string{"", "", other.ID}, c.idsOf("alice", "bob", "carol"))
	require.Empty(t, c.Expire().Steps)
	c.refuse(call.ID, "bob", lastseen.Accept)
	c.Ring("bob", "alice")
}

// testCallMissedOnRead: who reads sees a call that has expired as over, also before ExpireCalls ends it.
func testCallMissedOnRead(t *testing.T, c *Calling) {
	missed := c.pass(c.ringSoon("alice", "bob"))
	require.Equal(t, lastseen.Missed, missed.State)
	require.Equal(t, int64(2), missed.Version)
	require.Equal(t, []string{"", ""}, c.idsOf("alice", "bob"))
	lost := c.pass(c.activeSoon("carol", "dave"))
	require.Equal(t, lastseen.Lost, lost.State)
	require.Equal(t, int64(3), lost.Version)
	require.Equal(t, []string{"", ""}, c.idsOf("carol", "dave"))
	ended := map[string]lastseen.Call{}
	for _, step := range c.Expire().Steps {
		ended[step.Call.ID] = step.Call
	}
	require.Len(t, ended, 2)
	for _, shown := range []lastseen.Call{missed, lost} {
		written := ended[shown.ID]
		requireNear(t, shown.Over, written.Over, 10, "it was over when its time passed")
		shown.Over = written.Over
		require.Equal(t, shown, written)
		require.Equal(t, written, c.Read(shown.ID))
	}
}

// testCallMissedOnAction: a call that has expired expires before an action, which is judged by the state then.
func testCallMissedOnAction(t *testing.T, c *Calling) {
	for i, action := range actions() {
		for _, user := range []string{"alice", "bob"} {
			for _, begin := range []func(from, to string) store.NewCall{c.ringSoon, c.activeSoon} {
				call := begin("alice", "bob")
				over := c.pass(call)
				step := c.step(call.ID, user, "", action, `"late"`)
				require.Equal(t, lastseen.Refused, step.Outcome)
				require.True(t, step.Expired, i)
				require.Equal(t, over.State, step.Call.State)
				require.Equal(t, over.Version, step.Call.Version)
				requireOver(t, step.Call)
				require.Empty(t, availability.Details(t, c, "alice", "bob"))
				again := c.step(call.ID, user, "", action, "")
				require.Equal(t, lastseen.Refused, again.Outcome)
				require.False(t, again.Expired)
				require.Equal(t, step.Call, again.Call)
			}
		}
	}
	require.Empty(t, c.Expire().Steps, "each was returned once")
}

// testCallMissedOnKey: a repeated start returns a call that has expired as over, and leaves it to ExpireCalls.
func testCallMissedOnKey(t *testing.T, c *Calling) {
	call := c.Call("alice", "bob")
	call.Ring, call.Key, call.Digest = soon, "key", "digest"
	c.Begin(call)
	c.pass(call)
	step, err := c.StartCall(t.Context(), kit.Namespace, call)
	require.NoError(t, err)
	require.Equal(t, lastseen.Repeated, step.Outcome)
	require.Equal(t, lastseen.Missed, step.Call.State)
	requireOver(t, step.Call)
	require.False(t, step.Expired)
	require.Empty(t, c.KeepAlive("alice", "bob"), "it is not active")
	steps := c.Expire().Steps
	require.Len(t, steps, 1)
	require.Equal(t, call.ID, steps[0].Call.ID)
	require.Equal(t, lastseen.Missed, steps[0].Call.State)
}

// testCallMissedOnStart: a call that has expired makes nobody busy. ExpireCalls ends it later, and the next call of its
// parties goes on.
func testCallMissedOnStart(t *testing.T, c *Calling) {
	ringing := c.ringSoon("alice", "bob")
	active := c.activeSoon("carol", "dave")
	c.pass(ringing)
	c.pass(active)
	next := c.active("alice", "carol")
	other := c.Ring("dave", "bob")
	ended := map[string]lastseen.CallState{}
	for _, step := range c.Expire().Steps {
		ended[step.Call.ID] = step.Call.State
	}
	require.Equal(t, map[string]lastseen.CallState{ringing.ID: lastseen.Missed, active.ID: lastseen.Lost}, ended)
	require.Equal(t, []string{next.ID, other.ID, next.ID, other.ID}, c.idsOf("alice", "bob", "carol", "dave"))
	require.Equal(t, []string{"alice", "carol"}, c.inCall("alice", "bob", "carol", "dave"))
}

// testCallLost: an active call is lost once one party is not active for too long, also if the other one is.
func testCallLost(t *testing.T, c *Calling) {
	for _, active := range [][]string{nil, {"alice"}, {"bob"}} {
		call := c.activeSoon("alice", "bob")
		var lost []store.CallStep
		c.poll("the call is lost", func() bool {
			lost = c.KeepAlive(active...)
			if len(lost) == 0 {
				lost = c.Expire().Steps
			}
			return len(lost) > 0
		})
		require.Len(t, lost, 1)
		require.Equal(t, call.ID, lost[0].Call.ID)
		require.Equal(t, lastseen.Lost, lost[0].Call.State)
		require.Equal(t, int64(3), lost[0].Call.Version)
		require.NotZero(t, lost[0].Call.Accepted)
		require.Empty(t, availability.Details(t, c, "alice", "bob"))
		c.refuse(call.ID, "alice", lastseen.End)
	}
}

// testCallLostOnKeepAlive: a party who is active too late does not save the call.
func testCallLostOnKeepAlive(t *testing.T, c *Calling) {
	call := c.activeSoon("alice", "bob")
	c.pass(call)
	other := c.active("carol", "dave")
	steps := c.KeepAlive("carol", "alice", "bob", "nobody")
	require.Len(t, steps, 1)
	require.Equal(t, call.ID, steps[0].Call.ID)
	require.Equal(t, lastseen.Lost, steps[0].Call.State)
	require.Equal(t, []string{"carol"}, c.inCall("alice", "bob", "carol"))
	require.Equal(t, []string{"", "", other.ID}, c.idsOf("alice", "bob", "carol"))
	require.Empty(t, c.KeepAlive("alice"))
	require.Empty(t, c.Expire().Steps)
}

// testExpireNext: the result says when to call again.
func testExpireNext(t *testing.T, c *Calling) {
	require.Equal(t, store.ExpiredCalls{Next: store.MaxCallGap / 2}, c.Expire())
	c.Ring("alice", "bob")
	require.Equal(t, store.ExpiredCalls{Calls: 1, Kept: 1, Next: store.MaxCallGap / 2}, c.Expire())
	call := c.Call("carol", "dave")
	call.Ring = 3 * time.Second
	c.Begin(call)
	expired := c.Expire()
	require.Equal(t, 2, expired.Calls)
	require.LessOrEqual(t, expired.Next, 3*time.Second)
	require.Greater(t, expired.Next, time.Duration(0), "it takes 3 seconds to get here")
	over := c.Act(call.ID, "carol", lastseen.End).Call
	require.Equal(t, store.ExpiredCalls{Calls: 1, Kept: 2, Next: store.MaxCallGap / 2}, c.Expire())
	require.Equal(t, over, c.Read(call.ID))

	active := c.Call("carol", "dave")
	active.Ring, active.Timeout = long, 3*time.Second
	c.Accepted(active)
	expired = c.Expire()
	require.LessOrEqual(t, expired.Next, 3*time.Second)
	require.Equal(t, 2, expired.Calls)
	require.Equal(t, 3, expired.Kept)
}

// testExpireMany: one call ends so many calls, and the next ones the rest, in the order in which their times passed.
func testExpireMany(t *testing.T, c *Calling) {
	const n = store.MaxCallBatch + 20
	var last store.NewCall
	want := map[string]bool{}
	for i := range n {
		last = c.ringSoon(fmt.Sprint("from", i), fmt.Sprint("to", i))
		want[last.ID] = true
	}
	c.pass(last)
	first := c.Expire()
	require.Len(t, first.Steps, store.MaxCallBatch)
	require.Zero(t, first.Next)
	second := c.Expire()
	require.Len(t, second.Steps, n-store.MaxCallBatch)
	require.Equal(t, store.MaxCallGap/2, second.Next)
	require.Zero(t, second.Calls)
	require.Equal(t, n, second.Kept)
	for _, step := range append(first.Steps, second.Steps...) {
		require.True(t, want[step.Call.ID], "twice")
		delete(want, step.Call.ID)
	}
	require.Empty(t, want)
}

// activeUntil returns when an active call will be lost.
func (c *Calling) activeUntil(id string) lastseen.Instant { return c.Read(id).Expires }

// tick waits until the clock of the store has moved on so far that a keepalive shows.
func (c *Calling) tick() {
	end := kit.Now(c.t, c) + 50
	c.poll("the clock moves", func() bool { return kit.Now(c.t, c) > end })
}

// testKeepCallsAlive: a call continues for as long as both parties are active.
func testKeepCallsAlive(t *testing.T, c *Calling) {
	call := c.active("alice", "bob")
	c.Ring("carol", "dave")
	requireNear(t, call.Accepted.Add(long), call.Expires, 1000)
	before := call
	for _, active := range [][]string{{"alice"}, {"bob"}, {"bob", "bob", "carol", "nobody"}, {}} {
		c.tick()
		was := c.activeUntil(call.ID)
		require.Empty(t, c.KeepAlive(active...))
		if len(active) == 0 || active[0] == "alice" {
			requireNear(t, was, c.activeUntil(call.ID), 10, "%q", active)
		} else if active[len(active)-1] == "bob" {
			require.Greater(t, c.activeUntil(call.ID), was+25, "both were active since")
		}
	}
	c.tick()
	was := c.activeUntil(call.ID)
	require.Empty(t, c.KeepAlive("alice", "bob"))
	require.Greater(t, c.activeUntil(call.ID), was+25)
	after := c.Read(call.ID)
	before.Expires = after.Expires
	require.Equal(t, before, after, "nothing else changed")
}

// testActiveCall: the call in which a user was active is returned, and nothing for those who were ignored.
func testActiveCall(t *testing.T, c *Calling) {
	call := c.Call("alice", "bob")
	call.FromDevice = "phone"
	c.Begin(call)
	require.Equal(t, make([]store.AliveCall, 2), c.aliveResult(onAny("alice", "bob")...).Calls, "it rings")
	c.Act(call.ID, "bob", lastseen.Accept)
	other := c.active("carol", "dave")
	c.tick()
	active := append(onAny("nobody", "alice", "bob", "carol", "bob"), store.KeepAlive{User: "alice", Device: "phone"})
	calls := c.aliveResult(active...).Calls
	require.Len(t, calls, 6)
	for i, want := range []string{"", "", call.ID, other.ID, call.ID, call.ID} {
		require.Equal(t, want, calls[i].ID, i)
		if want == "" {
			require.Zero(t, calls[i])
			continue
		}
		require.Equal(t, c.Read(want).Version, calls[i].Version)
		require.LessOrEqual(t, calls[i].Rest, long)
		require.Greater(t, calls[i].Rest, long-time.Minute)
	}
	require.Equal(t, calls[2], calls[5], "after both were active")
	require.Greater(t, calls[2].Rest, calls[3].Rest, "the other party was not active")
	c.step(call.ID, "bob", "", lastseen.Alive, `"app"`)
	require.Equal(t, c.Read(call.ID).Version, c.aliveResult(onAny("bob")...).Calls[0].Version)
	c.Act(call.ID, "bob", lastseen.End)
	require.Zero(t, c.aliveResult(onAny("bob")...).Calls[0], "it is over")
}

// testKeepAliveDevices: where the device of the call is known, another one is not active.
func testKeepAliveDevices(t *testing.T, c *Calling) {
	call := c.Call("alice", "bob")
	call.FromDevice = "phone"
	c.Begin(call)
	c.step(call.ID, "bob", "tablet", lastseen.Accept, "")
	active := func(moves bool, active ...store.KeepAlive) {
		t.Helper()
		c.tick()
		was := c.activeUntil(call.ID)
		require.Empty(t, c.aliveOn(active...))
		if moves {
			require.Greater(t, c.activeUntil(call.ID), was+25)
		} else {
			requireNear(t, was, c.activeUntil(call.ID), 10)
		}
	}
	onPhone, onTablet := store.KeepAlive{User: "alice", Device: "phone"}, store.KeepAlive{User: "bob", Device: "tablet"}
	for _, device := range []string{"", "tablet", "Phone"} {
		active(false, store.KeepAlive{User: "alice", Device: device}, onTablet)
	}
	for _, device := range []string{"", "phone", "tablets"} {
		active(false, store.KeepAlive{User: "bob", Device: device})
	}
	active(true, onPhone, onTablet)
	c.Act(call.ID, "alice", lastseen.End)

	call = c.Call("alice", "bob")
	c.Accepted(call)
	active(true, onPhone, onTablet)
	active(true, store.KeepAlive{User: "alice"}, store.KeepAlive{User: "bob"})
}

// testAliveIsActive: so is a party who says so.
func testAliveIsActive(t *testing.T, c *Calling) {
	call := c.active("alice", "bob")
	c.tick()
	step := c.step(call.ID, "alice", "phone", lastseen.Alive, "")
	require.Equal(t, lastseen.Repeated, step.Outcome)
	requireNear(t, call.Expires, step.Call.Expires, 10, "the callee was not active since")
	step = c.step(call.ID, "bob", "", lastseen.Alive, "")
	require.Greater(t, step.Call.Expires, call.Expires+25)
	require.Equal(t, step.Call.Expires, c.activeUntil(call.ID))
	c.refuse(call.ID, "bob", lastseen.Reject)
}

// testKeepAliveRinging: a call does not ring for longer because a party is active.
func testKeepAliveRinging(t *testing.T, c *Calling) {
	call := c.Ring("alice", "bob")
	c.tick()
	require.Empty(t, c.KeepAlive("alice", "bob"))
	for _, user := range []string{"alice", "bob"} {
		step := c.step(call.ID, user, "", lastseen.Alive, "")
		require.Equal(t, lastseen.Repeated, step.Outcome)
		requireNear(t, call.Expires, step.Call.Expires, 10)
	}
	requireNear(t, call.Expires, c.Read(call.ID).Expires, 10)
}

// testAcceptIsActive: a callee who accepts again is active, and one who is refused is not.
func testAcceptIsActive(t *testing.T, c *Calling) {
	call := c.active("alice", "bob")
	c.tick()
	require.Empty(t, c.KeepAlive("alice"))
	require.Equal(t, lastseen.Refused, c.step(call.ID, "bob", "phone", lastseen.Accept, "").Outcome)
	requireNear(t, call.Expires, c.activeUntil(call.ID), 10)
	require.Equal(t, lastseen.Repeated, c.step(call.ID, "bob", "", lastseen.Accept, "").Outcome)
	require.Greater(t, c.activeUntil(call.ID), call.Expires+25)
}
