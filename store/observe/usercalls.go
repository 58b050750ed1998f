package observe

import (
	"context"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

func (s *observed) StartCall(ctx context.Context, ns string, c store.NewCall) (store.CallStep, error) {
	begun := s.calls.now()
	step, err := s.Store.StartCall(ctx, ns, c)
	s.calls.done(opStartCall, begun, userCallFailure(err))
	return step, err
}

func (s *observed) StepCall(ctx context.Context, ns string, a store.CallAct) (store.CallStep, error) {
	begun := s.calls.now()
	step, err := s.Store.StepCall(ctx, ns, a)
	s.calls.done(opStepCall, begun, userCallFailure(err))
	return step, err
}

func (s *observed) HearCalls(ctx context.Context, ns string, heard []store.CallHeard) (store.HeardCalls, error) {
	begun := s.calls.now()
	result, err := s.Store.HearCalls(ctx, ns, heard)
	s.calls.done(opHearCalls, begun, userCallFailure(err))
	return result, err
}

func (s *observed) ReadCall(ctx context.Context, ns, id string) (lastseen.Call, error) {
	begun := s.calls.now()
	call, err := s.Store.ReadCall(ctx, ns, id)
	s.calls.done(opReadCall, begun, userCallFailure(err))
	return call, err
}

func (s *observed) ReadCalls(ctx context.Context, ns string, users []string) ([]lastseen.Call, error) {
	begun := s.calls.now()
	calls, err := s.Store.ReadCalls(ctx, ns, users)
	s.calls.done(opReadCalls, begun, userCallFailure(err))
	return calls, err
}

func (s *observed) ExpireCalls(ctx context.Context, ns string) (store.ExpiredCalls, error) {
	begun := s.calls.now()
	expired, err := s.Store.ExpireCalls(ctx, ns)
	s.calls.done(opExpireCalls, begun, userCallFailure(err))
	return expired, err
}

func (s *observed) CallNamespaces(ctx context.Context, after string, limit int) ([]string, error) {
	begun := s.calls.now()
	names, err := s.Store.CallNamespaces(ctx, after, limit)
	s.calls.done(opCallNamespaces, begun, err)
	return names, err
}

// userCallFailure returns the error of a call to the store, but nil if it only says why a call of users did not begin,
// that it is not known, or that the namespace has no calls.
func userCallFailure(err error) error {
	return failureUnless(err, store.ErrNoCalls, store.ErrCallNotFound, store.ErrCallerBusy, store.ErrCalleeBusy,
		store.ErrCalleeUnavailable, store.ErrTooManyCalls, store.ErrCallKeyReused)
}
