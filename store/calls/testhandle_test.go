package calls

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// handle is a server's access to the store.
type handle struct {
	store.Store
	s *fakeStore

	receive func(store.Signal)
	fail    func(method string) error // instead of doing what is asked
	lose    func(method string) error // after it was done
	deaf    bool                      // signals do not arrive
	counts  map[string]int            // of calls by method
	before  func(method string)       // called without the mutex
}

func newHandle(s *fakeStore) *handle {
	h := &handle{s: s, counts: map[string]int{}, before: func(string) {}}
	h.fail = func(string) error { return nil }
	h.lose = h.fail
	s.handles = append(s.handles, h)
	return h
}

// call runs what a method does.
func (h *handle) call(ctx context.Context, method string, do func()) error {
	h.before(method)
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	h.counts[method]++
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := h.fail(method); err != nil {
		return err
	}
	do()
	return h.lose(method)
}

func (h *handle) StartCall(
	ctx context.Context, namespace string, c store.NewCall,
) (step store.CallStep, err error) {
	var refused error
	err = h.call(ctx, "StartCall", func() { step, refused = h.s.start(namespace, c) })
	return result(step, err, refused)
}

func (h *handle) StepCall(ctx context.Context, namespace string, a store.CallAct) (step store.CallStep, err error) {
	var refused error
	err = h.call(ctx, "StepCall", func() { step, refused = h.s.step(namespace, a) })
	return result(step, err, refused)
}

// result returns a step, or the error that hides it.
func result(step store.CallStep, err, refused error) (store.CallStep, error) {
	if err != nil {
		return store.CallStep{}, err
	}
	return step, refused
}

func (h *handle) HearCalls(
	ctx context.Context, namespace string, heard []store.CallHeard,
) (steps []store.CallStep, err error) {
	err = h.call(ctx, "HearCalls", func() { steps = h.s.hear(namespace, heard) })
	return steps, err
}

func (h *handle) ReadCall(ctx context.Context, namespace, id string) (c lastseen.Call, err error) {
	found := false
	err = h.call(ctx, "ReadCall", func() {
		n := h.s.in(namespace)
		if n.calls[id] != nil {
			c, found = h.s.shown(n, n.calls[id]), true
		}
	})
	if err == nil && !found {
		err = store.ErrCallNotFound
	}
	return c, err
}

func (h *handle) ReadCalls(ctx context.Context, namespace string, users []string) (calls []lastseen.Call, err error) {
	err = h.call(ctx, "ReadCalls", func() {
		n := h.s.in(namespace)
		calls = make([]lastseen.Call, len(users))
		for i, user := range users {
			if c := n.of(user); c != nil {
				calls[i] = h.s.shown(n, c)
			}
		}
	})
	return calls, err
}

func (h *handle) ExpireCalls(ctx context.Context, namespace string) (result store.ExpiredCalls, err error) {
	err = h.call(ctx, "ExpireCalls", func() { result = h.s.expireAll(namespace) })
	return result, err
}

func (h *handle) CallNamespaces(ctx context.Context, after string, limit int) (names []string, err error) {
	err = h.call(ctx, "CallNamespaces", func() {
		for _, name := range slices.Sorted(maps.Keys(h.s.namespaces)) {
			if name > after && len(names) < limit && !h.s.unlisted {
				names = append(names, name)
			}
		}
	})
	return names, err
}

func (h *handle) UnconfirmedInCalls(
	ctx context.Context, namespace string, age time.Duration,
) (in []store.InCall, err error) {
	err = h.call(ctx, "UnconfirmedInCalls", func() { in = h.s.unconfirmed(namespace, age) })
	return in, err
}

func (h *handle) SetInCalls(ctx context.Context, namespace string, in []store.InCall) error {
	return h.call(ctx, "SetInCalls", func() {
		for _, c := range in {
			if details := h.s.in(namespace).details; c.Until != 0 {
				details[c.User] = c.Until
			} else {
				delete(details, c.User)
			}
		}
	})
}

func (h *handle) ConfirmInCalls(
	ctx context.Context, namespace string, in []store.InCall,
) (changed []store.InCall, err error) {
	err = h.call(ctx, "ConfirmInCalls", func() { changed = h.s.confirm(namespace, in) })
	return changed, err
}

func (h *handle) Lease(ctx context.Context, _ string, ttl time.Duration) (granted bool, err error) {
	err = h.call(ctx, "Lease", func() { granted = h.s.lease(h, ttl) })
	return granted, err
}

func (h *handle) Now(ctx context.Context) (now lastseen.Instant, err error) {
	err = h.call(ctx, "Now", func() { now = h.s.now() })
	return now, err
}

// Signal reaches the own process first, and others unless it fails.
func (h *handle) Signal(ctx context.Context, signal store.Signal) error {
	if h.receive != nil {
		h.receive(signal)
	}
	var others []*handle
	err := h.call(ctx, "Signal", func() { others = slices.Clone(h.s.handles) })
	if err != nil {
		return err
	}
	for _, other := range others {
		if other != h && !other.deaf && other.receive != nil {
			other.receive(signal)
		}
	}
	return nil
}
