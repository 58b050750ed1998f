package calls

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/kit"
)

// testCallStart: a call that begins has the caller's data.
func testCallStart(t *testing.T, c *Calling) {
	before := kit.Now(t, c)
	first := c.Call("alice", "bob")
	first.FromDevice, first.App, first.Ring = "phone", `{"offer":"v=0\r\n\u0000é"}`, 10*time.Minute
	step, err := c.StartCall(t.Context(), kit.Namespace, first)
	require.NoError(t, err)
	call := step.Call
	requireNear(t, before, call.Created, 10_000)
	requireNear(t, call.Created.Add(10*time.Minute), call.Expires, 10_000)
	require.Equal(t, store.CallStep{Outcome: lastseen.Stepped, Call: lastseen.Call{
		ID: first.ID, From: "alice", To: "bob", State: lastseen.Ringing, Version: 1, FromDevice: "phone",
		By: "alice", ByDevice: "phone", Created: call.Created, Expires: call.Expires, App: first.App,
	}}, step)
	require.Equal(t, call, c.Read(first.ID))
	require.Equal(t, []lastseen.Call{call, call, {}}, c.callsOf("alice", "bob", "carol"))
	c.Unknown("call_2-A")

	bare := c.Ring("carol", "dave")
	require.Equal(t, lastseen.Call{
		ID: bare.ID, From: "carol", To: "dave", State: lastseen.Ringing, Version: 1, By: "carol",
		Created: bare.Created, Expires: bare.Expires,
	}, bare)
	require.Equal(t, call, c.Read(first.ID))
}

// testCallKey: a call with the same key is the same call, whatever happened to it.
func testCallKey(t *testing.T, c *Calling) {
	first := c.Call("alice", "bob")
	first.Key, first.Digest = "a key", "digest"
	call := c.Begin(first)
	again := func(want lastseen.Call) {
		t.Helper()
		second := c.Call("alice", "bob")
		second.Key, second.Digest = "a key", "digest"
		step, err := c.StartCall(t.Context(), kit.Namespace, second)
		require.NoError(t, err)
		require.Equal(t, store.CallStep{Call: want, Outcome: lastseen.Repeated}, step)
		c.Unknown(second.ID)
		for _, digest := range []string{"", "digest ", "other"} {
			second.Digest = digest
			c.fail(store.ErrCallKeyReused, second)
		}
	}
	again(call)
	call = c.Act(call.ID, "bob", lastseen.Accept).Call
	again(call)
	call = c.Act(call.ID, "alice", lastseen.End).Call
	again(call)
	next := c.Call("alice", "bob")
	next.Key, next.Digest = "a key ", "digest"
	c.Begin(next)
	again(call)
	require.Equal(t, []string{next.ID}, c.idsOf("bob"))
}

// testCallKeysOfOthers: keys of different callers, and those in different namespaces, are different. Without a key
// every call is a new one.
func testCallKeysOfOthers(t *testing.T, c *Calling) {
	pairs := [][2]string{{"alice", "key"}, {"alicek", "ey"}, {"a", "licekey"}, {"alic", "ekey"}, {"alice", "KEY"}}
	for i, p := range pairs {
		call := c.Call(p[0], fmt.Sprint("callee", i))
		call.Key, call.Digest = p[1], "digest"
		c.Act(c.Begin(call).ID, call.From, lastseen.End)
	}
	other := NewCalling(t, c.Store)
	other.namespace = "other"
	call := other.Call("alice", "bob")
	call.Key, call.Digest = "key", "another digest"
	other.Begin(call)
	for range 2 {
		c.Act(c.Ring("alice", "bob").ID, "alice", lastseen.End)
	}
}

// testTooManyCalls: a caller can start so many calls that are kept. Those to a user do not count.
func testTooManyCalls(t *testing.T, c *Calling) {
	for range store.MaxCallsOfUser {
		c.Act(c.Ring("alice", "bob").ID, "bob", lastseen.Reject)
	}
	c.fail(store.ErrTooManyCalls, c.Call("alice", "bob"))
	c.fail(store.ErrTooManyCalls, c.Call("alice", "carol"))
	require.Equal(t, []string{"", "", ""}, c.idsOf("alice", "bob", "carol"))
	c.Ring("bob", "alice")
	require.Equal(t, store.MaxCallsOfUser+1, c.Expire().Kept)
}

// testCallHidden: a call to a callee who is busy, which the caller must not learn, rings for the caller alone.
func testCallHidden(t *testing.T, c *Calling) {
	busy := c.active("bob", "carol")
	hidden := c.Call("alice", "bob")
	hidden.CalleeHidden, hidden.App = true, `"offer"`
	step, err := c.StartCall(t.Context(), kit.Namespace, hidden)
	require.NoError(t, err)
	require.True(t, step.CallerOnly)
	require.Equal(t, lastseen.Stepped, step.Outcome)
	require.Equal(t, lastseen.Call{
		ID: hidden.ID, From: "alice", To: "bob", State: lastseen.Ringing, Version: 1, By: "alice",
		Created: step.Call.Created, Expires: step.Call.Expires, App: `"offer"`,
	}, step.Call)
	require.Equal(t, step.Call, c.Read(hidden.ID))
	require.Equal(t, []string{hidden.ID, busy.ID, busy.ID}, c.idsOf("alice", "bob", "carol"))
	for _, action := range actions() {
		_, err := c.StepCall(t.Context(), kit.Namespace, store.CallAct{ID: hidden.ID, User: "bob", Action: action})
		require.ErrorIs(t, err, store.ErrCallNotFound)
	}
	c.KeepAlive("bob")
	alive := c.step(hidden.ID, "alice", "", lastseen.Alive, "")
	require.Equal(t, lastseen.Repeated, alive.Outcome)
	require.True(t, alive.CallerOnly)

	another := c.Call("dave", "bob")
	c.fail(store.ErrCalleeBusy, another)
	another.CalleeHidden = true
	c.fail(store.ErrCalleeBusy, another)
	c.Act(busy.ID, "bob", lastseen.End)
	require.Equal(t, []string{hidden.ID, "", ""}, c.idsOf("alice", "bob", "carol"))
	c.fail(store.ErrCalleeBusy, another)
	another.CalleeHidden = false // as a callee who is visible again, for whom this call would have rung after leaving
	c.fail(store.ErrCalleeBusy, another)
	another.CalleeHidden = true
	next := c.Ring("bob", "carol")
	cancelled := c.Act(hidden.ID, "alice", lastseen.End)
	require.True(t, cancelled.CallerOnly)
	require.Equal(t, lastseen.Cancelled, cancelled.Call.State)
	require.Equal(t, []string{"", next.ID, next.ID}, c.idsOf("alice", "bob", "carol"), "bob's call continues")
	require.True(t, c.Act(c.Begin(another).ID, "dave", lastseen.End).CallerOnly)

	hidden = c.Call("alice", "bob")
	hidden.CalleeHidden, hidden.Ring = true, soon
	c.Begin(hidden)
	c.poll("the call is missed", func() bool {
		for _, step := range c.Expire().Steps {
			require.Equal(t, hidden.ID, step.Call.ID)
			require.Equal(t, lastseen.Missed, step.Call.State)
			require.True(t, step.CallerOnly)
			return true
		}
		return false
	})
	require.Equal(t, []string{"", next.ID}, c.idsOf("alice", "bob"))
	another = c.Call("dave", "bob")
	another.CalleeHidden = true
	c.Begin(another)
}

// testCallUnavailable: a callee who cannot be called is not, but what was started before with a key is returned.
func testCallUnavailable(t *testing.T, c *Calling) {
	call := c.Call("alice", "bob")
	call.Key, call.Digest, call.CalleeUnavailable = "key", "digest", true
	c.fail(store.ErrCalleeUnavailable, call)
	call.CalleeUnavailable = false
	first := c.Begin(call)
	again := c.Call("alice", "bob")
	again.Key, again.Digest, again.CalleeUnavailable = "key", "digest", true
	step, err := c.StartCall(t.Context(), kit.Namespace, again)
	require.NoError(t, err)
	require.Equal(t, store.CallStep{Call: first, Outcome: lastseen.Repeated}, step)
	again.Digest = "other"
	c.fail(store.ErrCallKeyReused, again)
	again.Key = ""
	c.fail(store.ErrCalleeUnavailable, again)
}

func testCallNamespacesAreApart(t *testing.T, c *Calling) {
	call := c.Call("alice", "bob")
	other := NewCalling(t, c.Store)
	for _, other.namespace = range []string{"other", kit.Namespace + "-", "a"} {
		other.Begin(call)
	}
	mine := c.Begin(call)
	c.Act(call.ID, "bob", lastseen.Accept)
	require.Equal(t, lastseen.Ringing, other.Read(call.ID).State)
	require.Equal(t, []string{call.ID}, other.idsOf("alice"))
	require.Empty(t, c.Expire().Steps)
	other.namespace = "nobody"
	other.Unknown(mine.ID)
	require.Equal(t, []string{""}, other.idsOf("alice"))
	require.Equal(t, store.ExpiredCalls{Next: store.MaxCallGap / 2}, other.Expire())
	require.Empty(t, other.KeepAlive("alice"))
	_, err := other.StepCall(t.Context(), "nobody", store.CallAct{ID: mine.ID, User: "bob", Action: lastseen.Accept})
	require.ErrorIs(t, err, store.ErrCallNotFound)
	require.Equal(t, []string{"a", kit.Namespace, kit.Namespace + "-", "other"}, kit.Existing(t, c))
}

// testCallsOfUserIDs: users and devices of any ID, and any key, can call.
func testCallsOfUserIDs(t *testing.T, c *Calling) {
	ids := kit.OddIDs()
	for i, from := range ids {
		call := c.Call(from, ids[(i+1)%len(ids)])
		call.FromDevice, call.App, call.Key, call.Digest = from, `"`+fmt.Sprint(i)+`"`, "~ "+fmt.Sprint(i%7), "d"
		started := c.Begin(call)
		require.Equal(t, call.From, started.From)
		require.Equal(t, call.To, started.To)
		require.Equal(t, call.FromDevice, started.FromDevice)
		again, err := c.StartCall(t.Context(), kit.Namespace, call)
		require.NoError(t, err)
		require.Equal(t, store.CallStep{Call: started, Outcome: lastseen.Repeated}, again)
		require.Equal(t, []string{call.ID, call.ID}, c.idsOf(call.From, call.To))
		accepted := c.step(call.ID, call.To, call.To, lastseen.Accept, "").Call
		require.Equal(t, call.To, accepted.ToDevice)
		require.Equal(t, call.To, accepted.By)
		require.Equal(t, accepted, c.Read(call.ID))
		ended := c.Act(call.ID, call.From, lastseen.End).Call
		require.Equal(t, lastseen.Ended, ended.State)
		require.Equal(t, []string{"", ""}, c.idsOf(call.From, call.To))
	}
}
