package calls

import (
	"context"
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// network is what several handles of one store share: the lease and the signals.
type network struct {
	monotonic func() time.Duration

	mu      sync.Mutex
	holder  *handle // of the lease
	until   time.Duration
	handles []*handle
}

// handle is a server's access to a store, with errors, lost signals and pauses at the moments that a test is about.
type handle struct {
	store.Store
	net *network

	receive func(store.Signal)
	fail    func(method string) error // instead of doing what is asked
	lose    func(method string) error // after it was done
	before  func(method string)
	deaf    bool     // signals do not arrive
	listed  []string // by CallNamespaces, if not nil

	mu     sync.Mutex
	counts map[string]int // of calls by method
}

func (n *network) add(s store.Store) *handle {
	fine := func(string) error { return nil }
	h := &handle{
		Store: s, net: n, counts: map[string]int{}, before: func(string) {}, fail: fine, lose: fine,
	}
	n.handles = append(n.handles, h)
	return h
}

// through calls a method, unless it is to fail.
func through[T any](ctx context.Context, h *handle, method string, do func() (T, error)) (result T, err error) {
	h.before(method)
	h.mu.Lock()
	h.counts[method]++
	h.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return result, err
	}
	if err := h.fail(method); err != nil {
		return result, err
	}
	done, err := do()
	if lost := h.lose(method); lost != nil {
		return result, lost
	}
	return done, err
}

// to is through for a method with a namespace and one more parameter.
func to[A, T any](
	ctx context.Context, h *handle, name string, method func(context.Context, string, A) (T, error),
	namespace string, a A,
) (T, error) {
	return through(ctx, h, name, func() (T, error) { return method(ctx, namespace, a) })
}

func (h *handle) StartCall(ctx context.Context, namespace string, c store.NewCall) (store.CallStep, error) {
	return to(ctx, h, "StartCall", h.Store.StartCall, namespace, c)
}

func (h *handle) StepCall(ctx context.Context, namespace string, a store.CallAct) (store.CallStep, error) {
	return to(ctx, h, "StepCall", h.Store.StepCall, namespace, a)
}

func (h *handle) KeepCallsAlive(ctx context.Context, ns string, active []store.KeepAlive) (store.KeptAlive, error) {
	return to(ctx, h, "KeepCallsAlive", h.Store.KeepCallsAlive, ns, active)
}

func (h *handle) ReadCalls(ctx context.Context, namespace string, ids, users []string) ([]lastseen.Call, error) {
	read := func(ctx context.Context, namespace string, users []string) ([]lastseen.Call, error) {
		return h.Store.ReadCalls(ctx, namespace, ids, users)
	}
	return to(ctx, h, "ReadCalls", read, namespace, users)
}

func (h *handle) ExpireCalls(ctx context.Context, namespace string) (store.ExpiredCalls, error) {
	return through(ctx, h, "ExpireCalls", func() (store.ExpiredCalls, error) {
		return h.Store.ExpireCalls(ctx, namespace)
	})
}

func (h *handle) CallNamespaces(ctx context.Context, after string, limit int) ([]string, error) {
	return through(ctx, h, "CallNamespaces", func() ([]string, error) {
		if h.listed == nil {
			return h.Store.CallNamespaces(ctx, after, limit)
		}
		rest := h.listed[min(len(h.listed), sort.SearchStrings(h.listed, after+" ")):]
		return rest[:min(limit, len(rest))], nil
	})
}

func (h *handle) Now(ctx context.Context) (lastseen.Instant, error) {
	return through(ctx, h, "Now", func() (lastseen.Instant, error) { return h.Store.Now(ctx) })
}

// Lease grants a lease to one handle at a time.
func (h *handle) Lease(ctx context.Context, _ string, ttl time.Duration) (bool, error) {
	return through(ctx, h, "Lease", func() (bool, error) {
		n, now := h.net, h.net.monotonic()
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.holder != h && n.holder != nil && now < n.until {
			return false, nil
		}
		n.holder, n.until = h, now+ttl
		return true, nil
	})
}

// Signal reaches the own process first, and others unless it fails.
func (h *handle) Signal(ctx context.Context, signal store.Signal) error {
	if h.receive != nil {
		h.receive(signal)
	}
	others, err := through(ctx, h, "Signal", func() ([]*handle, error) {
		h.net.mu.Lock()
		defer h.net.mu.Unlock()
		return slices.Clone(h.net.handles), nil
	})
	for _, other := range others {
		if other != h && !other.deaf && other.receive != nil {
			other.receive(signal)
		}
	}
	return err
}
