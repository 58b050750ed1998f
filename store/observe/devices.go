package observe

import (
	"context"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

func (s *observed) RecordDevices(
	ctx context.Context, ns string, window time.Duration, batch []store.DeviceSighting,
) (_ []lastseen.State, err error) {
	defer s.done(opRecordDevices, s.meter.begin(opRecordDevices), &err)
	return s.Store.RecordDevices(ctx, ns, window, batch)
}

func (s *observed) ReadDevices(ctx context.Context, ns, user string) (_ store.UserDevices, err error) {
	defer s.done(opReadDevices, s.meter.begin(opReadDevices), &err)
	return s.Store.ReadDevices(ctx, ns, user)
}

func (s *observed) CloseConnections(ctx context.Context, ns, user string) (err error) {
	defer s.done(opCloseConnections, s.meter.begin(opCloseConnections), &err)
	return s.Store.CloseConnections(ctx, ns, user)
}

func (s *observed) Closings(
	ctx context.Context, after store.ClosingPlace,
) (_ []store.Closing, _ store.ClosingPlace, err error) {
	defer s.done(opClosings, s.meter.begin(opClosings), &err)
	return s.Store.Closings(ctx, after)
}
