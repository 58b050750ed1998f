package filestore

import (
	"context"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// SetAvailability implements [store.Store].
func (s *Store) SetAvailability(
	ctx context.Context, name, user string, said lastseen.Said, at lastseen.Instant,
) (lastseen.State, error) {
	if said = said.At(lastseen.MinInstant); said != (lastseen.Said{}) {
		s.writer.log.need(version3)
	}
	a := &saying{UserKey: lastseen.UserKey{Namespace: name, User: user}, said: said, at: at, now: s.readClock}
	if err := s.writer.do(ctx, write{durable: true, op: a}); err != nil {
		return lastseen.State{}, err // and not the state, which the write may still change
	}
	return a.state, a.err
}

// ReadAvailability implements [store.Store].
func (s *Store) ReadAvailability(
	ctx context.Context, name, user string, at lastseen.Instant,
) (said lastseen.Said, err error) {
	err = s.read(ctx, func(x *index) {
		p := x.people(name)
		if said = p.hiddenOf(user).said(); said.At(at) == (lastseen.Said{}) {
			said = p.saidOf(user)
		}
	})
	return said, err
}

// Describe implements [store.Store].
func (s *Store) Describe(
	ctx context.Context, name string, users []string,
) (states []lastseen.State, details map[string]store.Details, err error) {
	states = make([]lastseen.State, len(users))
	err = s.readIn(ctx, name, func(n *namespace) {
		if n.users.people == nil {
			for i, user := range users {
				states[i] = n.get(user)
			}
			return
		}
		found := make(described, 0, 16)
		for i, user := range users {
			var d *store.Details
			if states[i], d = n.users.details(user); d != nil {
				found = append(found, userDetails{user, d})
			}
		}
		details = found.byUser()
	})
	return states, details, err
}

// ReadDetails implements [store.Store].
func (s *Store) ReadDetails(
	ctx context.Context, name string, records []store.Record,
) (details map[string]store.Details, err error) {
	err = s.readIn(ctx, name, func(n *namespace) {
		if n.users.people == nil {
			return
		}
		found := make(described, 0, 16)
		for _, r := range records {
			if _, d := n.users.details(r.User); d != nil {
				found = append(found, userDetails{r.User, d})
			}
		}
		details = found.byUser()
	})
	return details, err
}

// described are users who have details. They are counted before the map is made: a map that grows costs more.
type described []userDetails

type userDetails struct {
	user string
	*store.Details
}

func (found described) byUser() map[string]store.Details {
	if len(found) == 0 {
		return nil
	}
	details := make(map[string]store.Details, len(found))
	for _, d := range found {
		details[d.user] = *d.Details
	}
	return details
}
