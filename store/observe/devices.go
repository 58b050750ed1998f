package observe

import (
	"context"
	"errors"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

func (s *observed) RecordDevices(
	ctx context.Context, ns string, window time.Duration, batch []store.DeviceSighting,
) ([]lastseen.State, error) {
	begun := s.calls.now()
	states, err := s.Store.RecordDevices(ctx, ns, window, batch)
	s.calls.done(opRecordDevices, begun, deviceFailure(err))
	return states, err
}

func (s *observed) ReadDevices(ctx context.Context, ns, user string) (store.UserDevices, error) {
	begun := s.calls.now()
	devices, err := s.Store.ReadDevices(ctx, ns, user)
	s.calls.done(opReadDevices, begun, deviceFailure(err))
	return devices, err
}

func (s *observed) CloseConnections(ctx context.Context, ns, user string) error {
	begun := s.calls.now()
	err := s.Store.CloseConnections(ctx, ns, user)
	s.calls.done(opCloseConnections, begun, err)
	return err
}

func (s *observed) Closings(
	ctx context.Context, after store.ClosingPlace,
) ([]store.Closing, store.ClosingPlace, error) {
	begun := s.calls.now()
	closings, next, err := s.Store.Closings(ctx, after)
	s.calls.done(opClosings, begun, err)
	return closings, next, err
}

// deviceFailure returns the error of a call, but nil if it only says that a namespace has no devices: that is a result.
func deviceFailure(err error) error {
	if errors.Is(err, store.ErrNoDevices) {
		return nil
	}
	return err
}
