package storetest

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// RunCalls tests that stores keep the contract of calls. Run includes it. Each subtest opens a store of its own.
func RunCalls(t *testing.T, open Open) {
	t.Helper()
	suite := []struct {
		name string
		test func(*testing.T, *calling)
	}{
		{"Start", testCallStart},
		{"Start/Busy", testCallBusy},
		{"Start/Key", testCallKey},
		{"Start/KeyOfOthers", testCallKeysOfOthers},
		{"Start/TooMany", testTooManyCalls},
		{"Start/Hidden", testCallHidden},
		{"Start/HiddenFree", testCallHiddenFree},
		{"Start/Namespaces", testCallNamespacesAreApart},
		{"Start/UserIDs", testCallsOfUserIDs},
		{"Step/Every", testCallSteps},
		{"Step/Devices", testCallDevices},
		{"Step/App", testCallApp},
		{"Step/LargeApp", testCallLargeApp},
		{"Step/NotParty", testCallNotParty},
		{"Read", testReadCalls},
		{"Read/Many", testReadManyCalls},
		{"Expire/Ringing", testCallMissed},
		{"Expire/Read", testCallMissedOnRead},
		{"Expire/Action", testCallMissedOnAction},
		{"Expire/Repeated", testCallMissedOnKey},
		{"Expire/Start", testCallMissedOnStart},
		{"Expire/Active", testCallLost},
		{"Expire/Hear", testCallLostOnHear},
		{"Expire/Next", testExpireNext},
		{"Expire/Many", testExpireMany},
		{"Hear", testHearCalls},
		{"Hear/Devices", testHearDevices},
		{"Hear/Alive", testAliveIsHeard},
		{"Hear/Ringing", testHearRinging},
		{"Hear/Repeated", testAcceptIsHeard},
		{"InCall", testInCall},
		{"InCall/Ringing", testInCallNotActive},
		{"InCall/NotShown", testInCallNotShown},
		{"InCall/Lost", testInCallLost},
		{"InCall/Slow", testInCallSlowCopier},
		{"InCall/Renewed", testInCallRenewed},
		{"InCall/Age", testInCallAge},
		{"InCall/Many", testInCallMany},
		{"InCall/Next", testInCallNextCall},
		{"Details", testInCallDetails},
		{"Details/NeverSeen", testInCallNeverSeen},
		{"Details/NoNamespace", testInCallNoNamespace},
		{"Details/UserIDs", testInCallUserIDs},
		{"Details/Trim", testInCallTrim},
		{"Feed", testInCallFeed},
		{"Feed/Grey", testInCallFeedGrey},
		{"Feed/Sweep", testInCallSweep},
		{"Feed/SweepOrder", testInCallSweepOrder},
		{"Feed/Before", testInCallBeforeFeed},
		{"Forget", testCallForget},
		{"Forget/Other", testCallForgetOther},
		{"Delete", testCallDelete},
		{"RemoveEmpty", testCallRemoveEmpty},
		{"RemoveEmpty/Writers", testCallRemoveEmptyWriters},
		{"Names", testCallNamespaces},
		{"CancelledContext", testCallsCancelled},
		{"Close", testCallsClosed},
		{"Concurrent", testCallsConcurrent},
		{"Concurrent/Start", testCallsStartConcurrent},
		{"Concurrent/Key", testCallsKeyConcurrent},
	}
	for _, c := range suite {
		t.Run(c.name, func(t *testing.T) { c.test(t, newCalling(t, open(t))) })
	}
	t.Run("Model", func(t *testing.T) { testCallsModel(t, open) })
}

// The tests cannot set the store's clock. Calls of most tests neither ring nor stay quiet for too long. Those of tests
// of expiry do so soon, and the tests poll for what has to happen then, for up to eventually.
const (
	long       = time.Hour
	soon       = 30 * time.Millisecond
	eventually = 30 * time.Second
)

// calling makes calls in a namespace.
type calling struct {
	store.Store
	t         require.TestingT
	namespace string
	ids       atomic.Int64 // that were given to calls
}

func newCalling(t require.TestingT, s store.Store) *calling { return &calling{Store: s, t: t, namespace: ns} }

// call returns a call from one user to another that is to begin.
func (c *calling) call(from, to string) store.NewCall {
	return store.NewCall{
		ID: fmt.Sprintf("call_%d-A", c.ids.Add(1)), From: from, To: to, Ring: long, Quiet: long, Shown: true,
	}
}

// begin starts a call, which must succeed.
func (c *calling) begin(call store.NewCall) lastseen.Call {
	step, err := c.StartCall(context.Background(), c.namespace, call)
	require.NoError(c.t, err)
	require.Equal(c.t, lastseen.Stepped, step.Outcome)
	require.Equal(c.t, lastseen.Ringing, step.Call.State)
	return step.Call
}

// ring has one user call another.
func (c *calling) ring(from, to string) lastseen.Call { return c.begin(c.call(from, to)) }

// active has one user call another, who accepts.
func (c *calling) active(from, to string) lastseen.Call { return c.accepted(c.call(from, to)) }

// accepted starts a call, which the callee accepts.
func (c *calling) accepted(call store.NewCall) lastseen.Call {
	c.begin(call)
	return c.act(call.ID, call.To, lastseen.Accept).Call
}

// fail starts a call, which must fail.
func (c *calling) fail(want error, call store.NewCall) {
	step, err := c.StartCall(context.Background(), c.namespace, call)
	require.ErrorIs(c.t, err, want)
	require.Zero(c.t, step)
	require.ErrorIs(c.t, errorOf(c.ReadCall(context.Background(), c.namespace, call.ID)), store.ErrCallNotFound)
}

// step does what a party wants, on a device.
func (c *calling) step(id, user, device string, action lastseen.CallAction, app string) store.CallStep {
	step, err := c.StepCall(context.Background(), c.namespace, store.CallAct{
		ID: id, User: user, Device: device, Action: action, App: app,
	})
	require.NoError(c.t, err)
	return step
}

// act is step without a device, for an action that must change the state.
func (c *calling) act(id, user string, action lastseen.CallAction) store.CallStep {
	step := c.step(id, user, "", action, "")
	require.Equal(c.t, lastseen.Stepped, step.Outcome, "%s of %s", action, user)
	require.False(c.t, step.Expired)
	return step
}

// refuse is step without a device, for an action that must be refused.
func (c *calling) refuse(id, user string, action lastseen.CallAction) store.CallStep {
	step := c.step(id, user, "", action, "")
	require.Equal(c.t, lastseen.Refused, step.Outcome, "%s of %s", action, user)
	return step
}

// read returns a call.
func (c *calling) read(id string) lastseen.Call {
	call, err := c.ReadCall(context.Background(), c.namespace, id)
	require.NoError(c.t, err)
	return call
}

// unknown checks that there is no call with an ID.
func (c *calling) unknown(id string) {
	call, err := c.ReadCall(context.Background(), c.namespace, id)
	require.ErrorIs(c.t, err, store.ErrCallNotFound)
	require.Zero(c.t, call)
}

// callsOf returns the calls of users that go on.
func (c *calling) callsOf(users ...string) []lastseen.Call {
	all, err := c.ReadCalls(context.Background(), c.namespace, users)
	require.NoError(c.t, err)
	require.Len(c.t, all, len(users))
	return all
}

// idsOf returns the IDs of the calls of users that go on.
func (c *calling) idsOf(users ...string) (ids []string) {
	for i, call := range c.callsOf(users...) {
		if call.ID != "" {
			require.False(c.t, call.State.Over())
			require.NotEmpty(c.t, call.Party(users[i]))
		} else {
			require.Zero(c.t, call)
		}
		ids = append(ids, call.ID)
	}
	return ids
}

// expire calls ExpireCalls once.
func (c *calling) expire() store.ExpiredCalls {
	expired, err := c.ExpireCalls(context.Background(), c.namespace)
	require.NoError(c.t, err)
	for _, step := range expired.Steps {
		c.requireExpired(step)
	}
	return expired
}

// requireExpired checks a step of a call that time ended.
func (c *calling) requireExpired(step store.CallStep) {
	require.True(c.t, step.Expired)
	require.Equal(c.t, lastseen.Stepped, step.Outcome)
	requireOver(c.t, step.Call)
	require.Contains(c.t, []lastseen.CallState{lastseen.Missed, lastseen.Lost}, step.Call.State)
	require.Empty(c.t, step.Call.By)
	require.Empty(c.t, step.Call.ByDevice)
}

// requireOver checks what holds for every call that is over.
func requireOver(t require.TestingT, call lastseen.Call) {
	require.True(t, call.State.Over(), call.State)
	require.NotZero(t, call.Over)
	require.Zero(t, call.Expires)
	require.Empty(t, call.App)
}

// hear notes that users were heard without a device.
func (c *calling) hear(users ...string) []store.CallStep {
	heard := make([]store.CallHeard, len(users))
	for i, user := range users {
		heard[i].User = user
	}
	return c.hearOn(heard...)
}

func (c *calling) hearOn(heard ...store.CallHeard) []store.CallStep {
	steps, err := c.HearCalls(context.Background(), c.namespace, heard)
	require.NoError(c.t, err)
	for _, step := range steps {
		c.requireExpired(step)
	}
	return steps
}

// poll waits until something is true.
func (c *calling) poll(what string, isSo func() bool) {
	for end := time.Now().Add(eventually); !isSo(); time.Sleep(time.Millisecond) {
		require.True(c.t, time.Now().Before(end), "it takes too long: %s", what)
	}
}

// testCallStart: a call that begins has what the caller said.
func testCallStart(t *testing.T, c *calling) {
	before := now(t, c)
	first := c.call("alice", "bob")
	first.FromDevice, first.App, first.Ring = "phone", `{"offer":"v=0\r\n\u0000é"}`, 10*time.Minute
	step, err := c.StartCall(t.Context(), ns, first)
	require.NoError(t, err)
	call := step.Call
	require.InDelta(t, before, call.Created, 10_000)
	require.InDelta(t, call.Created.Add(10*time.Minute), call.Expires, 10_000)
	require.Equal(t, store.CallStep{Outcome: lastseen.Stepped, Call: lastseen.Call{
		ID: first.ID, From: "alice", To: "bob", State: lastseen.Ringing, Version: 1, FromDevice: "phone",
		By: "alice", ByDevice: "phone", Created: call.Created, Expires: call.Expires, App: first.App,
	}}, step)
	require.Equal(t, call, c.read(first.ID))
	require.Equal(t, []lastseen.Call{call, call, {}}, c.callsOf("alice", "bob", "carol"))
	c.unknown("call_2-A")

	bare := c.ring("carol", "dave")
	require.Equal(t, lastseen.Call{
		ID: bare.ID, From: "carol", To: "dave", State: lastseen.Ringing, Version: 1, By: "carol",
		Created: bare.Created, Expires: bare.Expires,
	}, bare)
	require.Equal(t, call, c.read(first.ID))
}

// testCallBusy: a user has one call that goes on at most, as caller or callee.
func testCallBusy(t *testing.T, c *calling) {
	call := c.ring("alice", "bob")
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
		call = c.ring("alice", "bob")
	}
	c.act(call.ID, "alice", lastseen.End)
	c.ring("bob", "alice")
}

// testCallKey: a call with the same key is the same call, whatever happened to it.
func testCallKey(t *testing.T, c *calling) {
	first := c.call("alice", "bob")
	first.Key, first.Digest = "a key", "digest"
	call := c.begin(first)
	again := func(want lastseen.Call) {
		t.Helper()
		second := c.call("alice", "bob")
		second.Key, second.Digest = "a key", "digest"
		step, err := c.StartCall(t.Context(), ns, second)
		require.NoError(t, err)
		require.Equal(t, store.CallStep{Call: want, Outcome: lastseen.Repeated}, step)
		c.unknown(second.ID)
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
func testCallKeysOfOthers(t *testing.T, c *calling) {
	pairs := [][2]string{{"alice", "key"}, {"alicek", "ey"}, {"a", "licekey"}, {"alic", "ekey"}, {"alice", "KEY"}}
	for i, p := range pairs {
		call := c.call(p[0], fmt.Sprint("callee", i))
		call.Key, call.Digest = p[1], "digest"
		c.act(c.begin(call).ID, call.From, lastseen.End)
	}
	other := newCalling(t, c.Store)
	other.namespace = "other"
	call := other.call("alice", "bob")
	call.Key, call.Digest = "key", "another digest"
	other.begin(call)
	for range 2 {
		c.act(c.ring("alice", "bob").ID, "alice", lastseen.End)
	}
}

// testTooManyCalls: a caller can start so many calls that are kept. Those to a user do not count.
func testTooManyCalls(t *testing.T, c *calling) {
	for range store.MaxCallsOfUser {
		c.act(c.ring("alice", "bob").ID, "bob", lastseen.Reject)
	}
	c.fail(store.ErrTooManyCalls, c.call("alice", "bob"))
	c.fail(store.ErrTooManyCalls, c.call("alice", "carol"))
	require.Equal(t, []string{"", "", ""}, c.idsOf("alice", "bob", "carol"))
	c.ring("bob", "alice")
	require.Equal(t, store.MaxCallsOfUser+1, c.expire().Kept)
}

// testCallHidden: a call to a callee who is busy, which the caller must not learn, rings for the caller alone.
func testCallHidden(t *testing.T, c *calling) {
	busy := c.active("bob", "carol")
	hidden := c.call("alice", "bob")
	hidden.CalleeHidden, hidden.App = true, `"offer"`
	step, err := c.StartCall(t.Context(), ns, hidden)
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
		_, err := c.StepCall(t.Context(), ns, store.CallAct{ID: hidden.ID, User: "bob", Action: action})
		require.ErrorIs(t, err, store.ErrCallNotFound)
	}
	c.hear("bob")
	alive := c.step(hidden.ID, "alice", "", lastseen.Alive, "")
	require.Equal(t, lastseen.Repeated, alive.Outcome)
	require.True(t, alive.Unreachable)

	c.act(busy.ID, "bob", lastseen.End)
	require.Equal(t, []string{hidden.ID, "", ""}, c.idsOf("alice", "bob", "carol"))
	next := c.ring("bob", "carol")
	cancelled := c.act(hidden.ID, "alice", lastseen.End)
	require.True(t, cancelled.Unreachable)
	require.Equal(t, lastseen.Cancelled, cancelled.Call.State)
	require.Equal(t, []string{"", next.ID, next.ID}, c.idsOf("alice", "bob", "carol"), "bob's call goes on")

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
}

// testCallHiddenFree: a hidden callee who is not busy is a party.
func testCallHiddenFree(t *testing.T, c *calling) {
	hidden := c.call("alice", "bob")
	hidden.CalleeHidden = true
	step, err := c.StartCall(t.Context(), ns, hidden)
	require.NoError(t, err)
	require.False(t, step.Unreachable)
	require.Equal(t, []string{hidden.ID, hidden.ID}, c.idsOf("alice", "bob"))
	require.False(t, c.act(hidden.ID, "bob", lastseen.Accept).Unreachable)
	another := c.call("alice", "carol")
	another.CalleeHidden = true
	c.fail(store.ErrCallerBusy, another)
}

func testCallNamespacesAreApart(t *testing.T, c *calling) {
	call := c.call("alice", "bob")
	other := newCalling(t, c.Store)
	for _, other.namespace = range []string{"other", ns + "-", "a"} {
		other.begin(call)
	}
	mine := c.begin(call)
	c.act(call.ID, "bob", lastseen.Accept)
	require.Equal(t, lastseen.Ringing, other.read(call.ID).State)
	require.Equal(t, []string{call.ID}, other.idsOf("alice"))
	require.Empty(t, c.expire().Steps)
	other.namespace = "nobody"
	other.unknown(mine.ID)
	require.Equal(t, []string{""}, other.idsOf("alice"))
	require.Equal(t, store.ExpiredCalls{Next: store.MaxCallGap / 2}, other.expire())
	require.Empty(t, other.hear("alice"))
	_, err := other.StepCall(t.Context(), "nobody", store.CallAct{ID: mine.ID, User: "bob", Action: lastseen.Accept})
	require.ErrorIs(t, err, store.ErrCallNotFound)
	require.Equal(t, []string{"a", ns, ns + "-", "other"}, existing(t, c))
}

// testCallsOfUserIDs: users and devices of any ID, and any key, can call.
func testCallsOfUserIDs(t *testing.T, c *calling) {
	ids := oddIDs()
	for i, from := range ids {
		call := c.call(from, ids[(i+1)%len(ids)])
		call.FromDevice, call.App, call.Key, call.Digest = from, `"`+fmt.Sprint(i)+`"`, "~ "+fmt.Sprint(i%7), "d"
		started := c.begin(call)
		require.Equal(t, call.From, started.From)
		require.Equal(t, call.To, started.To)
		require.Equal(t, call.FromDevice, started.FromDevice)
		again, err := c.StartCall(t.Context(), ns, call)
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
