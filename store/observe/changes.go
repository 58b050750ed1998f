package observe

import (
	"cmp"
	"context"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

func (s *observed) RecordChanges(ctx context.Context, ns string, t lastseen.Thresholds) (err error) {
	defer s.done(opRecordChanges, s.meter.begin(opRecordChanges), &err)
	return s.Store.RecordChanges(ctx, ns, t)
}

func (s *observed) ReadChanges(ctx context.Context, reads []*store.ChangesRead) {
	var failed error
	defer s.done(opReadChanges, s.meter.begin(opReadChanges), &failed)
	s.Store.ReadChanges(ctx, reads)
	for _, r := range reads {
		failed = cmp.Or(failed, failure(r.Err))
	}
}

func (s *observed) SnapshotChanges(ctx context.Context, ns string, users []string) (_ store.Snapshot, err error) {
	defer s.done(opSnapshotChanges, s.meter.begin(opSnapshotChanges), &err)
	return s.Store.SnapshotChanges(ctx, ns, users)
}

func (s *observed) ScanUsers(
	ctx context.Context, ns string, after store.Place, limit int,
) (_ []string, _ store.Place, err error) {
	defer s.done(opScanUsers, s.meter.begin(opScanUsers), &err)
	return s.Store.ScanUsers(ctx, ns, after, limit)
}

func (s *observed) SweepChanges(ctx context.Context, sweeps []*store.ChangesSweep) {
	var failed error
	defer s.done(opSweepChanges, s.meter.begin(opSweepChanges), &failed)
	s.Store.SweepChanges(ctx, sweeps)
	for _, w := range sweeps {
		failed = cmp.Or(failed, failure(w.Err))
	}
}
