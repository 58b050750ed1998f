// Package calls has the conformance tests of calls.
package calls

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/kit"
)

// actions returns all actions.
func actions() []lastseen.CallAction {
	return []lastseen.CallAction{lastseen.Accept, lastseen.Reject, lastseen.End, lastseen.Alive}
}

// Run tests that stores keep the contract of calls. Run includes it. Each subtest opens its own store.
func Run(t *testing.T, open kit.Open) {
	t.Helper()
	suite := []callCase{
		{"Start", testCallStart},
		{"Start/Key", testCallKey},
		{"Start/KeyOfOthers", testCallKeysOfOthers},
		{"Start/TooMany", testTooManyCalls},
		{"Start/Hidden", testCallHidden},
		{"Start/Unavailable", testCallUnavailable},
		{"Start/Namespaces", testCallNamespacesAreApart},
		{"Start/UserIDs", testCallsOfUserIDs},
		{"Step/Every", testCallSteps},
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
		{"Expire/KeepAlive", testCallLostOnKeepAlive},
		{"Expire/Next", testExpireNext},
		{"Expire/Many", testExpireMany},
		{"KeepAlive", testKeepCallsAlive},
		{"KeepAlive/Call", testActiveCall},
		{"KeepAlive/Devices", testKeepAliveDevices},
		{"KeepAlive/Alive", testAliveIsActive},
		{"KeepAlive/Ringing", testKeepAliveRinging},
		{"KeepAlive/Repeated", testAcceptIsActive},
	}
	for _, c := range slices.Concat(suite, inCallCases(), callNamespaceCases()) {
		t.Run(c.name, func(t *testing.T) { c.test(t, NewCalling(t, open(t))) })
	}
	t.Run("Model", func(t *testing.T) { testCallsModel(t, open) })
}

type callCase struct {
	name string
	test func(*testing.T, *Calling)
}

// inCallCases are the tests of who is in a call.
func inCallCases() []callCase {
	return []callCase{
		{"InCall", testInCall},
		{"InCall/Forgotten", testInCallForgotten},
		{"InCall/NotShown", testInCallNotShown},
		{"InCall/Lost", testInCallLost},
		{"InCall/Renewed", testInCallRenewed},
		{"Details", testInCallDetails},
		{"Details/NeverSeen", testInCallNeverSeen},
		{"Details/NoNamespace", testInCallNoNamespace},
		{"Details/UserIDs", testInCallUserIDs},
		{"Details/Trim", testInCallTrim},
	}
}

// callNamespaceCases are the tests of what else happens in a namespace with calls.
func callNamespaceCases() []callCase {
	return []callCase{
		{"Forget", testCallForget},
		{"Delete", testCallDelete},
		{"RemoveEmpty", testCallRemoveEmpty},
		{"RemoveEmpty/Writers", testCallRemoveEmptyWriters},
		{"Names", testCallNamespaces},
		{"Concurrent", testCallsConcurrent},
		{"Concurrent/Start", testCallsStartConcurrent},
		{"Concurrent/Key", testCallsKeyConcurrent},
	}
}

// The tests cannot set the store's clock. Calls of most tests neither ring nor stay quiet for too long. Those of tests
// of expiry do so soon, and the tests poll for what has to happen then, for up to eventually.
const (
	long       = time.Hour
	soon       = 30 * time.Millisecond
	eventually = 30 * time.Second
)

// Calling makes calls in a namespace.
type Calling struct {
	store.Store
	t         require.TestingT
	namespace string
	ids       atomic.Int64 // that were given to calls
}

// NewCalling returns one in the namespace kit.Namespace.
func NewCalling(t require.TestingT, s store.Store) *Calling {
	return &Calling{Store: s, t: t, namespace: kit.Namespace}
}

// Call returns a call from one user to another that is to begin.
func (c *Calling) Call(from, to string) store.NewCall {
	return store.NewCall{
		ID: fmt.Sprintf("call_%d-A", c.ids.Add(1)), From: from, To: to, Ring: long, Timeout: long, Shown: true,
	}
}

// Begin starts a call, which must succeed.
func (c *Calling) Begin(call store.NewCall) lastseen.Call {
	step, err := c.StartCall(context.Background(), c.namespace, call)
	require.NoError(c.t, err)
	require.Equal(c.t, lastseen.Stepped, step.Outcome)
	require.Equal(c.t, lastseen.Ringing, step.Call.State)
	return step.Call
}

// Ring has one user call another.
func (c *Calling) Ring(from, to string) lastseen.Call { return c.Begin(c.Call(from, to)) }

// active has one user call another, who accepts.
func (c *Calling) active(from, to string) lastseen.Call { return c.Accepted(c.Call(from, to)) }

// Accepted starts a call, which the callee accepts.
func (c *Calling) Accepted(call store.NewCall) lastseen.Call {
	c.Begin(call)
	return c.Act(call.ID, call.To, lastseen.Accept).Call
}

// fail starts a call, which must fail.
func (c *Calling) fail(want error, call store.NewCall) {
	step, err := c.StartCall(context.Background(), c.namespace, call)
	require.ErrorIs(c.t, err, want)
	require.Zero(c.t, step)
	_, err = store.ReadCall(context.Background(), c, c.namespace, call.ID)
	require.ErrorIs(c.t, err, store.ErrCallNotFound)
}

// step does what a party wants, on a device.
func (c *Calling) step(id, user, device string, action lastseen.CallAction, app string) store.CallStep {
	step, err := c.StepCall(context.Background(), c.namespace, store.CallAct{
		ID: id, User: user, Device: device, Action: action, App: app,
	})
	require.NoError(c.t, err)
	return step
}

// Act is step without a device, for an action that must change the state.
func (c *Calling) Act(id, user string, action lastseen.CallAction) store.CallStep {
	step := c.step(id, user, "", action, "")
	require.Equal(c.t, lastseen.Stepped, step.Outcome, "%s of %s", action, user)
	require.False(c.t, step.Expired)
	return step
}

// refuse is step without a device, for an action that must be refused.
func (c *Calling) refuse(id, user string, action lastseen.CallAction) {
	step := c.step(id, user, "", action, "")
	require.Equal(c.t, lastseen.Refused, step.Outcome, "%s of %s", action, user)
}

// Read returns a call.
func (c *Calling) Read(id string) lastseen.Call {
	call, err := store.ReadCall(context.Background(), c, c.namespace, id)
	require.NoError(c.t, err)
	return call
}

// Unknown checks that there is no call with an ID.
func (c *Calling) Unknown(id string) {
	call, err := store.ReadCall(context.Background(), c, c.namespace, id)
	require.ErrorIs(c.t, err, store.ErrCallNotFound)
	require.Zero(c.t, call)
}

// callsOf returns the calls of users that go on.
func (c *Calling) callsOf(users ...string) []lastseen.Call {
	all, err := c.ReadCalls(context.Background(), c.namespace, nil, users)
	require.NoError(c.t, err)
	require.Len(c.t, all, len(users))
	return all
}

// idsOf returns the IDs of the calls of users that go on.
func (c *Calling) idsOf(users ...string) (ids []string) {
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

// Expire calls ExpireCalls once.
func (c *Calling) Expire() store.ExpiredCalls {
	expired, err := c.ExpireCalls(context.Background(), c.namespace)
	require.NoError(c.t, err)
	for _, step := range expired.Steps {
		c.requireExpired(step)
	}
	return expired
}

// requireExpired checks a step of a call that time ended.
func (c *Calling) requireExpired(step store.CallStep) {
	require.True(c.t, step.Expired)
	require.Equal(c.t, lastseen.Stepped, step.Outcome)
	requireOver(c.t, step.Call)
	require.Contains(c.t, []lastseen.CallState{lastseen.Missed, lastseen.Lost}, step.Call.State)
	require.Empty(c.t, step.Call.By)
	require.Empty(c.t, step.Call.ByDevice)
}

// requireOver checks what holds for every call that has ended.
func requireOver(t require.TestingT, call lastseen.Call) {
	require.True(t, call.State.Over(), call.State)
	require.NotZero(t, call.Over)
	require.Zero(t, call.Expires)
	require.Empty(t, call.App)
}

// KeepAlive notes that users were active without a device.
func (c *Calling) KeepAlive(users ...string) []store.CallStep { return c.aliveOn(onAny(users...)...) }

// onAny returns users who were active without a device.
func onAny(users ...string) []store.KeepAlive {
	active := make([]store.KeepAlive, len(users))
	for i, user := range users {
		active[i].User = user
	}
	return active
}

func (c *Calling) aliveOn(active ...store.KeepAlive) []store.CallStep {
	return c.aliveResult(active...).Steps
}

// aliveResult is aliveOn with all that the store returns.
func (c *Calling) aliveResult(active ...store.KeepAlive) store.KeptAlive {
	result, err := c.KeepCallsAlive(context.Background(), c.namespace, active)
	require.NoError(c.t, err)
	for _, step := range result.Steps {
		c.requireExpired(step)
	}
	return result
}

// requireNear checks a time that is not known exactly, to some milliseconds.
func requireNear(t require.TestingT, want, got lastseen.Instant, within float64, why ...any) {
	require.InDelta(t, float64(want), float64(got), within, why...)
}

// poll waits until something is true.
func (c *Calling) poll(what string, isSo func() bool) {
	for end := time.Now().Add(eventually); !isSo(); time.Sleep(time.Millisecond) {
		require.True(c.t, time.Now().Before(end), "it takes too long: %s", what)
	}
}

// Methods returns the methods of a store that concern calls.
func Methods(s store.Store, ns string) map[string]kit.Method {
	n := store.NewCall{ID: "a", From: "alice", To: "bob", Ring: time.Hour, Timeout: time.Hour, Shown: true, Key: "k"}
	start := func(ctx context.Context) error { return kit.ErrorOf(s.StartCall(ctx, ns, n)) }
	step := func(user string, action lastseen.CallAction) kit.Method {
		act := store.CallAct{ID: "a", User: user, Action: action, App: "1"}
		return func(ctx context.Context) error {
			_, err := s.StepCall(ctx, ns, act)
			if errors.Is(err, store.ErrCallNotFound) {
				if err = start(ctx); err == nil {
					_, err = s.StepCall(ctx, ns, act)
				}
			}
			return err
		}
	}
	alice, active := []string{"alice"}, []store.KeepAlive{{User: "bob"}}
	return map[string]kit.Method{
		"StartCall":       start,
		"StepCall/Accept": step("bob", lastseen.Accept),
		"StepCall/End":    step("alice", lastseen.End),
		"KeepCallsAlive":  func(ctx context.Context) error { return kit.ErrorOf(s.KeepCallsAlive(ctx, ns, active)) },
		"ReadCalls":       func(ctx context.Context) error { return kit.ErrorOf(s.ReadCalls(ctx, ns, nil, alice)) },
		"ExpireCalls":     func(ctx context.Context) error { return kit.ErrorOf(s.ExpireCalls(ctx, ns)) },
	}
}
