package observe

import (
	"context"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

func (s *observed) StartCall(ctx context.Context, ns string, c store.NewCall) (_ store.CallStep, err error) {
	defer s.done(opStartCall, s.meter.begin(opStartCall), &err)
	return s.Store.StartCall(ctx, ns, c)
}

func (s *observed) StepCall(ctx context.Context, ns string, a store.CallAct) (_ store.CallStep, err error) {
	defer s.done(opStepCall, s.meter.begin(opStepCall), &err)
	return s.Store.StepCall(ctx, ns, a)
}

func (s *observed) HearCalls(ctx context.Context, ns string, heard []store.CallHeard) (_ store.HeardCalls, err error) {
	defer s.done(opHearCalls, s.meter.begin(opHearCalls), &err)
	return s.Store.HearCalls(ctx, ns, heard)
}

func (s *observed) ReadCalls(ctx context.Context, ns string, ids, users []string) (_ []lastseen.Call, err error) {
	defer s.done(opReadCalls, s.meter.begin(opReadCalls), &err)
	return s.Store.ReadCalls(ctx, ns, ids, users)
}

func (s *observed) ExpireCalls(ctx context.Context, ns string) (_ store.ExpiredCalls, err error) {
	defer s.done(opExpireCalls, s.meter.begin(opExpireCalls), &err)
	return s.Store.ExpireCalls(ctx, ns)
}

func (s *observed) CallNamespaces(ctx context.Context, after string, limit int) (_ []string, err error) {
	defer s.done(opCallNamespaces, s.meter.begin(opCallNamespaces), &err)
	return s.Store.CallNamespaces(ctx, after, limit)
}
