package store

import (
	"context"
	"errors"
	"time"

	"github.com/lastseen/lastseen"
)

// The errors of calls.
var (
	// ErrNoCalls means that users of the namespace cannot call each other, as long as settings do not change: other
	// programs also write it.
	ErrNoCalls = errors.New("the namespace has no calls")
	// ErrCallNotFound means that there is no such call, or not any longer, or not one with this user.
	ErrCallNotFound = errors.New("the call does not exist")
	// ErrCallerBusy means that the caller has an ongoing call.
	ErrCallerBusy = errors.New("the caller is in another call")
	// ErrCalleeBusy means that the callee has an ongoing call.
	ErrCalleeBusy = errors.New("the callee is in another call")
	// ErrCalleeUnavailable means that the caller cannot call the callee now.
	ErrCalleeUnavailable = errors.New("the callee is not available")
	// ErrTooManyCalls means that the caller has started MaxCallsOfUser that are kept, or that a namespace has MaxCalls.
	ErrTooManyCalls = errors.New("too many calls")
	// ErrCallKeyReused means that a call was started with the same key, which differs.
	ErrCallKeyReused = errors.New("another call was started with this key")
)

// The bounds of calls.
const (
	CallsKept      = 10 * time.Minute // how long a call that has ended, and the key of a new one, is remembered
	MaxCallApp     = 16 << 10         // bytes
	MaxCallsOfUser = 100              // that a user started and that are kept
	MaxCalls       = 1_000_000        // that are kept in a namespace
	MaxCallBatch   = 500              // users or calls of one call of a method of Calls
	// MaxCallGap is the longest time between two calls of ExpireCalls that counts for calls.
	MaxCallGap = 10 * time.Second
)

// Calls keeps who calls whom: see [lastseen.Call]. A user has one ongoing call at most, as caller or callee.
//
// # Steps
//
// Each step is atomic: of several actions at the same time, one changes the state, and the others get the call as it
// is then. What [lastseen.Call.Step] says decides. A call whose time has passed expires before any other step, whether
// ExpireCalls has run or not; so it does for those who read it. It is over since its time passed, not since a step.
// StartCall alone leaves such calls as they are, for ExpireCalls to end and return: they no longer make a user busy.
//
// Accepting a call is a keepalive of both parties. What a party does later, unless it is refused, is one of that party.
//
// # Time
//
// Calls expire by a clock of the namespace that runs while it is watched: it advances as the clock of the store does,
// but never back, and by MaxCallGap at most between two steps of any calls in the namespace. So a clock that is wrong
// by years neither ends a call nor keeps it, and calls survive that the store is away. The times of a [lastseen.Call]
// are by the store's clock.
//
// # In a call
//
// Users are in a call while it is active. [Details].InCallUntil says so, in the details of each party, which no call
// creates in a namespace that does not exist. It is by the store's clock and ends by itself, so that no crash leaves a
// user in a call. Each method that changes who is in a call records that before it returns. Where details are on
// another server than the calls, this can fail although the step was done: then ExpireCalls records it. While
// the parties keep the call alive, it is renewed once less than half of the timeout is left.
//
// # What is lost
//
// The embedded store keeps calls in memory: a restart ends all of them without a trace. In Redis, a failover can lose
// the last steps. Forget deletes all calls from and to a user, also ongoing ones: the other party is free then.
// DeleteNamespace deletes all calls. RemoveEmpty keeps a namespace with an ongoing call, and otherwise leaves the
// calls that have ended. Calls create no namespace, unless one begins to ring.
type Calls interface {
	// StartCall begins a call, which rings, unless a call of a party goes on: then it returns ErrCallerBusy or
	// ErrCalleeBusy. Before that, it returns the call that was started with the same key and is kept, as it is now and
	// as Repeated; ErrCallKeyReused if its Digest differs. At last it returns ErrTooManyCalls, or ErrNamespaceLimit.
	StartCall(ctx context.Context, namespace string, c NewCall) (CallStep, error)

	// StepCall does what a party wants. It returns ErrCallNotFound unless the user is a party. If the outcome is
	// Refused, the call says why.
	StepCall(ctx context.Context, namespace string, a CallAct) (CallStep, error)

	// KeepCallsAlive notes that users take part in their calls: those that are active, and on the device of the call if
	// it is known. Others are ignored. Up to MaxCallBatch users.
	KeepCallsAlive(ctx context.Context, namespace string, active []KeepAlive) (KeptAlive, error)

	// ReadCalls returns calls by their IDs, also those that have ended, for CallsKept, and then the ongoing calls of
	// users who are parties; an empty Call for each that does not exist. Up to MaxCallBatch IDs and users.
	ReadCalls(ctx context.Context, namespace string, ids, users []string) ([]lastseen.Call, error)

	// ExpireCalls ends calls whose time has passed, up to MaxCallBatch, and forgets those that were over for CallsKept.
	// It is to be called when the next call expires, and at least every MaxCallGap / 2.
	ExpireCalls(ctx context.Context, namespace string) (ExpiredCalls, error)

	// CallNamespaces returns up to limit namespaces that may have calls, whose names come after the given one, bytewise
	// ascending.
	CallNamespaces(ctx context.Context, after string, limit int) ([]string, error)
}

// ReadCall returns a call, or ErrCallNotFound.
func ReadCall(ctx context.Context, s Calls, namespace, id string) (lastseen.Call, error) {
	calls, err := s.ReadCalls(ctx, namespace, []string{id}, nil)
	switch {
	case err != nil:
		return lastseen.Call{}, err
	case calls[0].ID == "":
		return lastseen.Call{}, ErrCallNotFound
	}
	return calls[0], nil
}

// NewCall is a call that is to begin.
type NewCall struct {
	ID         string // new and random: 1 to 64 bytes of A–Z a–z 0–9 _ -
	From, To   string // two users
	FromDevice string
	App        string // JSON of at most MaxCallApp bytes; "" for none

	Ring    time.Duration // how long it rings at most
	Timeout time.Duration // for how long a party of the active call need not be active
	Shown   bool          // the parties are shown to be in a call

	Key    string // the idempotency key; "" for none. Keys of different callers are different
	Digest string // of what the caller asked for; at most 64 bytes
	// CalleeHidden says that the caller must not learn what the callee does: the caller gets what a callee who is not
	// there would get. A call to the callee that rings makes the callee busy. With any other ongoing call, this
	// one rings, and the callee is not a party of it: it is missed, unless the caller cancels it. While it rings, the
	// callee is busy for all other callers.
	CalleeHidden bool
	// CalleeUnavailable says that the callee cannot be called. StartCall returns ErrCalleeUnavailable then, unless it
	// returns the call that was started with the same key.
	CalleeUnavailable bool
}

// CallAct is an action of a party.
type CallAct struct {
	ID           string
	User, Device string
	Action       lastseen.CallAction
	App          string // replaces [lastseen.Call].App with Accept and Alive; "" leaves it as it is
}

// KeepAlive says that a user takes part in a call, on a device.
type KeepAlive struct{ User, Device string }

// KeptAlive is what KeepCallsAlive did.
type KeptAlive struct {
	Calls []AliveCall // of the users, in the order asked; the zero value for those who were ignored
	Steps []CallStep  // of the calls that expired before
}

// AliveCall is the call of a keepalive. The ID and the version show whether the call is another one, or has
// changed, without reading it.
type AliveCall struct {
	ID      string
	Version int64
	Rest    time.Duration // until the call expires without keepalives of both parties
}

// CallStep is what a step led to.
type CallStep struct {
	Call    lastseen.Call
	Outcome lastseen.CallOutcome // Stepped for a new call, and for what KeepCallsAlive and ExpireCalls return
	Expired bool                 // the call expired just before: others have to be notified, also if it was refused
	// CallerOnly says that the callee is not a party: see NewCall.CalleeHidden.
	CallerOnly bool
}

// ExpiredCalls is what ExpireCalls did.
type ExpiredCalls struct {
	Steps []CallStep
	Calls int           // ongoing calls
	Kept  int           // calls that are kept, with ongoing ones
	Next  time.Duration // until the next call expires; 0 if more may be due; MaxCallGap / 2 at most
}
