package api

import (
	"context"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// failing is a store that fails as it is told, in all but its clock: real ones do not on demand.
type failing struct {
	store.Store
	err   error
	panic bool
}

func (f *failing) Ping(context.Context, string, []store.Sighting) ([]lastseen.State, error) {
	if f.panic {
		panic("the cause")
	}
	return nil, f.err
}

func (f *failing) Leave(context.Context, string, []store.Sighting) ([]lastseen.State, error) {
	return nil, f.err
}

func (f *failing) Lookup(context.Context, string, []string) ([]lastseen.State, error) {
	return nil, f.err
}

func (f *failing) List(context.Context, string, store.ListQuery) ([]store.Record, error) {
	return nil, f.err
}

func (f *failing) Count(context.Context, string, []lastseen.Range) ([]int64, error) {
	return nil, f.err
}

func (f *failing) Forget(context.Context, string, string) error { return f.err }

func (f *failing) Namespaces(context.Context, string, int) ([]store.NamespaceInfo, error) {
	return nil, f.err
}

func (f *failing) DeleteNamespace(context.Context, string) error { return f.err }

func (f *failing) Ready(context.Context) error { return f.err }

// failsLater is a store that takes one batch of pings and no more.
type failsLater struct {
	store.Store
	err   error
	taken bool
}

func (f *failsLater) Ping(ctx context.Context, namespace string, batch []store.Sighting) ([]lastseen.State, error) {
	if f.taken {
		return nil, f.err
	}
	f.taken = true
	return f.Store.Ping(ctx, namespace, batch)
}

// pausing is a store that takes a while to record pings, and notes whether their callers were given up on meanwhile.
type pausing struct {
	store.Store
	pause    time.Duration
	canceled bool
}

func (*pausing) Now(context.Context) (lastseen.Instant, error) { return noon, nil }

func (p *pausing) Ping(ctx context.Context, _ string, batch []store.Sighting) ([]lastseen.State, error) {
	time.Sleep(p.pause)
	p.canceled = ctx.Err() != nil
	return make([]lastseen.State, len(batch)), nil
}
