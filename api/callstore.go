package api

import (
	"context"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// callStore counts the calls of requests to a store that are in progress. Requests whose bodies have not arrived, which
// anyone can make many of, do not count.
type callStore struct {
	store.Store
	overload *overload
}

func (s *callStore) Ping(ctx context.Context, namespace string, batch []store.Sighting) ([]lastseen.State, error) {
	s.overload.begin()
	defer s.overload.end()
	return s.Store.Ping(ctx, namespace, batch)
}

func (s *callStore) Leave(ctx context.Context, namespace string, batch []store.Sighting) ([]lastseen.State, error) {
	s.overload.begin()
	defer s.overload.end()
	return s.Store.Leave(ctx, namespace, batch)
}

func (s *callStore) Lookup(ctx context.Context, namespace string, users []string) ([]lastseen.State, error) {
	s.overload.begin()
	defer s.overload.end()
	return s.Store.Lookup(ctx, namespace, users)
}

func (s *callStore) Describe(
	ctx context.Context, namespace string, users []string,
) ([]lastseen.State, map[string]store.Details, error) {
	s.overload.begin()
	defer s.overload.end()
	return s.Store.Describe(ctx, namespace, users)
}

func (s *callStore) ReadDetails(
	ctx context.Context, namespace string, records []store.Record,
) (map[string]store.Details, error) {
	s.overload.begin()
	defer s.overload.end()
	return s.Store.ReadDetails(ctx, namespace, records)
}

func (s *callStore) SetAvailability(
	ctx context.Context, namespace, user string, said lastseen.Said, at lastseen.Instant,
) (lastseen.State, error) {
	s.overload.begin()
	defer s.overload.end()
	return s.Store.SetAvailability(ctx, namespace, user, said, at)
}

func (s *callStore) ReadAvailability(
	ctx context.Context, namespace, user string, at lastseen.Instant,
) (lastseen.Said, error) {
	s.overload.begin()
	defer s.overload.end()
	return s.Store.ReadAvailability(ctx, namespace, user, at)
}

func (s *callStore) List(ctx context.Context, namespace string, q store.ListQuery) ([]store.Record, error) {
	s.overload.begin()
	defer s.overload.end()
	return s.Store.List(ctx, namespace, q)
}

func (s *callStore) Count(ctx context.Context, namespace string, ranges []lastseen.Range) ([]int64, error) {
	s.overload.begin()
	defer s.overload.end()
	return s.Store.Count(ctx, namespace, ranges)
}

func (s *callStore) RecordDevices(
	ctx context.Context, namespace string, window time.Duration, batch []store.DeviceSighting,
) ([]lastseen.State, error) {
	s.overload.begin()
	defer s.overload.end()
	return s.Store.RecordDevices(ctx, namespace, window, batch)
}

func (s *callStore) ReadDevices(ctx context.Context, namespace, user string) (store.UserDevices, error) {
	s.overload.begin()
	defer s.overload.end()
	return s.Store.ReadDevices(ctx, namespace, user)
}

func (s *callStore) SetContacts(ctx context.Context, namespace, owner string, contacts []string) error {
	s.overload.begin()
	defer s.overload.end()
	return s.Store.SetContacts(ctx, namespace, owner, contacts)
}

func (s *callStore) ChangeContacts(ctx context.Context, namespace, owner string, add, remove []string) error {
	s.overload.begin()
	defer s.overload.end()
	return s.Store.ChangeContacts(ctx, namespace, owner, add, remove)
}

func (s *callStore) ListContacts(ctx context.Context, namespace, owner, after string, limit int) ([]string, error) {
	s.overload.begin()
	defer s.overload.end()
	return s.Store.ListContacts(ctx, namespace, owner, after, limit)
}

func (s *callStore) AreContacts(ctx context.Context, namespace string, pairs []store.ContactPair) ([]bool, error) {
	s.overload.begin()
	defer s.overload.end()
	return s.Store.AreContacts(ctx, namespace, pairs)
}

func (s *callStore) ReadCall(ctx context.Context, namespace, id string) (lastseen.Call, error) {
	s.overload.begin()
	defer s.overload.end()
	return s.Store.ReadCall(ctx, namespace, id)
}

func (s *callStore) ReadCalls(ctx context.Context, namespace string, users []string) ([]lastseen.Call, error) {
	s.overload.begin()
	defer s.overload.end()
	return s.Store.ReadCalls(ctx, namespace, users)
}
