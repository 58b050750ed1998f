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

// testCallStart: a call that begins has what the caller said.
func testCallStart(t *testing.T, c *Calling) {
	before := kit.Now(t, c)
	first := c.call("alice", "bob")
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
	require.Equal(t, call, c.read(first.ID))
	require.Equal(t, []lastseen.Call{call, call, {}}, c.callsOf("alice", "bob", "carol"))
	c.Unknown("call_2-A")

	bare := c.Ring("carol", "dave")
	require.Equal(t, lastseen.Call{
		ID: bare.ID, From: "carol", To: "dave", State: lastseen.Ringing, Version: 1, By: "carol",
		Created: bare.Created, Expires: bare.Expires,
	}, bare)
	require.Equal(t, call, c.read(first.ID))
}

// testCallBusy: a user has one call that goes on at most, as caller or callee.
func testCallBusy(t *testing.T, c *Calling) {
	call := c.Ring("alice", "bob")
	for range 2 {
		c.fail(store.ErrCallerBusy, c.call("alice", "carol"))
		c.fail(store.ErrCallerBusy, c.call("alice", "bob"))
		c.fail(store.ErrCallerBusy, c.call("bob", "alice"))
		c.fail(store.ErrCallerBusy, c.call("bob", "carol"))
		c.fail(store.ErrCalleeBusy, c.call("carol", "alice"))
		c.fail(store.ErrCalleeBusy, c.call("carol", "bob"))
		require.Equal(t, []string{call.ID, call.ID, ""}, c.idsOf("alice", "bob", "carol"))
		if c.read(call.ID).State == lastseen.Ringing {
			c.act(call.ID, "bob", lastseen.Accept)
		}
	}
	ends := []func(id string){
		func(id string) { c.act(id, "alice", lastseen.End) },
		func(id string) { c.act(id, "bob", lastseen.End) },
		func(id string) { c.act(id, "bob", lastseen.Reject) },
	}
	for _, end := range ends {
		end(call.ID)
		require.Equal(t, []string{"", ""}, c.idsOf("alice", "bob"))
		call = c.Ring("alice", "bob")
	}
	c.act(call.ID, "alice", lastseen.End)
	c.Ring("bob", "alice")
}

// testCallKey: a call with the same key is the same call, whatever happened to it.
func testCallKey(t *testing.T, c *Calling) {
	first := c.call("alice", "bob")
	first.Key, first.Digest = "a key", "digest"
	call := c.begin(first)
	again := func(want lastseen.Call) {
		t.Helper()
		second := c.call("alice", "bob")
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
	call = c.act(call.ID, "bob", lastseen.Accept).Call
	again(call)
	call = c.act(call.ID, "alice", lastseen.End).Call
	again(call)
	next := c.call("alice", "bob")
	next.Key, next.Digest = "a key ", "digest"
	c.begin(next)
	again(call)
	require.Equal(t, []string{next.ID}, c.idsOf("bob"))
}

// testCallKeysOfOthers: keys of different callers, and those in different namespaces, are different. Without a key
// every call is a new one.
func testCallKeysOfOthers(t *testing.T, c *Calling) {
	pairs := [][2]string{{"alice", "key"}, {"alicek", "ey"}, {"a", "licekey"}, {"alic", "ekey"}, {"alice", "KEY"}}
	for i, p := range pairs {
		call := c.call(p[0], fmt.Sprint("callee", i))
		call.Key, call.Digest = p[1], "digest"
		c.act(c.begin(call).ID, call.From, lastseen.End)
	}
	other := NewCalling(t, c.Store)
	other.namespace = "other"
	call := other.call("alice", "bob")
	call.Key, call.Digest = "key", "another digest"
	other.begin(call)
	for range 2 {
		c.act(c.Ring("alice", "bob").ID, "alice", lastseen.End)
	}
}

// testTooManyCalls: a caller can start so many calls that are kept. Those to a user do not count.
func testTooManyCalls(t *testing.T, c *Calling) {
	for range store.MaxCallsOfUser {
		c.act(c.Ring("alice", "bob").ID, "bob", lastseen.Reject)
	}
	c.fail(store.ErrTooManyCalls, c.call("alice", "bob"))
	c.fail(store.ErrTooManyCalls, c.call("alice", "carol"))
	require.Equal(t, []string{"", "", ""}, c.idsOf("alice", "bob", "carol"))
	c.Ring("bob", "alice")
	require.Equal(t, store.MaxCallsOfUser+1, c.expire().Kept)
}

// testCallHidden: a call to a callee who is busy, which the caller must not learn, rings for the caller alone.
func testCallHidden(t *testing.T, c *Calling) {
	busy := c.active("bob", "carol")
	hidden := c.call("alice", "bob")
	hidden.CalleeHidden, hidden.App = true, `"offer"`
	step, err := c.StartCall(t.Context(), kit.Namespace, hidden)
	require.NoError(t, err)
	require.True(t, step.Unreachable)
	require.Equal(t, lastseen.Stepped, step.Outcome)
	require.Equal(t, lastseen.Call{
		ID: hidden.ID, From: "alice", To: "bob", State: lastseen.Ringing, Version: 1, By: "alice",
		Created: step.Call.Created, Expires: step.Call.Expires, App: `"offer"`,
	}, step.Call)
	require.Equal(t, step.Call, c.read(hidden.ID))
	require.Equal(t, []string{hidden.ID, busy.ID, busy.ID}, c.idsOf("alice", "bob", "carol"))
	for _, action := range lastseen.CallActions() {
		_, err := c.StepCall(t.Context(), kit.Namespace, store.CallAct{ID: hidden.ID, User: "bob", Action: action})
		require.ErrorIs(t, err, store.ErrCallNotFound)
	}
	c.hear("bob")
	alive := c.step(hidden.ID, "alice", "", lastseen.Alive, "")
	require.Equal(t, lastseen.Repeated, alive.Outcome)
	require.True(t, alive.Unreachable)

	another := c.call("dave", "bob")
	c.fail(store.ErrCalleeBusy, another)
	another.CalleeHidden = true
	c.fail(store.ErrCalleeBusy, another)
	c.act(busy.ID, "bob", lastseen.End)
	require.Equal(t, []string{hidden.ID, "", ""}, c.idsOf("alice", "bob", "carol"))
	c.fail(store.ErrCalleeBusy, another)
	another.CalleeHidden = false // as a callee who is visible again, for whom this call would have rung after leaving
	c.fail(store.ErrCalleeBusy, another)
	another.CalleeHidden = true
	next := c.Ring("bob", "carol")
	cancelled := c.act(hidden.ID, "alice", lastseen.End)
	require.True(t, cancelled.Unreachable)
	require.Equal(t, lastseen.Cancelled, cancelled.Call.State)
	require.Equal(t, []string{"", next.ID, next.ID}, c.idsOf("alice", "bob", "carol"), "bob's call goes on")
	require.True(t, c.act(c.begin(another).ID, "dave", lastseen.End).Unreachable)

	hidden = c.call("alice", "bob")
	hidden.CalleeHidden, hidden.Ring = true, soon
	c.begin(hidden)
	c.poll("the call is missed", func() bool {
		for _, step := range c.expire().Steps {
			require.Equal(t, hidden.ID, step.Call.ID)
			require.Equal(t, lastseen.Missed, step.Call.State)
			require.True(t, step.Unreachable)
			return true
		}
		return false
	})
	require.Equal(t, []string{"", next.ID}, c.idsOf("alice", "bob"))
	another = c.call("dave", "bob")
	another.CalleeHidden = true
	c.begin(another)
}

// testCallUnavailable: a callee who cannot be called is not, but what was started before with a key is returned.
func testCallUnavailable(t *testing.T, c *Calling) {
	call := c.call("alice", "bob")
	call.Key, call.Digest, call.CalleeUnavailable = "key", "digest", true
	c.fail(store.ErrCalleeUnavailable, call)
	call.CalleeUnavailable = false
	first := c.begin(call)
	again := c.call("alice", "bob")
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
	call := c.call("alice", "bob")
	other := NewCalling(t, c.Store)
	for _, other.namespace = range []string{"other", kit.Namespace + "-", "a"} {
		other.begin(call)
	}
	mine := c.begin(call)
	c.act(call.ID, "bob", lastseen.Accept)
	require.Equal(t, lastseen.Ringing, other.read(call.ID).State)
	require.Equal(t, []string{call.ID}, other.idsOf("alice"))
	require.Empty(t, c.expire().Steps)
	other.namespace = "nobody"
	other.Unknown(mine.ID)
	require.Equal(t, []string{""}, other.idsOf("alice"))
	require.Equal(t, store.ExpiredCalls{Next: store.MaxCallGap / 2}, other.expire())
	require.Empty(t, other.hear("alice"))
	_, err := other.StepCall(t.Context(), "nobody", store.CallAct{ID: mine.ID, User: "bob", Action: lastseen.Accept})
	require.ErrorIs(t, err, store.ErrCallNotFound)
	require.Equal(t, []string{"a", kit.Namespace, kit.Namespace + "-", "other"}, kit.Existing(t, c))
}

// testCallsOfUserIDs: users and devices of any ID, and any key, can call.
func testCallsOfUserIDs(t *testing.T, c *Calling) {
	ids := kit.OddIDs()
	for i, from := range ids {
		call := c.call(from, ids[(i+1)%len(ids)])
		call.FromDevice, call.App, call.Key, call.Digest = from, `"`+fmt.Sprint(i)+`"`, "~ "+fmt.Sprint(i%7), "d"
		started := c.begin(call)
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
		require.Equal(t, accepted, c.read(call.ID))
		ended := c.act(call.ID, call.From, lastseen.End).Call
		require.Equal(t, lastseen.Ended, ended.State)
		require.Equal(t, []string{"", ""}, c.idsOf(call.From, call.To))
	}
}
