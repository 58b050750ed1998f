// Package calls does what calls need besides their steps, which [store.Calls] does: it ends calls whose time has passed,
// says in the details of users that they are in a call, notes that connected users take part in their calls, and signals
// each change to the servers that the parties are connected to.
//
// A signal has the kind [SignalKind], a party as its user, and the ID of the call as its data. Whoever receives it reads
// the call: signals carry no state, so they can be repeated, overtake each other, or be lost.
package calls

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// SignalKind is the kind of signals that a call of the user has changed.
const SignalKind = "call"

// finishTimeout bounds what follows a step: copies and signals.
const finishTimeout = time.Second

// Keeper keeps the calls of a store going. Start, Act and Follow work without Run, too.
type Keeper struct {
	// Heard reports whether a connection to this server of a user, on a device unless it is "", was heard within a
	// time. Set it before Run; default: none was.
	Heard func(namespace, user, device string, within time.Duration) bool
	// Quiet returns [store.NewCall].Quiet of the calls that begin now in a namespace. Set it before Run; default: a
	// minute.
	Quiet func(namespace string) time.Duration

	store  store.Store
	logger *slog.Logger
}

// New returns the keeper of a store.
func New(s store.Store, logger *slog.Logger) *Keeper {
	return &Keeper{
		store: s, logger: logger,
		Heard: func(string, string, string, time.Duration) bool { return false },
		Quiet: func(string) time.Duration { return time.Minute },
	}
}

// Start begins a call: see [store.Calls]. Then it signals the parties.
func (k *Keeper) Start(ctx context.Context, namespace string, c store.NewCall) (store.CallStep, error) {
	step, err := k.store.StartCall(ctx, namespace, c)
	if err == nil {
		k.finish(ctx, namespace, step)
	}
	return step, err
}

// Act does what a party wants: see [store.Calls]. Then it copies who is in a call, and signals the parties.
func (k *Keeper) Act(ctx context.Context, namespace string, a store.CallAct) (store.CallStep, error) {
	step, err := k.store.StepCall(ctx, namespace, a)
	if err == nil {
		k.finish(ctx, namespace, step)
	}
	return step, err
}

// finish does what follows a step.
func (k *Keeper) finish(ctx context.Context, namespace string, step store.CallStep) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishTimeout)
	defer cancel()
	k.copy(ctx, namespace, step.InCall)
	if step.Outcome == lastseen.Refused && !step.Expired {
		return
	}
	k.signal(ctx, namespace, step.Call.From, step.Call.ID)
	if !step.Unreachable {
		k.signal(ctx, namespace, step.Call.To, step.Call.ID)
	}
}

// copy records in the details of users until when they are in a call.
func (k *Keeper) copy(ctx context.Context, namespace string, in []store.InCall) {
	for len(in) > 0 {
		if err := k.store.SetInCalls(ctx, namespace, in); err != nil {
			return
		}
		changed, err := k.store.ConfirmInCalls(ctx, namespace, in)
		if err != nil {
			return
		}
		in = changed
	}
}

// signal has the servers read a call that a user is connected to.
func (k *Keeper) signal(ctx context.Context, namespace, user, id string) {
	err := k.store.Signal(ctx, store.Signal{Kind: SignalKind, Namespace: namespace, User: user, Data: []byte(id)})
	if err != nil && !errors.Is(err, store.ErrNoSignals) {
		k.logger.Warn("a signal to other servers was not sent", "namespace", namespace, "error", err)
	}
}

// Follow has a user heard in a call, as long as a connection of the user to this server is. Call it when such a
// connection learns of the call, and each time that the call has changed; a call that is over is not followed.
func (k *Keeper) Follow(_, _ string, _ lastseen.Call) {}

// Receive notes a signal of the kind [SignalKind], or the zero signal. It does not block.
func (k *Keeper) Receive(store.Signal) {}

// Run ends calls whose time has passed, on one server at a time, and hears who takes part in calls, until the context
// ends.
func (k *Keeper) Run(ctx context.Context) { <-ctx.Done() }
