package observe

import (
	"cmp"
	"context"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

func (s *observed) RecordChanges(ctx context.Context, ns string, t lastseen.Thresholds) (err error) {
	defer s.calls.done(opRecordChanges, s.calls.now(), &err)
	return s.Store.RecordChanges(ctx, ns, t)
}

func (s *observed) ReadChanges(ctx context.Context, reads []*store.ChangesRead) {
	var failed error
	defer s.calls.done(opReadChanges, s.calls.now(), &failed)
	s.Store.ReadChanges(ctx, reads)
	for _, r := range reads {
		failed = cmp.Or(failed, failure(r.Err))
	}
}

func (s *observed) SnapshotChanges(ctx context.Context, ns string, users []string) (_ store.Snapshot, err error) {
	defer s.calls.done(opSnapshotChanges, s.calls.now(), &err)
	return s.Store.SnapshotChanges(ctx, ns, users)
}

func (s *observed) SweepChanges(ctx context.Context, sweeps []*store.ChangesSweep) {
	var failed error
	defer s.calls.done(opSweepChanges, s.calls.now(), &failed)
	s.Store.SweepChanges(ctx, sweeps)
	for _, w := range sweeps {
		failed = cmp.Or(failed, failure(w.Err))
	}
}
