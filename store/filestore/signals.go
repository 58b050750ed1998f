package filestore

import (
	"context"

	"github.com/lastseen/lastseen/store"
)

// Signal implements [store.Store]. All listeners are in this process.
func (s *Store) Signal(ctx context.Context, signal store.Signal) error {
	if err := s.read(ctx, func(*index) {}); err != nil {
		return err
	}
	s.signals.Send(signal)
	return nil
}

// Listen implements [store.Store].
func (s *Store) Listen(ctx context.Context, receive func(store.Signal)) {
	l := s.signals.Join()
	defer s.signals.Leave(l)
	l.Lose() // what was sent before
	l.Run(ctx, receive)
}
