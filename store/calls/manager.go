// Package calls does what calls need besides their steps, which [store.Calls] does. It ends calls whose time has
// passed, notes that connected users take part in their calls, and signals each change to the servers that the parties
// are connected to.
//
// # Signals
//
// A signal that a call has changed names the call and its parties, and has the call as it was then, unless it is large:
// see [Change]. Signals can be repeated, overtake each other, or be lost, and anyone with the right to publish can send
// one. So receivers take only a new App of a call that they know, and read everything else. A signal that could not be
// sent is sent again later, and so it is for calls about which a step returned no result. A call that a connection
// follows is read from time to time, so that a lost signal neither hides its end nor loses it.
//
// # On one server
//
// Of all servers on a store, the one with a lease ends the calls whose time has passed. It waits until the next one is
// due. If it dies, another server continues, within eight seconds. A store without signals between processes delays
// what another server has to learn by some seconds.
package calls

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

const (
	longestWait = 10 * time.Second // of a loop without work
	retryAfter  = time.Second      // an error of the store
	workers     = 8                // calls to the store at once, for each kind of work
)

// Manager keeps the calls of a store going. Start, Act, Follow and Receive may be called by many goroutines at once.
type Manager struct {
	// Active reports whether a connection to this server of a user, on a device unless it is "", was active within a
	// time. Set it before Run; default: none was.
	Active func(namespace, user, device string, within time.Duration) bool
	// Timeout returns [store.NewCall].Timeout of the calls that begin now in a namespace. Set it before Run; default: a
	// minute.
	Timeout func(namespace string) time.Duration
	// Late is called when calls were ended because their time has passed, with the time since the first of them was
	// due. Set it before Run; default nothing.
	Late func(lag time.Duration)

	store         store.Store
	logger        *slog.Logger
	monotonic     func() time.Duration // since the start
	stats         counters
	postprocessor *postprocessor
	watch         *watch
	keepAlive     *keepAlive
}

// New returns the manager of a store.
func New(s store.Store, logger *slog.Logger) *Manager {
	start := time.Now()
	k := &Manager{
		Active:    func(string, string, string, time.Duration) bool { return false },
		Timeout:   func(string) time.Duration { return time.Minute },
		Late:      func(time.Duration) {},
		store:     s,
		logger:    logger,
		monotonic: func() time.Duration { return time.Since(start) },
	}
	k.postprocessor = &postprocessor{Manager: k, wake: store.NewWaker(), unknown: map[callKey]unknownOutcome{}}
	k.watch = &watch{
		Manager: k, wake: store.NewWaker(), batches: make(chan struct{}, maxBatches), namespaces: map[string]*watched{},
	}
	k.keepAlive = &keepAlive{Manager: k, wake: store.NewWaker(), parties: map[lastseen.UserKey]*party{}}
	return k
}

// Start begins a call: see [store.Calls]. The caller calls finish, whatever the error is, once the response was sent:
// it signals the parties. If the call was begun before with the same key, the parties are signalled again, because the
// first signal may be what failed then.
func (k *Manager) Start(
	ctx context.Context, namespace string, c store.NewCall,
) (step store.CallStep, finish func(), err error) {
	step, err = k.store.StartCall(ctx, namespace, c)
	return step, func() { k.finish(ctx, namespace, c.ID, step, err) }, err
}

// Act does what a party wants: see [store.Calls]. The caller calls finish, whatever the error is, once the response was
// sent: it signals the parties.
func (k *Manager) Act(
	ctx context.Context, namespace string, a store.CallAct,
) (step store.CallStep, finish func(), err error) {
	step, err = k.store.StepCall(ctx, namespace, a)
	return step, func() {
		if err == nil && a.Action == lastseen.Alive && !step.Expired && a.App == "" { // nobody has to learn it
			return
		}
		k.finish(ctx, namespace, a.ID, step, err)
	}, err
}

// finish does what follows a step.
func (k *Manager) finish(ctx context.Context, namespace, id string, step store.CallStep, err error) {
	switch {
	case err == nil:
		k.postprocessor.finish(ctx, namespace, []store.CallStep{step})
	case store.MayBeDone(err):
		k.postprocessor.recheck(callKey{namespace, id}, true)
	}
}

// passes reports whether the same call may succeed later.
func passes(err error) bool {
	return err != nil && (store.MayBeDone(err) || errors.Is(err, store.ErrOverloaded))
}

// Receive notes a signal that a call has changed. It does not block. Other signals are ignored, including the
// zero signal: the next reads find what was lost.
func (k *Manager) Receive(s store.Signal) {
	if s.Kind == signalKind {
		k.watch.expect(s.Namespace)
	}
}

// Run ends calls whose time has passed, if this server has the lease, and keeps the calls of connected users alive,
// until the context ends. Then it gives up the lease.
func (k *Manager) Run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { loop(ctx, k.postprocessor.wake, k.postprocessor.work) })
	running.Go(func() { loop(ctx, k.keepAlive.wake, k.keepAlive.work) })
	loop(ctx, k.watch.wake, k.watch.work)
	running.Wait()
	k.watch.running.Wait()
	k.watch.release(ctx)
}

// loop calls work, which returns after which time to call it again, until the context ends.
func loop(ctx context.Context, w store.Waker, work func(context.Context) time.Duration) {
	for ctx.Err() == nil {
		w.Wait(ctx, work(ctx))
	}
}

// counters count what happened since the start.
type counters struct {
	reached [7]atomic.Int64 // in the order of lastseen.CallStates
	signals atomic.Int64
}

func (c *counters) count(state lastseen.CallState) {
	for i, s := range lastseen.CallStates() {
		if s == state {
			c.reached[i].Add(1)
		}
	}
}

// Stats describes a manager at this moment, and since the start.
type Stats struct {
	Reached map[lastseen.CallState]int64 // calls that came into a state by a step on this server
	Signals int64                        // calls that were read again because it was not clear what the parties know

	Watching bool // this server ends the calls whose time has passed
	Ongoing  int  // ongoing calls, as far as it knows; 0 unless Watching
	Followed int  // parties of calls that are connected to this server
	Unknown  int  // calls that have to be read again
}

// Stats returns the current statistics.
func (k *Manager) Stats() Stats {
	s := Stats{
		Reached: map[lastseen.CallState]int64{}, Signals: k.stats.signals.Load(),
		Followed: k.keepAlive.size(), Unknown: k.postprocessor.size(),
	}
	for i, state := range lastseen.CallStates() {
		s.Reached[state] = k.stats.reached[i].Load()
	}
	s.Watching, s.Ongoing = k.watch.ongoing()
	return s
}
