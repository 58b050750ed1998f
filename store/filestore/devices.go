package filestore

import (
	"context"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// RecordDevices implements [store.Store].
func (s *Store) RecordDevices(
	context.Context, string, time.Duration, []store.DeviceSighting,
) ([]lastseen.State, error) {
	return nil, store.ErrNoDevices
}

// ReadDevices implements [store.Store].
func (s *Store) ReadDevices(context.Context, string, string) (store.UserDevices, error) {
	return store.UserDevices{}, store.ErrNoDevices
}
