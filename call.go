package lastseen

// MaxCallIDLen is the maximum length of the ID of a call in bytes.
const MaxCallIDLen = 64

// Call is a call of one user to another: its signalling and its state. The media are the app's.
type Call struct {
	ID       string
	From, To string // the caller and the callee
	State    CallState
	Version  int64 // it is 1 at first, and increases by one with each change of State or App

	FromDevice string // on which the caller called; "" if the app did not say
	ToDevice   string // on which the callee accepted or rejected; "" if none has, or if the app did not say
	By         string // the party whose action led to State: the caller while it rings; "" if time did
	ByDevice   string // the device of that action; "" if the app did not say

	Created  Instant
	Accepted Instant // 0 if it was not
	Over     Instant // when it ended in any way; 0 while it goes on
	// Expires is when it will be missed while it rings; while it is active, when it will be lost unless both parties
	// are active; 0 once it has ended.
	Expires Instant

	App string // a JSON value of the app's, such as an offer; "" for none, and once the call has ended
}

// Device returns the device that a party uses for the call; "" if it is not known.
func (c Call) Device(user string) string {
	if user == c.From {
		return c.FromDevice
	}
	return c.ToDevice
}

// Party returns what a user is in the call; "" for somebody else.
func (c Call) Party(user string) CallParty {
	switch user {
	case c.From:
		return Caller
	case c.To:
		return Callee
	}
	return ""
}

// Step returns what an action does to the call: the state after it, and how it ended for the party. The device is that
// of the action; "" if the app did not say. A callee who accepts on a second device loses to the first one.
func (c Call) Step(a CallAction, p CallParty, device string) (CallState, CallOutcome) {
	if c.State == Active && a == Accept && p == Callee && device != c.ToDevice {
		return Active, Refused
	}
	return c.State.Step(a, p)
}

// Replaces reports whether the call is at least as new as what is known of it. An end is newer whatever its version: a
// store that fails over loses the last versions, and counts on from there.
func (c Call) Replaces(known Call) bool {
	return !known.State.Over() && (c.State.Over() || c.Version >= known.Version)
}

// CallParty is what a user is in a call.
type CallParty string

// The parties of a call.
const (
	Caller CallParty = "caller"
	Callee CallParty = "callee"
)

// CallState is the state of a call: it rings, is active, or is over in one of several ways.
type CallState string // @name CallState

// The states. The first two go on; the others are final.
const (
	Ringing   CallState = "ringing"
	Active    CallState = "active"    // the callee accepted
	Ended     CallState = "ended"     // a party ended the active call
	Rejected  CallState = "rejected"  // by the callee
	Cancelled CallState = "cancelled" // by the caller, before the callee accepted
	Missed    CallState = "missed"    // the callee did not accept in time
	Lost      CallState = "lost"      // a party of the active call was no longer active
)

// CallStates returns all states.
func CallStates() []CallState {
	return []CallState{Ringing, Active, Ended, Rejected, Cancelled, Missed, Lost}
}

// Over reports whether a call in this state is over.
func (s CallState) Over() bool { return s != Ringing && s != Active }

// Expired returns the state of a call whose time has passed in this state.
func (s CallState) Expired() CallState {
	switch s {
	case Ringing:
		return Missed
	case Active:
		return Lost
	}
	return s
}

// CallAction is what a party does in a call.
type CallAction string

// The actions. A caller who ends a call that rings cancels it, and a callee who does rejects it. Alive says that the
// party still takes part.
const (
	Accept CallAction = "accept"
	Reject CallAction = "reject"
	End    CallAction = "end"
	Alive  CallAction = "alive"
)

// CallOutcome is how an action ended for the party.
type CallOutcome string

// The outcomes.
const (
	Stepped  CallOutcome = "stepped"  // the state changed
	Repeated CallOutcome = "repeated" // the party did this before, or is active: nothing else changed
	Refused  CallOutcome = "refused"  // the action is not possible in this state, or not for this party
)

// Step returns what an action of a party does in this state. What it does not list is refused, and changes nothing.
func (s CallState) Step(a CallAction, p CallParty) (CallState, CallOutcome) {
	switch (callStep{s, a, p}) {
	case callStep{Ringing, Accept, Callee}:
		return Active, Stepped
	case callStep{Ringing, Reject, Callee}, callStep{Ringing, End, Callee}:
		return Rejected, Stepped
	case callStep{Ringing, End, Caller}:
		return Cancelled, Stepped
	case callStep{Active, End, Caller}, callStep{Active, End, Callee}:
		return Ended, Stepped

	case callStep{Active, Accept, Callee},
		callStep{Rejected, Reject, Callee}, callStep{Rejected, End, Callee},
		callStep{Cancelled, End, Caller},
		callStep{Ended, End, Caller}, callStep{Ended, End, Callee},
		callStep{Ringing, Alive, Caller}, callStep{Ringing, Alive, Callee},
		callStep{Active, Alive, Caller}, callStep{Active, Alive, Callee}:
		return s, Repeated
	}
	return s, Refused
}

type callStep struct {
	state  CallState
	action CallAction
	party  CallParty
}
