package observe

import (
	"context"
	"errors"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

func (s *observed) SetAvailability(
	ctx context.Context, ns, user string, said lastseen.Said, at lastseen.Instant,
) (lastseen.State, error) {
	begun := s.calls.now()
	state, err := s.Store.SetAvailability(ctx, ns, user, said, at)
	s.calls.done(opSetAvailability, begun, peopleFailure(err))
	return state, err
}

func (s *observed) ReadAvailability(
	ctx context.Context, ns, user string, at lastseen.Instant,
) (lastseen.Said, error) {
	begun := s.calls.now()
	said, err := s.Store.ReadAvailability(ctx, ns, user, at)
	s.calls.done(opReadAvailability, begun, peopleFailure(err))
	return said, err
}

// Describe is measured as a lookup: a batch of lookups can have both.
func (s *observed) Describe(
	ctx context.Context, ns string, users []string,
) ([]lastseen.State, map[string]store.Details, error) {
	begun := s.calls.now()
	states, details, err := s.Store.Describe(ctx, ns, users)
	s.calls.done(opLookup, begun, err)
	return states, details, err
}

func (s *observed) ReadDetails(
	ctx context.Context, ns string, records []store.Record,
) (map[string]store.Details, error) {
	begun := s.calls.now()
	details, err := s.Store.ReadDetails(ctx, ns, records)
	s.calls.done(opReadDetails, begun, err)
	return details, err
}

func (s *observed) SetContacts(ctx context.Context, ns, owner string, contacts []string) error {
	begun := s.calls.now()
	err := s.Store.SetContacts(ctx, ns, owner, contacts)
	s.calls.done(opSetContacts, begun, peopleFailure(err))
	return err
}

func (s *observed) ChangeContacts(ctx context.Context, ns, owner string, add, remove []string) error {
	begun := s.calls.now()
	err := s.Store.ChangeContacts(ctx, ns, owner, add, remove)
	s.calls.done(opChangeContacts, begun, peopleFailure(err))
	return err
}

func (s *observed) ListContacts(ctx context.Context, ns, owner, after string, limit int) ([]string, error) {
	begun := s.calls.now()
	contacts, err := s.Store.ListContacts(ctx, ns, owner, after, limit)
	s.calls.done(opListContacts, begun, peopleFailure(err))
	return contacts, err
}

func (s *observed) AreContacts(ctx context.Context, ns string, pairs []store.ContactPair) ([]bool, error) {
	begun := s.calls.now()
	are, err := s.Store.AreContacts(ctx, ns, pairs)
	s.calls.done(opAreContacts, begun, peopleFailure(err))
	return are, err
}

func (s *observed) TrimContacts(ctx context.Context, ns string, q store.TrimQuery) (store.ContactsTrimResult, error) {
	begun := s.calls.now()
	result, err := s.Store.TrimContacts(ctx, ns, q)
	s.calls.done(opTrimContacts, begun, peopleFailure(err))
	return result, err
}

func (s *observed) Signal(ctx context.Context, signal store.Signal) error {
	begun := s.calls.now()
	err := s.Store.Signal(ctx, signal)
	s.calls.done(opSignal, begun, err)
	return err
}

// peopleFailure returns the error of a call, but nil if it only says that the namespace has no availability or no
// contacts, that the user has too many of them, that another call changed them meanwhile, or that the user cannot
// become invisible yet.
func peopleFailure(err error) error {
	return failureUnless(err, store.ErrNoAvailability, store.ErrEvicts, store.ErrNoContacts, store.ErrTooManyContacts,
		store.ErrContactsChanged)
}

// failureUnless returns the error of a call, but nil if it is one of those which are results.
func failureUnless(err error, results ...error) error {
	for _, result := range results {
		if errors.Is(err, result) {
			return nil
		}
	}
	return err
}
