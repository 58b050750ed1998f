package observe

import (
	"context"
	"errors"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

func (s *observed) RecordChanges(ctx context.Context, ns string, t lastseen.Thresholds) error {
	begun := s.calls.now()
	err := s.Store.RecordChanges(ctx, ns, t)
	s.calls.done(opRecordChanges, begun, failure(err))
	return err
}

func (s *observed) ReadChanges(ctx context.Context, reads []*store.ChangesRead) {
	begun := s.calls.now()
	s.Store.ReadChanges(ctx, reads)
	var failed error
	for _, r := range reads {
		if failed = failure(r.Err); failed != nil {
			break
		}
	}
	s.calls.done(opReadChanges, begun, failed)
}

func (s *observed) SnapshotChanges(ctx context.Context, ns string, users []string) (store.Snapshot, error) {
	begun := s.calls.now()
	snapshot, err := s.Store.SnapshotChanges(ctx, ns, users)
	s.calls.done(opSnapshotChanges, begun, failure(err))
	return snapshot, err
}

func (s *observed) SweepChanges(ctx context.Context, sweeps []*store.ChangesSweep) {
	begun := s.calls.now()
	s.Store.SweepChanges(ctx, sweeps)
	var failed error
	for _, w := range sweeps {
		if failed = failure(w.Err); failed != nil {
			break
		}
	}
	s.calls.done(opSweepChanges, begun, failed)
}

// failure returns the error of a call, but nil if it only says that there is no feed: that is a result.
func failure(err error) error {
	if errors.Is(err, store.ErrNotRecorded) || errors.Is(err, store.ErrNoFeed) {
		return nil
	}
	return err
}
