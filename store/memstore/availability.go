package memstore

import (
	"context"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// SetAvailability implements [store.Store].
func (s *Store) SetAvailability(
	ctx context.Context, name, user string, availability lastseen.AvailabilityState, at lastseen.Instant,
) (lastseen.State, error) {
	key := lastseen.UserKey{Namespace: name, User: user}
	availability = availability.At(lastseen.MinInstant)
	return write(ctx, s, Write{Durable: true}, func(t *transaction) (state lastseen.State, err error) {
		now := t.readClock()
		if err := t.recordAvailability(key, availability, store.Bounded(at, now), now); err != nil {
			return state, err
		}
		t.noteUse(key, now)
		state = t.get(name, user)
		ended := min(at, now)
		t.purge(name, t.purgeable(name, ended), ended.Add(-store.HiddenKept))
		return state, nil
	})
}

// ReadAvailability implements [store.Store].
func (s *Store) ReadAvailability(
	ctx context.Context, name, user string, at lastseen.Instant,
) (availability lastseen.AvailabilityState, err error) {
	err = s.read(ctx, func(x *index) {
		p := x.usersOf(name).availability
		if availability = privateAvailability(p.hiddenOf(user)); availability.At(at) == (lastseen.AvailabilityState{}) {
			availability = p.availabilityOf(user)
		}
	})
	return availability, err
}

// Describe implements [store.Store].
func (s *Store) Describe(
	ctx context.Context, name string, users []string,
) (states []lastseen.State, details map[string]store.Details, err error) {
	states = make([]lastseen.State, len(users))
	err = s.readIn(ctx, name, func(n *namespace) {
		for i, user := range users {
			states[i] = n.describe(user, &details)
		}
	})
	return states, details, err
}

// ReadDetails implements [store.Store].
func (s *Store) ReadDetails(
	ctx context.Context, name string, records []store.Record,
) (details map[string]store.Details, err error) {
	err = s.readIn(ctx, name, func(n *namespace) {
		for _, r := range records {
			n.describe(r.User, &details)
		}
	})
	return details, err
}

// describe returns the state of a user, and adds the details if there are any.
func (n *namespace) describe(user string, details *map[string]store.Details) lastseen.State {
	s, d := n.users.details(user)
	if d != nil {
		if *details == nil {
			*details = map[string]store.Details{}
		}
		(*details)[user] = *d
	}
	return s
}

// recordAvailability records that a user set an availability at a time.
func (t *transaction) recordAvailability(
	key lastseen.UserKey, availability lastseen.AvailabilityState, at, now lastseen.Instant,
) error {
	availability, h := availability.At(at), t.hiddenOf(key)
	if availability.Availability != lastseen.Invisible {
		if availability != (lastseen.AvailabilityState{}) {
			if err := t.ensure(key.Namespace); err != nil {
				return err
			}
		}
		t.hide(key, endHidden(h, at, now))
		t.setAvailability(key, availability)
		return nil
	}
	if privateAvailability(h).At(at) == (lastseen.AvailabilityState{}) { // visible until now
		if err := t.ensure(key.Namespace); err != nil {
			return err
		}
		t.leave(key, at)
	}
	t.hide(key, Hidden{
		HiddenTime: lastseen.HiddenTime{End: availability.HiddenUntil()},
		Until:      availability.Until, Note: availability.Note,
	})
	return nil
}

// endHidden returns what is kept of a hidden time once the user sets another availability.
func endHidden(h Hidden, at, now lastseen.Instant) Hidden {
	switch {
	case h.End == 0:
		return Hidden{}
	case h.Ended && h.End <= now.Add(store.MaxAhead):
		return h
	}
	return Hidden{HiddenTime: lastseen.HiddenTime{End: min(h.End, at), Ended: true}}
}

// leave records that a user left on all devices, at a time or at the user's own time if that is later.
func (t *transaction) leave(key lastseen.UserKey, at lastseen.Instant) {
	state := t.get(key.Namespace, key.User)
	at = max(at, state.At)
	if !t.hasDevices(key.Namespace) {
		if left := state.AfterLeave(at); left != state {
			t.set(key.Namespace, key.User, left)
		}
		return
	}
	writes := deviceWrites{t: t, namespace: key.Namespace, users: map[string]*deviceWrite{}}
	w := writes.of(key.User)
	w.state, w.Devices = w.Leave(w.state, at)
	writes.finish()
}

func (t *transaction) availabilityOf(key lastseen.UserKey) lastseen.AvailabilityState {
	if s, ok := t.availabilities[key]; ok {
		return s
	}
	return t.index.usersOf(key.Namespace).availability.availabilityOf(key.User)
}

func (t *transaction) hiddenOf(key lastseen.UserKey) Hidden {
	if h, ok := t.hidden[key]; ok {
		return h
	}
	return t.index.usersOf(key.Namespace).availability.hiddenOf(key.User)
}

// hasAvailability reports whether an availability of a user is kept, also a private one.
func (t *transaction) hasAvailability(key lastseen.UserKey) bool {
	return t.availabilityOf(key) != (lastseen.AvailabilityState{}) || t.hiddenOf(key) != (Hidden{})
}

// setAvailability changes what others see of a user's availability.
func (t *transaction) setAvailability(key lastseen.UserKey, s lastseen.AvailabilityState) {
	if t.availabilityOf(key) == s {
		return
	}
	t.log.SetAvailability(key.Namespace, key.User, s)
	t.logged(key.Namespace)
	if t.staged == nil {
		t.makeAvailability(key, s)
		return
	}
	t.availabilities[key] = s
}

// hide changes the hidden time of a user.
func (t *transaction) hide(key lastseen.UserKey, h Hidden) {
	if t.hiddenOf(key) == h {
		return
	}
	t.log.Hide(key.Namespace, key.User, h)
	t.logged(key.Namespace)
	if t.staged == nil {
		t.index.hide(key.Namespace, key.User, h)
		return
	}
	t.hidden[key] = h
}

// logged ends changes to a namespace that need not exist. The changes alone would create it.
func (t *transaction) logged(namespace string) {
	if !t.exists(namespace) {
		t.log.Unlist(namespace)
	}
}

// hides returns a function that reports whether an event is hidden; nil if no user of a namespace is hidden.
func (t *transaction) hides(namespace string, now lastseen.Instant) func(user string, at lastseen.Instant) bool {
	if !t.index.hides && len(t.hidden) == 0 {
		return nil
	}
	table := t.index.usersOf(namespace).availability
	if len(t.hidden) == 0 && (table == nil || table.hidden.Len() == 0) {
		return nil
	}
	return func(user string, at lastseen.Instant) bool {
		h, ok := t.hidden[lastseen.UserKey{Namespace: namespace, User: user}]
		if !ok {
			h = table.hiddenOf(user)
		}
		return h.End != 0 && h.Hides(at, now, store.MaxAhead)
	}
}

// maxPurge is how many users one call of SetAvailability looks at to delete what ended.
const maxPurge = 16

// purge deletes some availabilities that ended by a time, and some hidden times that ended by an earlier one.
func (t *transaction) purge(namespace string, endedBy, hiddenBy lastseen.Instant) {
	p := t.index.usersOf(namespace).availability
	if p == nil {
		return
	}
	for _, end := range firstUntil(p.ends, endedBy, maxPurge) {
		if key := (lastseen.UserKey{Namespace: namespace, User: end.user}); t.availabilityOf(key).Until == end.at {
			t.setAvailability(key, lastseen.AvailabilityState{})
		}
	}
	for _, user := range p.nextHidden(maxPurge) {
		key := lastseen.UserKey{Namespace: namespace, User: user}
		if end := t.hiddenOf(key).End; end <= hiddenBy {
			t.noteUse(key, end)
			t.hide(key, Hidden{})
		}
	}
}

// purgeable returns the time until which what ended can be deleted: with a feed, entries of the ends come first.
func (t *transaction) purgeable(namespace string, until lastseen.Instant) lastseen.Instant {
	if f := t.index.feed(namespace); f != nil {
		return min(until, f.watermark)
	}
	return until
}
