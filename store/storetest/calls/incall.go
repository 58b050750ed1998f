package calls

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/availability"
	"github.com/lastseen/lastseen/store/storetest/devices"
	"github.com/lastseen/lastseen/store/storetest/kit"
)

// unconfirmed returns what has to be copied.
func (c *Calling) unconfirmed(age time.Duration) []store.InCall {
	in, err := c.UnconfirmedInCalls(context.Background(), c.namespace, age)
	require.NoError(c.t, err)
	require.LessOrEqual(c.t, len(in), store.MaxCallBatch)
	return append([]store.InCall{}, in...)
}

// SetInCall copies who is in a call to the details.
func (c *Calling) SetInCall(in ...store.InCall) {
	require.NoError(c.t, c.SetInCalls(context.Background(), c.namespace, in))
}

// confirm says what was copied, and returns what has to be copied again.
func (c *Calling) confirm(in ...store.InCall) []store.InCall {
	again, err := c.ConfirmInCalls(context.Background(), c.namespace, in)
	require.NoError(c.t, err)
	return append([]store.InCall{}, again...)
}

// copyAll copies everything that has to be copied.
func (c *Calling) copyAll() {
	c.poll("nothing is left to copy", func() bool {
		in := c.unconfirmed(0)
		for len(in) > 0 {
			c.SetInCall(in...)
			in = c.confirm(in...)
		}
		return len(c.unconfirmed(0)) == 0
	})
}

// inCall returns those of some users who are in a call by their details.
func (c *Calling) inCall(users ...string) []string {
	found := []string{}
	at := kit.Now(c.t, c)
	for user, d := range availability.DetailsIn(c.t, c.Store, c.namespace, users...) {
		if d.InCallUntil > at {
			found = append(found, user)
		}
	}
	slices.Sort(found)
	return found
}

// testInCall: both parties have to be copied when a call becomes active, and when it ends.
func testInCall(t *testing.T, c *Calling) {
	kit.Ping(t, c, "alice", kit.Now(t, c))
	require.Empty(t, c.unconfirmed(0))
	call := c.Ring("alice", "bob")
	step := c.act(call.ID, "bob", lastseen.Accept)
	require.Equal(t, []string{"alice", "bob"}, usersInCall(step.InCall))
	for _, in := range step.InCall {
		requireNear(t, step.Call.Expires, in.Until, 10)
	}
	require.ElementsMatch(t, step.InCall, c.unconfirmed(0))
	require.Empty(t, c.inCall("alice", "bob"), "nothing was copied")
	c.SetInCall(step.InCall...)
	require.ElementsMatch(t, step.InCall, c.unconfirmed(0), "nothing was confirmed")
	require.Equal(t, []string{"alice", "bob"}, c.inCall("alice", "bob", "carol"))
	require.Empty(t, c.confirm(step.InCall[0]))
	require.Equal(t, step.InCall[1:], c.unconfirmed(0))
	require.Empty(t, c.confirm(step.InCall...), "again, and the other one")
	require.Empty(t, c.unconfirmed(0))

	step = c.act(call.ID, "bob", lastseen.End)
	require.ElementsMatch(t, []store.InCall{{User: "alice"}, {User: "bob"}}, step.InCall)
	require.ElementsMatch(t, step.InCall, c.unconfirmed(0))
	require.Equal(t, []string{"alice", "bob"}, c.inCall("alice", "bob"))
	c.copyAll()
	require.Empty(t, c.inCall("alice", "bob"))
	require.Empty(t, availability.Details(t, c, "alice", "bob"))
}

// testInCallNotShown: where calls are not shown, nothing is copied.
func testInCallNotShown(t *testing.T, c *Calling) {
	call := c.call("alice", "bob")
	call.Shown = false
	c.begin(call)
	require.Empty(t, c.act(call.ID, "bob", lastseen.Accept).InCall)
	require.Empty(t, c.hear("alice", "bob"))
	require.Empty(t, c.unconfirmed(0))
	require.Empty(t, c.act(call.ID, "bob", lastseen.End).InCall)
	call = c.activeSoon("alice", "bob")
	c.copyAll()
	c.pass(call)
	c.expire()
	c.copyAll()

	call = c.call("alice", "bob")
	call.Shown, call.Quiet = false, soon
	c.accepted(call)
	require.Empty(t, c.expireOne().InCall)
	require.Empty(t, c.unconfirmed(0))
}

// testInCallLost: a call that is lost has to be copied, too.
func testInCallLost(t *testing.T, c *Calling) {
	call := c.activeSoon("alice", "bob")
	step := c.expireOne()
	require.Equal(t, call.ID, step.Call.ID)
	require.ElementsMatch(t, []store.InCall{{User: "alice"}, {User: "bob"}}, step.InCall)
	require.ElementsMatch(t, step.InCall, c.unconfirmed(0))
	c.copyAll()
	require.Empty(t, availability.Details(t, c, "alice", "bob"))
}

// testInCallSlowCopier: who copies an old value late learns the present one, also if that was confirmed.
func testInCallSlowCopier(t *testing.T, c *Calling) {
	call := c.Ring("alice", "bob")
	old := c.act(call.ID, "bob", lastseen.Accept).InCall
	c.act(call.ID, "bob", lastseen.End)
	free := []store.InCall{{User: "alice"}, {User: "bob"}}
	for range 2 {
		require.ElementsMatch(t, free, c.confirm(old...), "the call has ended since")
		require.ElementsMatch(t, free, c.unconfirmed(0))
	}
	c.SetInCall(free...)
	require.Empty(t, c.confirm(free...))
	require.Empty(t, c.unconfirmed(0))

	c.SetInCall(old...) // by one who was slow
	require.ElementsMatch(t, free, c.confirm(old...))
	require.ElementsMatch(t, free, c.unconfirmed(0), "others copy it if this one is gone")
	c.copyAll()
	require.Empty(t, c.inCall("alice", "bob"))

	next := c.Ring("alice", "carol")
	now := c.act(next.ID, "carol", lastseen.Accept).InCall
	again := c.confirm(free...)
	require.Len(t, again, 1)
	require.Contains(t, now, again[0])
	require.Equal(t, "alice", again[0].User)
	require.Empty(t, c.confirm(store.InCall{User: "nobody"}))
	require.Equal(t, []store.InCall{{User: "nobody"}}, c.confirm(store.InCall{User: "nobody", Until: old[0].Until}))
}

// testInCallRenewed: while both parties are heard, what was copied is renewed before it ends, but not each time.
func testInCallRenewed(t *testing.T, c *Calling) {
	still := c.active("carol", "dave")
	call := c.call("alice", "bob")
	call.Quiet = 4 * time.Second
	c.accepted(call)
	first := c.unconfirmed(0)
	require.Len(t, first, 4)
	c.copyAll()
	hears, returned := 0, []store.InCall(nil)
	c.poll("the call is renewed", func() bool {
		result := c.hearing(onAny("alice", "bob", "carol", "dave")...)
		require.Empty(t, result.Steps)
		returned = append(returned, result.InCall...)
		hears++
		return len(c.unconfirmed(0)) > 0
	})
	require.Greater(t, hears, 1, "it is not renewed each time")
	renewed := c.unconfirmed(0)
	require.Equal(t, []string{"alice", "bob"}, usersInCall(renewed))
	require.ElementsMatch(t, renewed, returned, "hearing returns what it noted")
	for _, in := range renewed {
		i := slices.IndexFunc(first, func(f store.InCall) bool { return f.User == in.User })
		require.GreaterOrEqual(t, in.Until, first[i].Until+900)
	}
	require.Equal(t, lastseen.Active, c.read(still.ID).State)
	c.copyAll()
	c.poll("being alive renews it, too", func() bool {
		var noted []store.InCall
		for _, user := range []string{"alice", "bob"} {
			noted = append(noted, c.step(call.ID, user, "", lastseen.Alive, "").InCall...)
		}
		return len(noted) > 0
	})
	require.Equal(t, []string{"alice", "bob"}, usersInCall(c.unconfirmed(0)))
}

// testInCallAge: who looks for what others left need not see what was noted just now.
func testInCallAge(t *testing.T, c *Calling) {
	c.active("alice", "bob")
	require.Empty(t, c.unconfirmed(time.Hour))
	require.Len(t, c.unconfirmed(0), 2)
	c.poll("it is old enough", func() bool { return len(c.unconfirmed(soon)) == 2 })
}

// testInCallMany: the oldest ones come first, as many as fit.
func testInCallMany(t *testing.T, c *Calling) {
	const n = store.MaxCallBatch/2 + 10
	for i := range n {
		c.active(fmt.Sprint("from", i), fmt.Sprint("to", i))
	}
	first := c.unconfirmed(0)
	require.Len(t, first, store.MaxCallBatch)
	c.SetInCall(first...)
	require.Empty(t, c.confirm(first...))
	rest := c.unconfirmed(0)
	require.Len(t, rest, 20)
	users := usersInCall(append(first, rest...))
	require.Len(t, slices.Compact(users), 2*n, "each user once")
	last := c.Ring("a", "b")
	c.act(last.ID, "b", lastseen.Accept)
	c.poll("the last ones are last", func() bool {
		all := c.unconfirmed(0)
		return len(all) == 22 && slices.Equal([]string{"a", "b"}, usersInCall(all[20:]))
	})
}

// testInCallDetails: being in a call is one of the details, beside the others.
func testInCallDetails(t *testing.T, c *Calling) {
	start := kit.Now(t, c)
	end := start + 60*kit.Minute
	devices.Record(t, c, availability.IdleAt("alice", "a", start))
	availability.Say(t, c, "alice", availability.Busy)
	all := func() store.Details { return availability.Details(t, c, "alice")["alice"] }
	require.Equal(t, store.Details{Said: availability.Busy, IdleSince: start - 10}, all())
	c.SetInCall(store.InCall{User: "alice", Until: end})
	require.Equal(t, store.Details{Said: availability.Busy, IdleSince: start - 10, InCallUntil: end}, all())
	c.SetInCall(store.InCall{User: "alice", Until: end + 1})
	availability.Say(t, c, "alice", availability.Until(end, availability.Away))
	require.Equal(t,
		store.Details{Said: availability.Until(end, availability.Away), IdleSince: start - 10, InCallUntil: end + 1},
		all())
	devices.Record(t, c, devices.On("alice", "a", start+1))
	require.Equal(t, store.Details{Said: availability.Until(end, availability.Away), InCallUntil: end + 1}, all())
	availability.Say(t, c, "alice", availability.Nothing)
	require.Equal(t, store.Details{InCallUntil: end + 1}, all())
	kit.Leave(t, c, "alice", start+2)
	kit.Ping(t, c, "alice", start+3)
	require.Equal(t, store.Details{InCallUntil: end + 1}, all())
	availability.Say(t, c, "alice", availability.Until(end, availability.Busy))
	c.SetInCall(store.InCall{User: "alice"})
	require.Equal(t, store.Details{Said: availability.Until(end, availability.Busy)}, all())
	c.SetInCall(store.InCall{User: "alice", Until: end})
	availability.Say(t, c, "alice", availability.Nothing)
	c.SetInCall(store.InCall{User: "alice"}, store.InCall{User: "bob"})
	require.Empty(t, availability.Details(t, c, "alice", "bob"), "nothing is left")
}

// testInCallNeverSeen: a user who was never seen can be in a call, and is so when seen.
func testInCallNeverSeen(t *testing.T, c *Calling) {
	end := kit.Now(t, c) + 60*kit.Minute
	c.active("alice", "bob")
	c.copyAll()
	require.Equal(t, []string{"alice", "bob"}, c.inCall("alice", "bob"))
	require.Zero(t, kit.Lookup(t, c, "alice")[0])
	kit.Ping(t, c, "alice", kit.Now(t, c))
	require.Equal(t, []string{"alice", "bob"}, c.inCall("alice", "bob"))
	availability.Say(t, c, "bob", availability.Busy)
	require.Equal(t, availability.Busy, availability.Details(t, c, "bob")["bob"].Said)
	require.Equal(t, []string{"alice", "bob"}, c.inCall("alice", "bob"))
	availability.Say(t, c, "bob", availability.Nothing)
	c.SetInCall(store.InCall{User: "carol", Until: end}, store.InCall{User: "bob"})
	require.Equal(t, map[string]store.Details{"carol": {InCallUntil: end}}, availability.Details(t, c, "bob", "carol"))
}

// testInCallNoNamespace: copying creates no namespace.
func testInCallNoNamespace(t *testing.T, c *Calling) {
	end := kit.Now(t, c) + 60*kit.Minute
	c.SetInCall(store.InCall{User: "alice", Until: end}, store.InCall{User: "bob"})
	require.Empty(t, c.confirm(store.InCall{User: "bob"}))
	require.Empty(t, kit.Existing(t, c))
	require.NoError(t, c.Register(t.Context(), []string{kit.Namespace}))
	c.SetInCall(store.InCall{User: "alice"})
	require.Empty(t, availability.Details(t, c, "alice"))
	require.True(t, kit.RemoveEmpty(t, c, kit.Namespace))
}

func testInCallUserIDs(t *testing.T, c *Calling) {
	end := kit.Now(t, c) + 60*kit.Minute
	ids := kit.OddIDs()
	var in []store.InCall
	want := map[string]store.Details{}
	for i, id := range ids {
		if i%2 == 0 {
			kit.Ping(t, c, id, kit.Base)
		}
		in = append(in, store.InCall{User: id, Until: end + lastseen.Instant(i)})
		want[id] = store.Details{InCallUntil: end + lastseen.Instant(i)}
	}
	require.NoError(t, c.Register(t.Context(), []string{kit.Namespace}))
	c.SetInCall(in...)
	require.Equal(t, want, availability.Details(t, c, ids...))
	for i := range in {
		in[i].Until = 0
	}
	c.SetInCall(in...)
	require.Empty(t, availability.Details(t, c, ids...))
}

// testInCallTrim: a user whose state is trimmed stays in the call.
func testInCallTrim(t *testing.T, c *Calling) {
	old := kit.Now(t, c) - 60*kit.Minute
	kit.Ping(t, c, "alice", old)
	call := c.active("alice", "bob")
	c.copyAll()
	require.Equal(t, 1, kit.Trim(t, c, kit.Namespace, old.Add(30*time.Minute), true).Deleted)
	require.Equal(t, []string{call.ID}, c.idsOf("alice"))
	kit.Ping(t, c, "alice", kit.Now(t, c))
	require.Equal(t, []string{"alice", "bob"}, c.inCall("alice", "bob"))
	c.act(call.ID, "alice", lastseen.End)
	c.copyAll()
	require.Empty(t, c.inCall("alice", "bob"))
}
