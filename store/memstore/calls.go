package memstore

import (
	"cmp"
	"context"
	"strings"
	"sync"
	"time"

	"github.com/tidwall/btree"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// calls holds the calls of all namespaces, in memory only: a restart ends them. Its lock is taken after that of the
// store.
type calls struct {
	clock     func() lastseen.Instant
	monotonic func() time.Duration

	mu     sync.Mutex
	tables btree.Map[string, *callTable] // of namespaces with calls
}

// with runs f on the calls of a namespace, and at a moment of its clock. It creates the table only if create is true.
// Otherwise f is not called for a namespace without calls.
func (c *calls) with(namespace string, create bool, f func(t *callTable, m clockReading)) {
	wall := c.clock()
	c.mu.Lock()
	defer c.mu.Unlock()
	monotonic := c.monotonic()
	t, ok := c.tables.Get(namespace)
	if !ok {
		if !create {
			return
		}
		t = newCallTable(monotonic)
		c.tables.Set(strings.Clone(namespace), t)
	}
	f(t, clockReading{at: t.clock.read(monotonic), wall: wall, ticked: monotonic})
	if len(t.records) == 0 {
		c.tables.Delete(namespace)
	}
}

// step is with for a step, which advances the clock of the namespace.
func (c *calls) step(namespace string, create bool, f func(t *callTable, m clockReading)) {
	c.with(namespace, create, func(t *callTable, m clockReading) {
		t.clock = callClock{now: m.at, last: m.ticked}
		f(t, m)
	})
}

// isOngoing reports whether a call continues in a namespace.
func (c *calls) isOngoing(namespace string) (ongoing bool) {
	c.with(namespace, false, func(t *callTable, m clockReading) {
		last, ok := t.ongoing.Max()
		ongoing = ok && last.due > m.at
	})
	return ongoing
}

// drop deletes the calls of a namespace.
func (c *calls) drop(namespace string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tables.Delete(namespace)
}

// starting is a call of StartCall. Its texts must not be parts of a request: it can outlast the call.
type starting struct {
	namespace string
	call      store.NewCall
	calls     *calls

	// Guarded by the lock of calls.
	canceled bool // the caller is gone
	step     store.CallStep
	err      error // why it did not begin
}

func (a *starting) do(t *transaction) {
	a.calls.step(a.namespace, true, func(calls *callTable, m clockReading) {
		if !a.canceled {
			a.step, a.err = calls.start(a.call, m, func() error { return t.ensure(a.namespace) })
		}
	})
}

// cancel undoes what do did, or will do.
func (a *starting) cancel() {
	a.calls.with(a.namespace, true, func(t *callTable, _ clockReading) {
		a.canceled = true
		if r := t.records[a.call.ID]; r != nil && a.step.Outcome == lastseen.Stepped && r.Version == 1 {
			t.remove(r)
		}
	})
}

// StartCall implements [store.Store].
func (s *Store) StartCall(ctx context.Context, namespace string, c store.NewCall) (store.CallStep, error) {
	c.ID, c.From, c.To = strings.Clone(c.ID), strings.Clone(c.From), strings.Clone(c.To)
	c.FromDevice, c.App = strings.Clone(c.FromDevice), strings.Clone(c.App)
	c.Key, c.Digest = strings.Clone(c.Key), strings.Clone(c.Digest)
	a := &starting{namespace: strings.Clone(namespace), call: c, calls: &s.calls}
	if err := s.journal.Do(ctx, Write{op: a}); err != nil {
		a.cancel()
		return store.CallStep{}, err
	}
	return a.step, a.err
}

// StepCall implements [store.Store].
func (s *Store) StepCall(ctx context.Context, namespace string, a store.CallAct) (step store.CallStep, err error) {
	failed := store.ErrCallNotFound
	err = s.changeCalls(ctx, namespace, func(t *callTable, m clockReading) { step, failed = t.step(a, m) })
	return step, cmp.Or(err, failed)
}

// KeepCallsAlive implements [store.Store].
func (s *Store) KeepCallsAlive(ctx context.Context, ns string, of []store.KeepAlive) (kept store.KeptAlive, err error) {
	kept.Calls = make([]store.AliveCall, len(of))
	err = s.changeCalls(ctx, ns, func(t *callTable, m clockReading) { t.keepAllAlive(of, m, &kept) })
	return kept, err
}

// ReadCalls implements [store.Store].
func (s *Store) ReadCalls(ctx context.Context, namespace string, ids, users []string) ([]lastseen.Call, error) {
	calls := make([]lastseen.Call, len(ids)+len(users))
	err := s.read(ctx, func(*index) {
		s.calls.with(namespace, false, func(t *callTable, m clockReading) {
			for i, id := range ids {
				if r := t.records[id]; r != nil {
					calls[i] = r.view(m)
				}
			}
			for i, user := range users {
				if r := t.currentOf(user, m); r != nil {
					calls[len(ids)+i] = r.view(m)
				}
			}
		})
	})
	return calls, err
}

// ExpireCalls implements [store.Store].
func (s *Store) ExpireCalls(ctx context.Context, namespace string) (expired store.ExpiredCalls, err error) {
	expired.Next = store.MaxCallGap / 2
	err = s.changeCalls(ctx, namespace, func(t *callTable, m clockReading) { expired = t.expireAll(m) })
	return expired, err
}

// CallNamespaces implements [store.Store].
func (s *Store) CallNamespaces(ctx context.Context, after string, limit int) (names []string, err error) {
	err = s.read(ctx, func(*index) {
		s.calls.mu.Lock()
		defer s.calls.mu.Unlock()
		s.calls.tables.Ascend(after, func(name string, _ *callTable) bool {
			if name != after {
				names = append(names, name)
			}
			return len(names) < limit
		})
	})
	return names, err
}

// changeCalls runs a step on the calls of a namespace, and records in the details of its parties who is in a call, both
// at once for those who read. It changes the memory alone.
func (s *Store) changeCalls(ctx context.Context, namespace string, step func(*callTable, clockReading)) error {
	return s.change(ctx, func(*index) error {
		s.calls.step(namespace, false, func(t *callTable, m clockReading) {
			step(t, m)
			s.setInCalls(namespace, t.changed, t.inCallUntil)
			t.changed = nil
		})
		return nil
	})
}

// setInCalls records until when users are in a call; 0 for not. It also deletes some of what has ended, and is in the
// feed. Nothing is recorded in a namespace that does not exist. The caller holds the lock.
func (s *Store) setInCalls(name string, users []string, until func(user string) lastseen.Instant) {
	n, ok := s.tables.index.namespaces.Get(name)
	if !ok || len(users) == 0 {
		return
	}
	t := &transaction{index: &s.tables.index}
	for _, user := range users { // in this order in the feed, too
		t.publish(n, user, func() { n.users.setInCall(user, until(user)) })
	}
	if p := n.users.availability; p != nil {
		for _, end := range firstUntil(p.callEnds, t.purgeable(name, s.tables.readClock()), maxPurge) {
			t.publish(n, end.user, func() { n.users.setInCall(end.user, 0) })
		}
	}
}

// keepAlive notes that a party of an active call was active. Servers send four keepalives in the timeout. It moves
// until when the parties are shown to be in the call if less than half of that is left, or if the store's clock was set
// back.
func (t *callTable) keepAlive(r *callRecord, p lastseen.CallParty, m clockReading) {
	if p == lastseen.Caller {
		r.active[0] = m.at
	} else {
		r.active[1] = m.at
	}
	if due := min(r.active[0], r.active[1]) + r.timeout; due > r.due {
		t.setDue(r, due, m)
	}
	r.Expires = r.expires(m)
	moved, left := r.Expires.Sub(r.shownUntil), r.shownUntil.Sub(m.wall)
	if moved > 0 && left < r.timeout/2 || moved <= -r.timeout/4 {
		t.show(r)
	}
}

// show has the parties of an active call shown to be in it until it expires.
func (t *callTable) show(r *callRecord) {
	r.shownUntil = r.Expires
	t.note(r)
}

// note notes that who is in a call has changed, or until when, where calls are shown.
func (t *callTable) note(r *callRecord) {
	if r.shown {
		t.changed = append(t.changed, r.From, r.To)
	}
}

// inCallUntil returns until when a user is shown to be in a call; 0 for not.
func (t *callTable) inCallUntil(user string) lastseen.Instant {
	if r := t.current[user]; r != nil && r.State == lastseen.Active && r.shown {
		return r.shownUntil
	}
	return 0
}

// setInCall stores until when a user is in a call, also for a user without a state.
func (u *users) setInCall(user string, until lastseen.Instant) {
	if !u.describes(until != 0) || u.availability.inCallOf(user) == until {
		return
	}
	u.availability.setInCall(user, until)
	d := u.detailsOf(user)
	d.InCallUntil = until
	u.describe(user, d)
}

// inCallOf returns until when a user is in a call; 0 for not.
func (p *availabilityTable) inCallOf(user string) lastseen.Instant {
	if p == nil {
		return 0
	}
	return p.inCalls[user]
}

func (p *availabilityTable) setInCall(user string, until lastseen.Instant) {
	if old, ok := p.inCalls[user]; ok {
		delete(p.inCalls, user)
		p.callEnds.Delete(userTime{old, user})
	}
	if until != 0 {
		user = strings.Clone(user)
		p.inCalls[user] = until
		p.callEnds.Set(userTime{until, user})
	}
}
