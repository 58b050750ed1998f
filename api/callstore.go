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
