package memstore

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// Ping implements [store.Store].
func (s *Store) Ping(ctx context.Context, namespace string, batch []store.PresenceEvent) ([]lastseen.State, error) {
	a, err := s.record(ctx, &events{namespace: namespace, batch: batch})
	if err != nil {
		return nil, err
	}
	if gap := s.tables.options.Gap; gap != nil && a.gap > 0 && rand.IntN(gapSample) == 0 {
		gap(namespace, a.gap)
	}
	return a.states, nil
}

// gapSample is how many calls of Ping there are for each whose gap is observed, on average.
const gapSample = 16

// Leave implements [store.Store].
func (s *Store) Leave(ctx context.Context, namespace string, batch []store.PresenceEvent) ([]lastseen.State, error) {
	leave := func(part []store.PresenceEvent) ([]lastseen.State, error) {
		a, err := s.record(ctx, &events{namespace: namespace, batch: part, leaves: true})
		if err != nil {
			return nil, err
		}
		return a.states, nil
	}
	if len(batch) > maxDeviceWrite && s.hasDevices(namespace) {
		return inParts(batch, func(event store.PresenceEvent) string { return event.User }, leave)
	}
	return leave(batch)
}

func (s *Store) record(ctx context.Context, a *events) (*events, error) {
	if s.journal.Outlasts() {
		a.batch = slices.Clone(a.batch) // the write can outlast the call
	}
	if err := s.journal.Do(ctx, Write{op: a}); err != nil {
		return nil, err // and not states, which the write may still change
	}
	return a, a.err
}

// events are a batch of pings or leaves.
type events struct {
	namespace string
	batch     []store.PresenceEvent
	leaves    bool
	err       error             // why nothing was recorded
	states    []lastseen.State  // the result
	gap       time.Duration     // from the first user's previous event to this one; 0 if that user was not present
	single    [1]lastseen.State // memory for the result of a batch of one
}

func (a *events) do(t *transaction) {
	if len(a.batch) == 0 {
		return
	}
	now := t.readClock()
	shown := a.shown(t, now)
	if len(shown) > 0 {
		if a.err = t.ensure(a.namespace); a.err != nil {
			return
		}
	}
	a.states = a.single[:]
	if len(a.batch) != 1 {
		a.states = make([]lastseen.State, len(a.batch))
	}
	if a.leaves && t.hasDevices(a.namespace) {
		a.leaveDevices(t, shown, now)
		return
	}
	after := lastseen.State.AfterPing
	if a.leaves {
		after = lastseen.State.AfterLeave
	}
	for i, event := range shown {
		old := t.get(a.namespace, event.User)
		a.states[i] = after(old, store.Bounded(event.At, now))
		if i == 0 && old.Known() && !old.Left {
			a.gap = a.states[0].At.Sub(old.At)
		}
		if a.states[i] != old {
			t.set(a.namespace, event.User, a.states[i])
		}
	}
	if len(a.batch) == 1 && len(shown) == 1 {
		return
	}
	for i, event := range a.batch { // a user who is in it twice has the last state twice
		a.states[i] = t.get(a.namespace, event.User)
	}
}

// shown returns the events that are not hidden.
func (a *events) shown(t *transaction, now lastseen.Instant) []store.PresenceEvent {
	hides := t.hides(a.namespace, now)
	if hides == nil {
		return a.batch
	}
	return slices.DeleteFunc(slices.Clone(a.batch), func(s store.PresenceEvent) bool { return hides(s.User, s.At) })
}

// write makes a write that returns a result or an error of its own. The write can outlast the call: if the journal
// fails, what the write returns is not read.
func write[T any](ctx context.Context, s *Store, w Write, do func(*transaction) (T, error)) (T, error) {
	var result T
	var failed error
	w.op = opFunc(func(t *transaction) { result, failed = do(t) })
	if err := s.journal.Do(ctx, w); err != nil {
		var none T
		return none, err
	}
	return result, failed
}

// Forget implements [store.Store].
func (s *Store) Forget(ctx context.Context, namespace, user string) error {
	err := s.journal.Do(ctx, Write{Durable: true, op: opFunc(func(t *transaction) {
		key := lastseen.UserKey{Namespace: namespace, User: user}
		if t.get(namespace, user).Known() || t.hasAvailability(key) || t.inCall(key) {
			t.forget(key)
		}
		t.setContacts(key, t.contactsOf(key), ownedContacts{})
	})})
	// Also after an error: the write may be made.
	return cmp.Or(err,
		s.changeCalls(context.WithoutCancel(ctx), namespace, func(t *callTable, _ clockReading) { t.forget(user) }))
}

// Trim implements [store.Store].
func (s *Store) Trim(ctx context.Context, namespace string, q store.TrimQuery) (store.TrimResult, error) {
	return write(ctx, s, Write{Alone: true}, func(t *transaction) (result store.TrimResult, err error) {
		now := t.readClock()
		if err := q.CheckClock(now); err != nil {
			return result, err
		}
		n, ok := t.index.namespaces.Get(namespace)
		if !ok {
			return result, nil
		}
		cutoff := t.feedCutoff(namespace, now.Add(-q.Age))
		t.trims = true
		if newest := n.newest(); !q.All && newest != 0 && newest < cutoff {
			return store.TrimResult{Held: true}, nil
		}
		stale := n.before(cutoff, store.MaxTrim)
		for _, user := range stale {
			if !n.users.contacts.empty() {
				t.noteUse(lastseen.UserKey{Namespace: namespace, User: user}, n.get(user).At)
			}
			t.trim(lastseen.UserKey{Namespace: namespace, User: user})
		}
		return store.TrimResult{Deleted: len(stale)}, nil
	})
}

// RemoveEmpty implements [store.Store].
func (s *Store) RemoveEmpty(ctx context.Context, namespace string) (bool, error) {
	return write(ctx, s, Write{Alone: true}, func(t *transaction) (removed bool, err error) {
		n, ok := t.index.namespaces.Get(namespace)
		if !ok || n.users.len() > 0 || !n.users.contacts.empty() || n.users.availability.hasAny(s.tables.readClock()) ||
			s.calls.isOngoing(namespace) {
			return false, nil
		}
		if n.users.availability.empty() {
			t.drop(namespace)
		} else {
			t.unlist(namespace)
		}
		return true, nil
	})
}

// Exist implements [store.Store].
func (s *Store) Exist(ctx context.Context, namespaces []string) ([]bool, error) {
	exist := make([]bool, len(namespaces))
	err := s.read(ctx, func(x *index) {
		for i, name := range namespaces {
			_, exist[i] = x.namespaces.Get(name)
		}
	})
	return exist, err
}

// Register implements [store.Store].
func (s *Store) Register(ctx context.Context, namespaces []string) error {
	namespaces = slices.Clone(namespaces) // the write can outlast the call
	return s.journal.Do(ctx, Write{Alone: true, op: opFunc(func(t *transaction) {
		for _, name := range namespaces {
			if !t.exists(name) {
				t.add(name)
			}
		}
	})})
}

// DeleteNamespace implements [store.Store].
func (s *Store) DeleteNamespace(ctx context.Context, namespace string) error {
	return s.journal.Do(ctx, Write{Alone: true, Durable: true, op: opFunc(func(t *transaction) {
		if t.exists(namespace) || t.index.usersOf(namespace).availability != nil {
			t.drop(namespace)
		}
		s.calls.drop(namespace)
	})})
}
