package calls

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/kit"
)

// inState returns a call of alice on a phone, to bob, that is in a state. If it was accepted, bob did so on a tablet.
func (c *Calling) inState(state lastseen.CallState) lastseen.Call {
	call := c.Call("alice", "bob")
	call.FromDevice, call.App = "phone", `"offer"`
	switch state {
	case lastseen.Missed:
		call.Ring = soon
	case lastseen.Lost:
		call.Timeout = soon
	}
	c.Begin(call)
	if state == lastseen.Active || state == lastseen.Ended || state == lastseen.Lost {
		c.step(call.ID, "bob", "tablet", lastseen.Accept, "")
	}
	switch state {
	case lastseen.Ended, lastseen.Cancelled:
		c.step(call.ID, "alice", "phone", lastseen.End, "")
	case lastseen.Rejected:
		c.step(call.ID, "bob", "tablet", lastseen.Reject, "")
	case lastseen.Missed, lastseen.Lost:
		c.poll(string(state), func() bool { return len(c.Expire().Steps) == 1 })
	}
	got := c.Read(call.ID)
	require.Equal(c.t, state, got.State)
	return got
}

// testCallSteps does each action of each party in each state, on each device.
func testCallSteps(t *testing.T, c *Calling) {
	n := 0
	for _, state := range lastseen.CallStates() {
		for _, action := range actions() {
			for _, user := range []string{"alice", "bob"} {
				for _, device := range []string{"", "phone", "tablet"} {
					one := NewCalling(t, c.Store) // a caller can start only so many
					one.namespace = fmt.Sprint("steps", n)
					n++
					was := one.inState(state)
					one.requireStep(was, store.CallAct{ID: was.ID, User: user, Device: device, Action: action})
				}
			}
		}
	}
}

// requireStep checks what an action does to a call that has not expired.
func (c *Calling) requireStep(was lastseen.Call, a store.CallAct) {
	c.t.(*testing.T).Helper()
	what := fmt.Sprintf("%s of %s on %q, in %s", a.Action, a.User, a.Device, was.State)
	state, outcome := was.Step(a.Action, was.Party(a.User), a.Device)
	step := c.step(a.ID, a.User, a.Device, a.Action, "")
	require.Equal(c.t, outcome, step.Outcome, what)
	require.False(c.t, step.Expired, what)
	require.False(c.t, step.CallerOnly, what)
	want := was
	if outcome == lastseen.Stepped {
		want.State, want.By, want.ByDevice, want.Version = state, a.User, a.Device, was.Version+1
		if state == lastseen.Active || state == lastseen.Rejected {
			want.ToDevice = a.Device
		}
		if state == lastseen.Active {
			want.Accepted = step.Call.Accepted
			requireNear(c.t, kit.Now(c.t, c), want.Accepted, 10_000, what)
		} else {
			want.Over, want.App = step.Call.Over, ""
			requireOver(c.t, step.Call)
			requireNear(c.t, kit.Now(c.t, c), want.Over, 10_000, what)
		}
	}
	want.Expires = step.Call.Expires // a keepalive changes it
	require.Equal(c.t, state.Over(), want.Expires == 0, what)
	require.Equal(c.t, want, step.Call, what)
	read := c.Read(a.ID)
	require.Equal(c.t, want, read, what)
	id := was.ID
	if state.Over() {
		id = ""
	}
	require.Equal(c.t, []string{id, id}, c.idsOf("alice", "bob"), what)
	inCall := []string{}
	if state == lastseen.Active {
		inCall = []string{"alice", "bob"}
	}
	require.Equal(c.t, inCall, c.inCall("alice", "bob"), what)
}

// testCallApp: accepting and being alive can replace the app's value. Nothing else does.
func testCallApp(t *testing.T, c *Calling) {
	first := c.Call("alice", "bob")
	first.App = `"offer"`
	c.Begin(first)
	version := int64(1)
	steps := []struct {
		user    string
		action  lastseen.CallAction
		app     string
		outcome lastseen.CallOutcome
		want    string
		changes bool
	}{
		{"alice", lastseen.Accept, `"refused"`, lastseen.Refused, `"offer"`, false},
		{"alice", lastseen.Alive, "", lastseen.Repeated, `"offer"`, false},
		{"alice", lastseen.Alive, `"second offer"`, lastseen.Repeated, `"second offer"`, true},
		{"alice", lastseen.Alive, `"second offer"`, lastseen.Repeated, `"second offer"`, false},
		{"bob", lastseen.Accept, `{"answer":1}`, lastseen.Stepped, `{"answer":1}`, true},
		{"bob", lastseen.Accept, `{"answer":1}`, lastseen.Repeated, `{"answer":1}`, false},
		{"bob", lastseen.Accept, "", lastseen.Repeated, `{"answer":1}`, false},
		{"bob", lastseen.Reject, `"refused"`, lastseen.Refused, `{"answer":1}`, false},
		{"bob", lastseen.Alive, `[1,2]`, lastseen.Repeated, `[1,2]`, true},
		{"bob", lastseen.Accept, `{"answer":2}`, lastseen.Repeated, `{"answer":2}`, true},
		{"alice", lastseen.End, `"ignored"`, lastseen.Stepped, "", true},
		{"alice", lastseen.End, `"ignored"`, lastseen.Repeated, "", false},
		{"alice", lastseen.Alive, `"late"`, lastseen.Refused, "", false},
	}
	for _, s := range steps {
		step := c.step(first.ID, s.user, "", s.action, s.app)
		what := fmt.Sprintf("%s of %s with %s", s.action, s.user, s.app)
		require.Equal(t, s.outcome, step.Outcome, what)
		require.Equal(t, s.want, step.Call.App, what)
		require.Equal(t, step.Call, c.Read(first.ID), what)
		if s.changes {
			version++
		}
		require.Equal(t, version, step.Call.Version, what)
	}
}

// testCallLargeApp: the largest value arrives as it was written, whatever bytes it has.
func testCallLargeApp(t *testing.T, c *Calling) {
	odd := strings.Join(kit.OddIDs(), "")
	large := strings.Repeat(odd, store.MaxCallApp/len(odd)+1)[:store.MaxCallApp]
	call := c.Call("alice", "bob")
	call.App = large
	require.Equal(t, large, c.Begin(call).App)
	require.Equal(t, large, c.Read(call.ID).App)
	other := strings.Repeat("x", store.MaxCallApp)
	require.Equal(t, other, c.step(call.ID, "bob", "", lastseen.Accept, other).Call.App)
	require.Equal(t, other, c.callsOf("alice")[0].App)
	c.Act(call.ID, "alice", lastseen.End)
	require.Empty(t, c.Read(call.ID).App)
}

// testCallNotParty: others can do nothing in a call, and learn nothing.
func testCallNotParty(t *testing.T, c *Calling) {
	call := c.Ring("alice", "bob")
	other := c.Ring("carol", "dave")
	for _, a := range actions() {
		for _, act := range []store.CallAct{
			{ID: call.ID, User: "carol", Action: a},
			{ID: call.ID, User: "", Action: a},
			{ID: call.ID, User: "Alice", Action: a},
			{ID: other.ID, User: "alice", Action: a},
			{ID: "unknown", User: "alice", Action: a},
		} {
			step, err := c.StepCall(t.Context(), kit.Namespace, act)
			require.ErrorIs(t, err, store.ErrCallNotFound)
			require.Zero(t, step)
		}
	}
	require.Equal(t, call, c.Read(call.ID))
	require.Equal(t, other, c.Read(other.ID))
}

func testReadCalls(t *testing.T, c *Calling) {
	require.Empty(t, c.callsOf())
	require.Equal(t, []lastseen.Call{{}, {}}, c.callsOf("alice", "alice"))
	call, other := c.active("alice", "bob"), c.Ring("carol", "dave")
	require.Equal(t, []lastseen.Call{other, {}, call, call, other, call}, c.callsOf(
		"dave", "nobody", "alice", "bob", "carol", "alice"))
	over := c.Act(call.ID, "bob", lastseen.End).Call
	require.Equal(t, []lastseen.Call{{}, {}, other}, c.callsOf("alice", "bob", "carol"))
	require.Equal(t, over, c.Read(call.ID), "what is over is kept")
	all, err := c.ReadCalls(context.Background(), c.namespace,
		[]string{other.ID, "none", call.ID, call.ID}, []string{"alice", "dave", "carol"})
	require.NoError(t, err)
	require.Equal(t, []lastseen.Call{other, {}, over, over, {}, other, other}, all)
}

// testReadManyCalls reads as many calls as possible.
func testReadManyCalls(t *testing.T, c *Calling) {
	var users, want []string
	for i := range store.MaxCallBatch / 2 {
		from, to := fmt.Sprint("from", i), fmt.Sprint("to", i)
		id := c.Ring(from, to).ID
		users, want = append(users, from, to), append(want, id, id)
	}
	require.Equal(t, want, c.idsOf(users...))
	require.Empty(t, c.KeepAlive(users...))
	expired := c.Expire()
	require.Equal(t, store.ExpiredCalls{
		Calls: len(users) / 2, Kept: len(users) / 2, Next: store.MaxCallGap / 2,
	}, expired)
}
