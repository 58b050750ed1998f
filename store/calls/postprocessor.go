package calls

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

const (
	finishTimeout = time.Second // of what follows one step
	batchTimeout  = 5 * time.Second

	maxUnknown  = 10_000 // calls that have to be read again
	unknownKept = store.CallsKept
)

// callKey names a call.
type callKey struct{ namespace, id string }

// postprocessor does what follows steps, and does again what failed of it.
type postprocessor struct {
	*Manager
	wake store.Waker

	mu      sync.Mutex
	due     schedule[callKey]
	unknown map[callKey]unknownOutcome
	full    bool // this was logged
}

// unknownOutcome says about a call that its parties may not know its state.
type unknownOutcome struct {
	since  time.Duration
	callee bool // the callee is a party, as far as is known
}

// finish signals what steps changed. They were done whether that succeeds or not, so it also does so if the context has
// ended.
func (r *postprocessor) finish(ctx context.Context, namespace string, steps []store.CallStep) {
	timeout := finishTimeout
	if len(steps) > 1 {
		timeout = batchTimeout
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	changed := slices.DeleteFunc(slices.Clone(steps), func(step store.CallStep) bool {
		return !step.Expired && step.Outcome == lastseen.Refused
	})
	for _, step := range changed {
		if step.Expired || step.Outcome == lastseen.Stepped {
			r.stats.count(step.Call.State)
		}
	}
	each(changed, func(step store.CallStep) {
		key := callKey{namespace, step.Call.ID}
		if err := r.signalParties(ctx, namespace, step.Call, !step.CallerOnly); err != nil {
			r.recheck(key, !step.CallerOnly)
		}
	})
}

// signalParties signals a call to its parties; callee says whether the callee is one.
func (r *postprocessor) signalParties(ctx context.Context, namespace string, c lastseen.Call, callee bool) error {
	change := Change{ID: c.ID, Users: []string{c.From, c.To}, Call: &c}
	if !callee {
		change.Users = change.Users[:1]
	}
	return r.signal(ctx, namespace, change)
}

// signal has the servers that users are connected to learn of a change. Signals that this store cannot send are no
// error.
func (r *postprocessor) signal(ctx context.Context, namespace string, c Change) error {
	err := r.store.Signal(ctx, c.signal(namespace))
	if errors.Is(err, store.ErrNoSignals) {
		return nil
	}
	return err
}

// recheck reads a call later, as soon as the store allows that, and signals it to its parties. It does nothing if too
// many calls wait for that: then the store was away for long, and receivers read again what they follow.
func (r *postprocessor) recheck(key callKey, callee bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.unknown[key]; !known && len(r.unknown) >= maxUnknown {
		if !r.full {
			r.logger.Warn("too many calls wait to be signalled; users learn of some with a delay", "calls", maxUnknown)
		}
		r.full = true
		return
	}
	now := r.monotonic()
	u, known := r.unknown[key]
	if !known {
		u = unknownOutcome{since: now, callee: callee}
	}
	u.callee = u.callee && callee
	r.unknown[key] = u
	r.due.advance(key, now+retryAfter)
	r.wake.Wake()
}

// work reads the calls that are due, and returns the time until the next one.
func (r *postprocessor) work(ctx context.Context) time.Duration {
	now := r.monotonic()
	away := map[string]bool{} // namespaces that cannot be read now
	for ctx.Err() == nil {
		r.mu.Lock()
		key, ok := r.due.pop(now)
		u := r.unknown[key]
		r.mu.Unlock()
		if !ok {
			break
		}
		var err error
		if !away[key.namespace] {
			err = r.resolve(ctx, key, u)
			away[key.namespace] = err != nil
		}
		r.settle(key, u, away[key.namespace])
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.due.rest(r.monotonic(), longestWait)
}

// settle ends the recheck of a call, or plans the next attempt.
func (r *postprocessor) settle(key callKey, u unknownOutcome, failed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := r.monotonic(); failed && now < u.since+unknownKept {
		r.due.advance(key, now+retryAfter)
	}
	if !r.due.has(key) { // else it failed, or was added again
		delete(r.unknown, key)
	}
	r.full = r.full && len(r.unknown) > 0
}

// resolve reads a call and signals it to its parties. The callee of an ongoing call is a party if it is the
// callee's call.
func (r *postprocessor) resolve(ctx context.Context, key callKey, u unknownOutcome) error {
	ctx, cancel := context.WithTimeout(ctx, finishTimeout)
	defer cancel()
	r.stats.signals.Add(1)
	c, err := store.ReadCall(ctx, r.store, key.namespace, key.id)
	switch {
	case passes(err):
		return err
	case err != nil:
		return nil // there is no such call
	}
	callee := u.callee
	if callee && !c.State.Over() {
		calls, err := r.store.ReadCalls(ctx, key.namespace, nil, []string{c.To})
		if err != nil {
			return err
		}
		callee = calls[0].ID == c.ID
	}
	return r.signalParties(ctx, key.namespace, c, callee)
}

func (r *postprocessor) size() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.unknown)
}

// each calls do for each item, some at the same time.
func each[T any](items []T, do func(T)) {
	var running errgroup.Group
	running.SetLimit(workers)
	for _, item := range items {
		running.Go(func() error {
			do(item)
			return nil
		})
	}
	_ = running.Wait()
}

// signalKind is the kind of signals that a call has changed.
const signalKind = "call"

// maxSignalApp is the largest App that a signal carries, in bytes.
const maxSignalApp = 1 << 10

// Change says that a call has changed for some of its parties. It is what a signal carries.
type Change struct {
	ID string `json:"id"`
	// Users are the parties, two at most. Receivers let them learn of it in this order: the caller comes first.
	Users []string `json:"users"`
	// Call is the call as it was then; nil if it has to be read. Servers of other versions know it by the names of its
	// fields.
	Call *lastseen.Call `json:"call,omitempty"`
}

// signal returns the signal of a change. It leaves a call out whose App is large.
func (c Change) signal(namespace string) store.Signal {
	if c.Call != nil && len(c.Call.App) > maxSignalApp {
		c.Call = nil
	}
	data, _ := json.Marshal(c) // texts and numbers can always be encoded
	return store.Signal{Kind: signalKind, Namespace: namespace, Data: data}
}

// Signal returns the signal that a call has to be read for some of its parties.
func Signal(namespace, id string, users ...string) store.Signal {
	return Change{ID: id, Users: users}.signal(namespace)
}

// OfSignal returns the change that a signal is about; the zero value if it is about something else, or cannot be read.
func OfSignal(s store.Signal) (c Change) {
	if s.Kind != signalKind || json.Unmarshal(s.Data, &c) != nil || len(c.Users) > 2 {
		return Change{}
	}
	if c.Call != nil && (c.Call.ID != c.ID || len(c.Call.App) > maxSignalApp) {
		c.Call = nil
	}
	return c
}
