package observe

import (
	"context"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

func (s *observed) SetAvailability(
	ctx context.Context, ns, user string, said lastseen.Said, at lastseen.Instant,
) (_ lastseen.State, err error) {
	defer s.done(opSetAvailability, s.meter.begin(opSetAvailability), &err)
	return s.Store.SetAvailability(ctx, ns, user, said, at)
}

func (s *observed) ReadAvailability(
	ctx context.Context, ns, user string, at lastseen.Instant,
) (_ lastseen.Said, err error) {
	defer s.done(opReadAvailability, s.meter.begin(opReadAvailability), &err)
	return s.Store.ReadAvailability(ctx, ns, user, at)
}

// Describe is measured as a lookup: a batch of lookups can have both.
func (s *observed) Describe(
	ctx context.Context, ns string, users []string,
) (_ []lastseen.State, _ map[string]store.Details, err error) {
	defer s.done(opLookup, s.meter.begin(opLookup), &err)
	return s.Store.Describe(ctx, ns, users)
}

func (s *observed) ReadDetails(
	ctx context.Context, ns string, records []store.Record,
) (_ map[string]store.Details, err error) {
	defer s.done(opReadDetails, s.meter.begin(opReadDetails), &err)
	return s.Store.ReadDetails(ctx, ns, records)
}

func (s *observed) SetContacts(ctx context.Context, ns, owner string, contacts []string) (err error) {
	defer s.done(opSetContacts, s.meter.begin(opSetContacts), &err)
	return s.Store.SetContacts(ctx, ns, owner, contacts)
}

func (s *observed) ChangeContacts(ctx context.Context, ns, owner string, add, remove []string) (err error) {
	defer s.done(opChangeContacts, s.meter.begin(opChangeContacts), &err)
	return s.Store.ChangeContacts(ctx, ns, owner, add, remove)
}

func (s *observed) ListContacts(ctx context.Context, ns, owner, after string, limit int) (_ []string, err error) {
	defer s.done(opListContacts, s.meter.begin(opListContacts), &err)
	return s.Store.ListContacts(ctx, ns, owner, after, limit)
}

func (s *observed) AreContacts(ctx context.Context, ns string, pairs []store.ContactPair) (_ []bool, err error) {
	defer s.done(opAreContacts, s.meter.begin(opAreContacts), &err)
	return s.Store.AreContacts(ctx, ns, pairs)
}

func (s *observed) TrimContacts(
	ctx context.Context, ns string, q store.TrimQuery,
) (_ store.ContactsTrimResult, err error) {
	defer s.done(opTrimContacts, s.meter.begin(opTrimContacts), &err)
	return s.Store.TrimContacts(ctx, ns, q)
}

func (s *observed) Signal(ctx context.Context, signal store.Signal) (err error) {
	defer s.done(opSignal, s.meter.begin(opSignal), &err)
	return s.Store.Signal(ctx, signal)
}
