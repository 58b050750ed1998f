package calls

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// This file has the methods of a fakeStore that a keeper calls.

func (s *fakeStore) StartCall(_ context.Context, namespace string, c store.NewCall) (store.CallStep, error) {
	defer s.lock()()
	return s.start(namespace, c)
}

func (s *fakeStore) StepCall(_ context.Context, namespace string, a store.CallAct) (store.CallStep, error) {
	defer s.lock()()
	return s.step(namespace, a)
}

func (s *fakeStore) HearCalls(_ context.Context, namespace string, heard []store.CallHeard) (store.HeardCalls, error) {
	defer s.lock()()
	return s.hear(namespace, heard), nil
}

func (s *fakeStore) ReadCall(_ context.Context, namespace, id string) (lastseen.Call, error) {
	defer s.lock()()
	n := s.in(namespace)
	if n.calls[id] == nil {
		return lastseen.Call{}, store.ErrCallNotFound
	}
	return s.shown(n, n.calls[id]), nil
}

func (s *fakeStore) ReadCalls(_ context.Context, namespace string, users []string) ([]lastseen.Call, error) {
	defer s.lock()()
	n := s.in(namespace)
	calls := make([]lastseen.Call, len(users))
	for i, user := range users {
		if c := n.of(user); c != nil {
			calls[i] = s.shown(n, c)
		}
	}
	return calls, nil
}

func (s *fakeStore) ExpireCalls(_ context.Context, namespace string) (store.ExpiredCalls, error) {
	defer s.lock()()
	return s.expireAll(namespace), nil
}

func (s *fakeStore) CallNamespaces(_ context.Context, after string, limit int) (names []string, _ error) {
	defer s.lock()()
	for _, name := range slices.Sorted(maps.Keys(s.namespaces)) {
		if name > after && len(names) < limit && !s.unlisted {
			names = append(names, name)
		}
	}
	return names, nil
}

func (s *fakeStore) UnconfirmedInCalls(
	_ context.Context, namespace string, age time.Duration,
) ([]store.InCall, error) {
	defer s.lock()()
	return s.unconfirmed(namespace, age), nil
}

func (s *fakeStore) SetInCalls(_ context.Context, namespace string, in []store.InCall) error {
	defer s.lock()()
	for _, c := range in {
		if details := s.in(namespace).details; c.Until != 0 {
			details[c.User] = c.Until
		} else {
			delete(details, c.User)
		}
	}
	return nil
}

func (s *fakeStore) ConfirmInCalls(_ context.Context, namespace string, in []store.InCall) ([]store.InCall, error) {
	defer s.lock()()
	return s.confirm(namespace, in), nil
}

// Describe has the details of all users that were recorded.
func (s *fakeStore) Describe(
	_ context.Context, namespace string, users []string,
) ([]lastseen.State, map[string]store.Details, error) {
	defer s.lock()()
	details := map[string]store.Details{}
	for _, user := range users {
		details[user] = store.Details{InCallUntil: s.in(namespace).details[user]}
	}
	return make([]lastseen.State, len(users)), details, nil
}

func (s *fakeStore) Now(context.Context) (lastseen.Instant, error) {
	defer s.lock()()
	return s.now(), nil
}
