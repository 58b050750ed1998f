package coalesce

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// What the fake answers about namespaces that are broken: an error, a panic, and one state too few.
var (
	errBroken = errors.New("broken")
	errPanic  = errors.New("a defect of the store")
	errShort  = errors.New("one state is missing")
)

// fake is a store that a test holds up. The tests are about what waits, hangs and fails in which order, and no real
// store does so on demand. The node's name is what precedes the first dot of the namespace, or of the user.
type fake struct {
	store.Store // nil: nothing else is called

	hold   map[string]chan struct{} // by node: each batch waits for a signal, if there is one
	byUser bool
	delay  time.Duration // of each batch

	mu      sync.Mutex
	batches []string // what came, as "namespace:user,user namespace:…"
	broken  map[string]error
	closed  bool

	details map[string]store.Details // of users, in all namespaces
}

func (f *fake) NodeOf(namespace string) (of func(user string) string) {
	return func(user string) string {
		name := namespace
		if f.byUser {
			name = user
		}
		node, _, ok := strings.Cut(name, ".")
		if !ok {
			return ""
		}
		return node
	}
}

func (f *fake) PingBatches(ctx context.Context, batches []*store.Batch[store.PresenceEvent]) {
	serve(ctx, f, batches, func(s store.PresenceEvent) (string, lastseen.State) {
		return s.User, lastseen.State{At: s.At}
	})
}

func (f *fake) LookupBatches(ctx context.Context, batches []*store.Batch[string]) {
	serve(ctx, f, batches, func(user string) (string, lastseen.State) { return user, lastseen.State{At: 1} })
	for _, b := range batches {
		if b.Err == nil {
			b.Details = itemDetails(b.Items, f.details)
		}
	}
}

// itemDetails returns the details of users as a batch has them.
func itemDetails(users []string, all map[string]store.Details) (found []store.ItemDetails) {
	for at, user := range users {
		if d, some := all[user]; some {
			found = append(found, store.ItemDetails{At: at, Details: d})
		}
	}
	return found
}

func serve[T any](ctx context.Context, f *fake, batches []*store.Batch[T], answer func(T) (string, lastseen.State)) {
	var came []string
	for _, b := range batches {
		var users []string
		for _, item := range b.Items {
			user, state := answer(item)
			users = append(users, user)
			b.States = append(b.States, state)
		}
		came = append(came, b.Namespace+":"+strings.Join(users, ","))
	}
	first := ""
	if len(batches[0].Items) > 0 {
		first, _ = answer(batches[0].Items[0])
	}
	err := f.came(strings.Join(came, " "))
	var waited <-chan time.Time
	if f.delay > 0 {
		waited = time.After(f.delay)
	}
	if gate := f.hold[f.NodeOf(batches[0].Namespace)(first)]; gate != nil || waited != nil {
		select {
		case <-gate:
		case <-waited:
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	for _, b := range batches {
		failure := f.failure(b.Namespace)
		if errors.Is(failure, errPanic) {
			panic(errPanic)
		}
		if err == nil && errors.Is(failure, errShort) {
			b.States = b.States[1:]
			continue
		}
		if b.Err = errors.Join(err, failure); b.Err != nil {
			b.States = nil
		}
	}
}

func (f *fake) came(batch string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.batches = append(f.batches, batch)
	if f.closed {
		return store.ErrClosed
	}
	return nil
}

func (f *fake) failure(namespace string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	name, _, _ := strings.Cut(namespace, " ") // of devices, a window follows
	return f.broken[name]
}

func (f *fake) repair(namespace string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.broken, namespace)
}

func (f *fake) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	return nil
}

func (f *fake) seen() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string{}, f.batches...)
}
