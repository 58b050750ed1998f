package observe

import (
	"context"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// InProgress returns s with begin called before, and end after, each call that reads or writes for a request. Calls of
// the service itself, and those that do next to nothing, do not count.
func InProgress(s store.Store, begin, end func()) store.Store { return &inProgress{s, begin, end} }

type inProgress struct {
	store.Store
	begin, end func()
}

// call begins a call, and returns the function that ends it.
func (s *inProgress) call() (end func()) {
	s.begin()
	return s.end
}

func (s *inProgress) Ping(ctx context.Context, namespace string, batch []store.Sighting) ([]lastseen.State, error) {
	defer s.call()()
	return s.Store.Ping(ctx, namespace, batch)
}

func (s *inProgress) Leave(ctx context.Context, namespace string, batch []store.Sighting) ([]lastseen.State, error) {
	defer s.call()()
	return s.Store.Leave(ctx, namespace, batch)
}

func (s *inProgress) Lookup(ctx context.Context, namespace string, users []string) ([]lastseen.State, error) {
	defer s.call()()
	return s.Store.Lookup(ctx, namespace, users)
}

func (s *inProgress) Describe(
	ctx context.Context, namespace string, users []string,
) ([]lastseen.State, map[string]store.Details, error) {
	defer s.call()()
	return s.Store.Describe(ctx, namespace, users)
}

func (s *inProgress) ReadDetails(
	ctx context.Context, namespace string, records []store.Record,
) (map[string]store.Details, error) {
	defer s.call()()
	return s.Store.ReadDetails(ctx, namespace, records)
}

func (s *inProgress) SetAvailability(
	ctx context.Context, namespace, user string, said lastseen.Said, at lastseen.Instant,
) (lastseen.State, error) {
	defer s.call()()
	return s.Store.SetAvailability(ctx, namespace, user, said, at)
}

func (s *inProgress) ReadAvailability(
	ctx context.Context, namespace, user string, at lastseen.Instant,
) (lastseen.Said, error) {
	defer s.call()()
	return s.Store.ReadAvailability(ctx, namespace, user, at)
}

func (s *inProgress) List(ctx context.Context, namespace string, q store.ListQuery) ([]store.Record, error) {
	defer s.call()()
	return s.Store.List(ctx, namespace, q)
}

func (s *inProgress) Count(ctx context.Context, namespace string, ranges []lastseen.Range) ([]int64, error) {
	defer s.call()()
	return s.Store.Count(ctx, namespace, ranges)
}

func (s *inProgress) RecordDevices(
	ctx context.Context, namespace string, window time.Duration, batch []store.DeviceSighting,
) ([]lastseen.State, error) {
	defer s.call()()
	return s.Store.RecordDevices(ctx, namespace, window, batch)
}

func (s *inProgress) ReadDevices(ctx context.Context, namespace, user string) (store.UserDevices, error) {
	defer s.call()()
	return s.Store.ReadDevices(ctx, namespace, user)
}

func (s *inProgress) SetContacts(ctx context.Context, namespace, owner string, contacts []string) error {
	defer s.call()()
	return s.Store.SetContacts(ctx, namespace, owner, contacts)
}

func (s *inProgress) ChangeContacts(ctx context.Context, namespace, owner string, add, remove []string) error {
	defer s.call()()
	return s.Store.ChangeContacts(ctx, namespace, owner, add, remove)
}

func (s *inProgress) ListContacts(ctx context.Context, namespace, owner, after string, limit int) ([]string, error) {
	defer s.call()()
	return s.Store.ListContacts(ctx, namespace, owner, after, limit)
}

func (s *inProgress) AreContacts(ctx context.Context, namespace string, pairs []store.ContactPair) ([]bool, error) {
	defer s.call()()
	return s.Store.AreContacts(ctx, namespace, pairs)
}

func (s *inProgress) ReadCall(ctx context.Context, namespace, id string) (lastseen.Call, error) {
	defer s.call()()
	return s.Store.ReadCall(ctx, namespace, id)
}

func (s *inProgress) ReadCalls(ctx context.Context, namespace string, users []string) ([]lastseen.Call, error) {
	defer s.call()()
	return s.Store.ReadCalls(ctx, namespace, users)
}
