package calls

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/kit"
)

// callsModel is what a store should hold: all calls, and who is in which one. No call expires.
type callsModel struct {
	*Calling
	calls map[string]*modelCall
	ids   []string
}

type modelCall struct {
	lastseen.Call
	store.NewCall
	callerOnly bool
}

var (
	drawCallUser   = rapid.SampledFrom([]string{"a", "aa", "b", "é"})
	drawCallDevice = rapid.SampledFrom([]string{"", "x", "y"})
	drawCallKey    = rapid.SampledFrom([]string{"", "", "k", "kk"})
)

// testCallsModel compares a store with a model while random calls change both.
func testCallsModel(t *testing.T, open kit.Open) {
	rapid.Check(t, func(rt *rapid.T) {
		m := &callsModel{Calling: NewCalling(rt, open(t)), calls: map[string]*modelCall{}}
		rt.Repeat(map[string]func(*rapid.T){
			"":       m.compare,
			"start":  m.start,
			"act":    m.step,
			"act 2":  m.step,
			"forget": m.forget,
			"empty":  m.removeEmpty,
			"delete": m.delete,
			"expire": func(t *rapid.T) { require.Empty(t, m.Expire().Steps) },
			"alive":  func(t *rapid.T) { require.Empty(t, m.KeepAlive(drawCallUser.Draw(t, "user"))) },
		})
	})
}

// current returns the call of a user that goes on; nil for none.
func (m *callsModel) current(user string) *modelCall {
	for _, call := range m.calls {
		if !call.State.Over() && (call.Call.From == user || call.Call.To == user && !call.callerOnly) {
			return call
		}
	}
	return nil
}

// rings reports whether a call to a user rings, also if the user is not a party of it.
func (m *callsModel) rings(user string) bool {
	for _, call := range m.calls {
		if call.State == lastseen.Ringing && call.Call.To == user {
			return true
		}
	}
	return false
}

func (m *callsModel) start(t *rapid.T) {
	users := rapid.Permutation([]string{"a", "aa", "b", "é"}).Draw(t, "users")
	c := m.Call(users[0], users[1])
	c.FromDevice, c.Key = drawCallDevice.Draw(t, "device"), drawCallKey.Draw(t, "key")
	c.Digest = c.To
	c.CalleeHidden = rapid.Bool().Draw(t, "hidden")
	c.Shown = rapid.Bool().Draw(t, "shown")
	step, err := m.StartCall(context.Background(), kit.Namespace, c)
	for _, old := range m.calls {
		if c.Key != "" && old.Key == c.Key && old.NewCall.From == c.From {
			if old.Digest != c.Digest {
				require.ErrorIs(t, err, store.ErrCallKeyReused)
				return
			}
			require.NoError(t, err)
			require.Equal(t, lastseen.Repeated, step.Outcome)
			require.Equal(t, old.NewCall.ID, step.Call.ID)
			return
		}
	}
	calleeBusy := m.current(c.To) != nil
	switch {
	case m.current(c.From) != nil:
		require.ErrorIs(t, err, store.ErrCallerBusy)
	case calleeBusy && !c.CalleeHidden, m.rings(c.To):
		require.ErrorIs(t, err, store.ErrCalleeBusy)
	case errors.Is(err, store.ErrTooManyCalls):
		require.GreaterOrEqual(t, len(m.calls), store.MaxCallsOfUser)
	default:
		require.NoError(t, err)
		require.Equal(t, lastseen.Stepped, step.Outcome)
		require.Equal(t, calleeBusy, step.CallerOnly)
		m.calls[c.ID] = &modelCall{step.Call, c, calleeBusy}
		m.ids = append(m.ids, c.ID)
	}
}

func (m *callsModel) step(t *rapid.T) {
	if len(m.ids) == 0 {
		return
	}
	recent := m.ids[max(0, len(m.ids)-4):]
	id, user := rapid.SampledFrom(recent).Draw(t, "id"), drawCallUser.Draw(t, "user")
	device, action := drawCallDevice.Draw(t, "device"), rapid.SampledFrom(actions()).Draw(t, "action")
	step, err := m.StepCall(context.Background(), kit.Namespace,
		store.CallAct{ID: id, User: user, Device: device, Action: action})
	call := m.calls[id]
	if call == nil || call.Party(user) == "" || call.callerOnly && user == call.Call.To {
		require.ErrorIs(t, err, store.ErrCallNotFound)
		return
	}
	require.NoError(t, err)
	state, outcome := call.Step(action, call.Party(user), device)
	require.Equal(t, outcome, step.Outcome)
	require.Equal(t, call.callerOnly, step.CallerOnly)
	if outcome == lastseen.Stepped {
		call.Version++
		if state == lastseen.Active || state == lastseen.Rejected {
			call.ToDevice = device
		}
		call.State, call.By, call.ByDevice = state, user, device
	}
	require.Equal(t, call.State, step.Call.State)
	require.Equal(t, call.Version, step.Call.Version)
}

// compareInCall compares who is in a call.
func (m *callsModel) compareInCall(t *rapid.T) {
	all := []string{"a", "aa", "b", "é"}
	shown := m.inCall(all...)
	for _, user := range all {
		call := m.current(user)
		want := call != nil && call.State == lastseen.Active && call.Shown
		require.Equal(t, want, slices.Contains(shown, user), user)
	}
}

func (m *callsModel) forget(t *rapid.T) {
	user := drawCallUser.Draw(t, "user")
	kit.Forget(t, m, user)
	for id, call := range m.calls {
		if call.Call.From == user || call.Call.To == user {
			delete(m.calls, id)
		}
	}
}

func (m *callsModel) delete(t *rapid.T) {
	require.NoError(t, m.DeleteNamespace(context.Background(), kit.Namespace))
	clear(m.calls)
}

// removeEmpty removes the namespace if it is empty. The calls that have ended stay.
func (m *callsModel) removeEmpty(t *rapid.T) {
	if kit.RemoveEmpty(t, m, kit.Namespace) {
		for _, call := range m.calls {
			require.True(t, call.State.Over())
		}
	}
}

func (m *callsModel) compare(t *rapid.T) {
	m.compareInCall(t)
	goOn := 0
	for _, call := range m.calls {
		got := m.Read(call.NewCall.ID)
		require.Equal(t, call.State, got.State)
		require.Equal(t, call.Version, got.Version)
		require.Equal(t, call.By, got.By)
		require.Equal(t, call.ByDevice, got.ByDevice)
		require.Equal(t, call.Call.FromDevice, got.FromDevice)
		require.Equal(t, call.ToDevice, got.ToDevice)
		if !call.State.Over() {
			goOn++
		}
	}
	for _, user := range []string{"a", "aa", "b", "é"} {
		want := ""
		if call := m.current(user); call != nil {
			want = call.NewCall.ID
		}
		require.Equal(t, []string{want}, m.idsOf(user))
	}
	expired := m.Expire()
	require.Equal(t, goOn, expired.Calls)
	require.Equal(t, len(m.calls), expired.Kept)
	if goOn > 0 {
		require.Equal(t, []string{kit.Namespace}, kit.Existing(t, m))
	}
}
