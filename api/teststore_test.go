package api

import (
	"context"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// errStore is a store that returns an error, except from its clock. Real stores do not fail on demand.
type errStore struct {
	store.Store
	err   error
	panic bool
}

func (f *errStore) Ping(context.Context, string, []store.Sighting) ([]lastseen.State, error) {
	if f.panic {
		panic("the cause")
	}
	return nil, f.err
}

func (f *errStore) Leave(context.Context, string, []store.Sighting) ([]lastseen.State, error) {
	return nil, f.err
}

func (f *errStore) Lookup(context.Context, string, []string) ([]lastseen.State, error) {
	return nil, f.err
}

func (f *errStore) Describe(
	context.Context, string, []string,
) ([]lastseen.State, map[string]store.Details, error) {
	return nil, nil, f.err
}

func (f *errStore) SetAvailability(
	context.Context, string, string, lastseen.Said, lastseen.Instant,
) (lastseen.State, error) {
	return lastseen.State{}, f.err
}

func (f *errStore) ReadAvailability(context.Context, string, string, lastseen.Instant) (lastseen.Said, error) {
	return lastseen.Said{}, f.err
}

func (f *errStore) List(context.Context, string, store.ListQuery) ([]store.Record, error) {
	return nil, f.err
}

func (f *errStore) Count(context.Context, string, []lastseen.Range) ([]int64, error) {
	return nil, f.err
}

func (f *errStore) RecordChanges(context.Context, string, lastseen.Thresholds) error { return f.err }

func (f *errStore) Forget(context.Context, string, string) error { return f.err }

func (f *errStore) RecordDevices(
	context.Context, string, time.Duration, []store.DeviceSighting,
) ([]lastseen.State, error) {
	return nil, f.err
}

func (f *errStore) ReadDevices(context.Context, string, string) (store.UserDevices, error) {
	return store.UserDevices{}, f.err
}

func (f *errStore) SetContacts(context.Context, string, string, []string) error { return f.err }

func (f *errStore) ChangeContacts(context.Context, string, string, []string, []string) error {
	return f.err
}

func (f *errStore) ListContacts(context.Context, string, string, string, int) ([]string, error) {
	return nil, f.err
}

func (f *errStore) StartCall(context.Context, string, store.NewCall) (store.CallStep, error) {
	return store.CallStep{}, f.err
}

func (f *errStore) StepCall(context.Context, string, store.CallAct) (store.CallStep, error) {
	return store.CallStep{}, f.err
}

func (f *errStore) ReadCall(context.Context, string, string) (lastseen.Call, error) {
	return lastseen.Call{}, f.err
}

func (f *errStore) ReadCalls(context.Context, string, []string) ([]lastseen.Call, error) {
	return nil, f.err
}

func (f *errStore) CloseConnections(context.Context, string, string) error { return f.err }

func (f *errStore) Namespaces(context.Context, string, int) ([]store.NamespaceInfo, error) {
	return nil, f.err
}

func (f *errStore) DeleteNamespace(context.Context, string) error { return f.err }

func (f *errStore) Ready(context.Context) error { return f.err }

// sayingStore is a store in which users have the details that a test sets, whatever its clock is.
type sayingStore struct {
	store.Store
	details map[string]store.Details
}

func (s *sayingStore) Describe(
	ctx context.Context, namespace string, users []string,
) ([]lastseen.State, map[string]store.Details, error) {
	states, err := s.Lookup(ctx, namespace, users)
	return states, s.details, err
}

func (s *sayingStore) ReadDetails(context.Context, string, []store.Record) (map[string]store.Details, error) {
	return s.details, nil
}

// errAfterFirstStore is a store that accepts one batch of pings only.
type errAfterFirstStore struct {
	store.Store
	err   error
	taken bool
}

func (f *errAfterFirstStore) Ping(ctx context.Context, namespace string, batch []store.Sighting) ([]lastseen.State,
	error,
) {
	if f.taken {
		return nil, f.err
	}
	f.taken = true
	return f.Store.Ping(ctx, namespace, batch)
}

// idleStore is the part of a fake that no test calls, without load.
type idleStore struct{ store.Store }

func (idleStore) Load() float64 { return 0 }

// slowStore is a store that records pings slowly, and notes whether their callers gave up meanwhile.
type slowStore struct {
	idleStore
	pause    time.Duration
	canceled bool
}

func (*slowStore) Now(context.Context) (lastseen.Instant, error) { return testNow, nil }

func (p *slowStore) Ping(ctx context.Context, _ string, batch []store.Sighting) ([]lastseen.State, error) {
	time.Sleep(p.pause)
	p.canceled = ctx.Err() != nil
	return make([]lastseen.State, len(batch)), nil
}
