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

// fake is a store that a test holds up: what waits, hangs and fails in which order is what is tested,
// and no real store does so on demand. The lane is what is before the first dot of the namespace, or of
// the user.
type fake struct {
	store.Store // nil: nothing else is called

	hold   map[string]chan struct{} // by lane: each batch waits for a signal, if there is one
	byUser bool
	delay  time.Duration // of each batch

	mu      sync.Mutex
	batches []string // what came, as "namespace:user,user namespace:…"
	broken  map[string]error
	closed  bool
}

func (f *fake) NodeOf(namespace string) (of func(user string) string) {
	return func(user string) string {
		name := namespace
		if f.byUser {
			name = user
		}
		lane, _, ok := strings.Cut(name, ".")
		if !ok {
			return ""
		}
		return lane
	}
}

func (f *fake) PingBatches(ctx context.Context, groups []*store.Batch[store.Sighting]) {
	serve(ctx, f, groups, func(s store.Sighting) (string, lastseen.State) { return s.User, lastseen.State{At: s.At} })
}

func (f *fake) LookupBatches(ctx context.Context, groups []*store.Batch[string]) {
	serve(ctx, f, groups, func(user string) (string, lastseen.State) { return user, lastseen.State{At: 1} })
}

func serve[T any](ctx context.Context, f *fake, groups []*store.Batch[T], answer func(T) (string, lastseen.State)) {
	var came []string
	for _, g := range groups {
		var users []string
		for _, item := range g.Items {
			user, state := answer(item)
			users = append(users, user)
			g.States = append(g.States, state)
		}
		came = append(came, g.Namespace+":"+strings.Join(users, ","))
	}
	first, _ := answer(groups[0].Items[0])
	err := f.came(strings.Join(came, " "))
	if gate := f.hold[f.NodeOf(groups[0].Namespace)(first)]; gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	if f.delay > 0 {
		select {
		case <-time.After(f.delay):
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	for _, g := range groups {
		if errors.Is(f.broken[g.Namespace], errPanic) {
			panic(errPanic)
		}
		if err == nil && errors.Is(f.broken[g.Namespace], errShort) {
			g.States = g.States[1:]
			continue
		}
		if g.Err = errors.Join(err, f.broken[g.Namespace]); g.Err != nil {
			g.States = nil
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

func (f *fake) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	return nil
}

// seen returns the batches that came.
func (f *fake) seen() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string{}, f.batches...)
}
