package lastseen

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// callTable is the state machine as the guide shows it: for each state and action, what it does for the caller and for
// the callee. A state is that after a step, = is a repetition, and - is refused.
const callTable = `
	ringing    accept   -          active
	ringing    reject   -          rejected
	ringing    end      cancelled  rejected
	ringing    alive    =          =
	active     accept   -          =
	active     reject   -          -
	active     end      ended      ended
	active     alive    =          =
	ended      accept   -          -
	ended      reject   -          -
	ended      end      =          =
	ended      alive    -          -
	rejected   accept   -          -
	rejected   reject   -          =
	rejected   end      -          =
	rejected   alive    -          -
	cancelled  accept   -          -
	cancelled  reject   -          -
	cancelled  end      =          -
	cancelled  alive    -          -
	missed     accept   -          -
	missed     reject   -          -
	missed     end      -          -
	missed     alive    -          -
	lost       accept   -          -
	lost       reject   -          -
	lost       end      -          -
	lost       alive    -          -`

func TestCallStep(t *testing.T) {
	seen := map[callStep]bool{}
	for line := range strings.SplitSeq(strings.TrimSpace(callTable), "\n") {
		words := strings.Fields(line)
		state, action := CallState(words[0]), CallAction(words[1])
		for i, p := range []CallParty{Caller, Callee} {
			seen[callStep{state, action, p}] = true
			next, outcome := state.Step(action, p)
			switch word := words[2+i]; word {
			case "-":
				require.Equal(t, Refused, outcome, "%s, %s", line, p)
				require.Equal(t, state, next, "%s, %s", line, p)
			case "=":
				require.Equal(t, Repeated, outcome, "%s, %s", line, p)
				require.Equal(t, state, next, "%s, %s", line, p)
			default:
				require.Equal(t, Stepped, outcome, "%s, %s", line, p)
				require.Equal(t, CallState(word), next, "%s, %s", line, p)
			}
			if state.Over() {
				require.Equal(t, state, next, "a call that has ended stays so: %s, %s", line, p)
			}
		}
		_, outcome := state.Step(action, "")
		require.Equal(t, Refused, outcome, "%s, by a user who is not a party", line)
	}
	require.Len(t, seen, 2*len(CallStates())*len([]CallAction{Accept, Reject, End, Alive}))
}

func TestCallStepOnAnotherDevice(t *testing.T) {
	c := Call{From: "alice", To: "bob", State: Active, ToDevice: "phone"}
	_, outcome := c.Step(Accept, Callee, "phone")
	require.Equal(t, Repeated, outcome)
	_, outcome = c.Step(Accept, Callee, "laptop")
	require.Equal(t, Refused, outcome, "the call was accepted on another device")
	_, outcome = c.Step(Accept, Callee, "")
	require.Equal(t, Refused, outcome)
	state, outcome := c.Step(End, Callee, "laptop")
	require.Equal(t, Stepped, outcome, "a party can end the call on any device")
	require.Equal(t, Ended, state)
}

func TestCallExpired(t *testing.T) {
	for _, s := range CallStates() {
		switch s {
		case Ringing:
			require.Equal(t, Missed, s.Expired())
		case Active:
			require.Equal(t, Lost, s.Expired())
		default:
			require.Equal(t, s, s.Expired())
		}
	}
}

func TestCallParty(t *testing.T) {
	c := Call{From: "alice", To: "bob", FromDevice: "tab", ToDevice: "phone"}
	require.Equal(t, Caller, c.Party("alice"))
	require.Equal(t, Callee, c.Party("bob"))
	require.Empty(t, c.Party("carol"))
	require.Equal(t, "tab", c.Device("alice"))
	require.Equal(t, "phone", c.Device("bob"))
}

// TestCallReplaces: the highest version counts, but an end is never older than what goes on, and nothing follows it.
func TestCallReplaces(t *testing.T) {
	t.Parallel()
	call := func(state CallState, version int64) Call {
		return Call{State: state, Version: version}
	}
	for _, c := range []struct {
		found, known Call
		replaces     bool
	}{
		{call(Active, 3), call(Active, 2), true},
		{call(Active, 2), call(Active, 2), true},
		{call(Ringing, 1), call(Active, 2), false},
		{call(Ended, 1), call(Active, 2), true},
		{call(Active, 3), call(Ended, 2), false},
		{call(Missed, 3), call(Ended, 2), false},
	} {
		require.Equal(t, c.replaces, c.found.Replaces(c.known), "%+v", c)
	}
}
