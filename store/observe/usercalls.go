package observe

import (
	"context"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

func (s *observed) StartCall(ctx context.Context, ns string, c store.NewCall) (_ store.CallStep, err error) {
	defer s.calls.done(opStartCall, s.calls.now(), &err)
	return s.Store.StartCall(ctx, ns, c)
}

func (s *observed) StepCall(ctx context.Context, ns string, a store.CallAct) (_ store.CallStep, err error) {
	defer s.calls.done(opStepCall, s.calls.now(), &err)
	return s.Store.StepCall(ctx, ns, a)
}

func (s *observed) HearCalls(ctx context.Context, ns string, heard []store.CallHeard) (_ store.HeardCalls, err error) {
	defer s.calls.done(opHearCalls, s.calls.now(), &err)
	return s.Store.HearCalls(ctx, ns, heard)
}

func (s *observed) ReadCall(ctx context.Context, ns, id string) (_ lastseen.Call, err error) {
	defer s.calls.done(opReadCall, s.calls.now(), &err)
	return s.Store.ReadCall(ctx, ns, id)
}

func (s *observed) ReadCalls(ctx context.Context, ns string, users []string) (_ []lastseen.Call, err error) {
	defer s.calls.done(opReadCalls, s.calls.now(), &err)
	return s.Store.ReadCalls(ctx, ns, users)
}

func (s *observed) ExpireCalls(ctx context.Context, ns string) (_ store.ExpiredCalls, err error) {
	defer s.calls.done(opExpireCalls, s.calls.now(), &err)
	return s.Store.ExpireCalls(ctx, ns)
}

func (s *observed) CallNamespaces(ctx context.Context, after string, limit int) (_ []string, err error) {
	defer s.calls.done(opCallNamespaces, s.calls.now(), &err)
	return s.Store.CallNamespaces(ctx, after, limit)
}
