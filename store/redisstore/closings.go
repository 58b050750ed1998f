package redisstore

import (
	"context"

	"github.com/lastseen/lastseen/store"
)

// CloseConnections implements [store.Store].
func (s *Store) CloseConnections(context.Context, string, string) error { return store.ErrUnavailable }

// Closings implements [store.Store].
func (s *Store) Closings(context.Context, store.ClosingPlace) ([]store.Closing, store.ClosingPlace, error) {
	return nil, "", store.ErrUnavailable
}
