package filestore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// transaction gives writes access to the index. In a staged transaction, changes are kept apart from the index until
// they are in the file; otherwise they are made at once.
type transaction struct {
	index  *index
	log    *changes
	staged map[userKey]lastseen.State // nil if changes are made at once
	drops  []string                   // staged
	adds   map[string]struct{}        // staged; namespaces that do not exist yet
	erased []userKey                  // staged; users who are forgotten, and perhaps set again

	// staged; the devices of users, by namespace and user. A namespace is in it once it has devices.
	devices map[string]map[string]deviceChange

	maxNamespaces int              // 0 for no limit
	now           lastseen.Instant // when changes are made, for feeds; 0 if the clock was not read yet
	trims         bool             // the changes are those of a Trim
}

type userKey struct{ namespace, user string }

func (t *transaction) get(namespace, user string) lastseen.State {
	if s, ok := t.staged[userKey{namespace, user}]; ok {
		return s
	}
	return t.index.get(namespace, user)
}

func (t *transaction) set(namespace, user string, s lastseen.State) {
	t.log.set(namespace, user, s)
	if t.staged == nil {
		t.make(userKey{namespace, user}, s)
		return
	}
	t.staged[userKey{namespace, user}] = s
}

// forget removes a user.
func (t *transaction) forget(namespace, user string) {
	t.set(namespace, user, lastseen.State{})
	if t.staged != nil {
		t.erased = append(t.erased, userKey{namespace, user})
		t.stageDevices(namespace, user, deviceChange{})
	}
}

// make makes a change to the index, and appends it to the feed of the namespace, if there is one.
func (t *transaction) make(key userKey, s lastseen.State) {
	n, old := t.index.set(key.namespace, key.user, s)
	if n.feed == nil {
		return
	}
	feeds := &t.index.feeds
	if t.now == 0 {
		t.now = feeds.clock()
	}
	n.feed.wrote(key.user, old, s, occasion{now: t.now, monotonic: feeds.monotonic, trims: t.trims})
}

func (t *transaction) drop(namespace string) {
	t.log.drop(namespace)
	if t.staged == nil {
		t.index.drop(namespace)
		return
	}
	t.drops = append(t.drops, namespace)
}

func (t *transaction) exists(namespace string) bool {
	_, exists := t.index.namespaces.Get(namespace)
	_, added := t.adds[namespace]
	return exists || added
}

func (t *transaction) add(namespace string) {
	t.log.in(namespace)
	if t.staged == nil {
		t.index.add(namespace)
		return
	}
	t.adds[namespace] = struct{}{}
}

// ensure creates a namespace unless it exists or the limit is reached.
func (t *transaction) ensure(namespace string) error {
	if t.exists(namespace) {
		return nil
	}
	if n := t.index.namespaces.Len() + len(t.adds); t.maxNamespaces > 0 && n >= t.maxNamespaces {
		return fmt.Errorf("%w: %d", store.ErrNamespaceLimit, n)
	}
	t.add(namespace)
	return nil
}

func (t *transaction) apply() {
	for _, namespace := range t.drops {
		t.index.drop(namespace)
	}
	for namespace := range t.adds {
		t.index.add(namespace)
	}
	for _, key := range t.erased { // in the feed, too, whatever the state is in the end
		t.make(key, lastseen.State{})
	}
	for key, s := range t.staged {
		t.make(key, s)
	}
	for namespace, users := range t.devices {
		for user, c := range users {
			t.index.setDevices(namespace, user, c.Devices, c.meta)
		}
	}
}

// Ping implements [store.Store].
func (s *Store) Ping(ctx context.Context, namespace string, batch []store.Sighting) ([]lastseen.State, error) {
	a, err := s.record(ctx, &assertions{namespace: namespace, batch: batch})
	if err != nil {
		return nil, err
	}
	if s.gap != nil && a.gap > 0 && rand.IntN(gapSample) == 0 {
		s.gap(namespace, a.gap)
	}
	return a.states, nil
}

// gapSample is how many calls of Ping there are for each whose gap is observed, on average.
const gapSample = 16

// Leave implements [store.Store].
func (s *Store) Leave(ctx context.Context, namespace string, batch []store.Sighting) ([]lastseen.State, error) {
	if len(batch) > maxDeviceWrite && s.hasDevices(namespace) {
		return s.leaveInParts(ctx, namespace, batch)
	}
	a, err := s.record(ctx, &assertions{namespace: namespace, batch: batch, leaves: true})
	if err != nil {
		return nil, err
	}
	return a.states, nil
}

func (s *Store) record(ctx context.Context, a *assertions) (*assertions, error) {
	if s.writer.sync == 0 {
		a.batch = slices.Clone(a.batch) // the write can outlast the call
	}
	a.now = s.readClock
	if err := s.writer.do(ctx, write{op: a}); err != nil {
		return nil, err // and not states, which the write may still change
	}
	return a, a.err
}

// assertions are a batch of pings or leaves.
type assertions struct {
	namespace string
	batch     []store.Sighting
	leaves    bool
	now       func() lastseen.Instant
	err       error             // why nothing was recorded
	states    []lastseen.State  // the result
	gap       time.Duration     // from the first user's previous event to this one; 0 if that user was not present
	single    [1]lastseen.State // memory for the result of a batch of one
}

func (a *assertions) do(t *transaction) {
	if len(a.batch) == 0 {
		return
	}
	if a.err = t.ensure(a.namespace); a.err != nil {
		return
	}
	a.states = a.single[:]
	if len(a.batch) != 1 {
		a.states = make([]lastseen.State, len(a.batch))
	}
	now := a.now()
	if t.staged == nil {
		t.now = now
	}
	if a.leaves && t.hasDevices(a.namespace) {
		a.leaveDevices(t, now)
		return
	}
	for i, sighting := range a.batch {
		old := t.get(a.namespace, sighting.User)
		a.states[i] = a.after(old, store.Bounded(sighting.At, now))
		if i == 0 && old.Known() && !old.Left {
			a.gap = time.Duration(a.states[0].At-old.At) * time.Millisecond
		}
		if a.states[i] != old {
			t.set(a.namespace, sighting.User, a.states[i])
		}
	}
	if len(a.batch) == 1 {
		return
	}
	for i, sighting := range a.batch { // a user who is in it twice has the last state twice
		a.states[i] = t.get(a.namespace, sighting.User)
	}
}

func (a *assertions) after(s lastseen.State, at lastseen.Instant) lastseen.State {
	if a.leaves {
		return s.AfterLeave(at)
	}
	return s.AfterPing(at)
}

// Forget implements [store.Store].
func (s *Store) Forget(ctx context.Context, namespace, user string) error {
	return s.writer.do(ctx, write{durable: true, op: opFunc(func(t *transaction) {
		if t.get(namespace, user).Known() {
			t.forget(namespace, user)
		}
	})})
}

// Trim implements [store.Store].
func (s *Store) Trim(ctx context.Context, namespace string, q store.TrimQuery) (store.TrimResult, error) {
	var result store.TrimResult
	var moved error
	err := s.writer.do(ctx, write{alone: true, op: opFunc(func(t *transaction) {
		now := s.readClock()
		if moved = q.CheckClock(now); moved != nil {
			return
		}
		n, ok := t.index.namespaces.Get(namespace)
		if !ok {
			return
		}
		cutoff := s.feedCutoff(t, namespace, now.Add(-q.Age))
		t.trims = true
		if newest := n.newest(); !q.All && newest != 0 && newest < cutoff {
			result.Held = true
			return
		}
		stale := n.before(cutoff, store.MaxTrim)
		for _, user := range stale {
			t.set(namespace, user, lastseen.State{})
		}
		result.Deleted = len(stale)
	})})
	if err != nil { // the write can outlast the call: its result is not read
		return store.TrimResult{}, err
	}
	return result, moved
}

// RemoveEmpty implements [store.Store].
func (s *Store) RemoveEmpty(ctx context.Context, namespace string) (bool, error) {
	removed := false
	err := s.writer.do(ctx, write{alone: true, op: opFunc(func(t *transaction) {
		if n, ok := t.index.namespaces.Get(namespace); ok && n.users.len() == 0 {
			t.drop(namespace)
			removed = true
		}
	})})
	return err == nil && removed, err // in this order: the write can outlast the call
}

// Register implements [store.Store].
func (s *Store) Register(ctx context.Context, namespaces []string) error {
	namespaces = slices.Clone(namespaces) // the write can outlast the call
	return s.writer.do(ctx, write{alone: true, op: opFunc(func(t *transaction) {
		for _, name := range namespaces {
			if !t.exists(name) {
				t.add(name)
			}
		}
	})})
}

// DeleteNamespace implements [store.Store].
func (s *Store) DeleteNamespace(ctx context.Context, namespace string) error {
	err := s.writer.do(ctx, write{alone: true, durable: true, op: opFunc(func(t *transaction) {
		if t.exists(namespace) {
			t.drop(namespace)
		}
	})})
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.index.endFeed(namespace) // a namespace that did not exist can have one, too
	}
	return err
}
