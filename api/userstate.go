package api

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store/calls"
)

const (
	// maxKnownCalls is the number of calls that are remembered of a user: the one that goes on, and some that are over.
	maxKnownCalls = 4
	// lateCall is how long after the end of its time a call is read again that goes on as far as clients know. The
	// server that ends calls has then sent a signal, unless that was lost.
	lateCall = time.Second
	// minSelfEnd is the least time until what has an end is read again, if it has not ended by the store's clock yet.
	minSelfEnd = 10 * time.Millisecond
	// maxSelfEnd is the most: the store's clock can be set meanwhile.
	maxSelfEnd = time.Hour
)

// userStates has what users connected to this server are sent about themselves: their availability and their calls.
// There is one state for all connections of a user. It is read from the store when a connection opens, again when a
// signal says that it has changed, when it ends, and when signals may have been lost: see refreshQueue. A signal about
// a known call changes it without a read.
//
// Connections and requests that wait have a mailbox each. They are woken when there is something new, and then take the
// newest state: what a slow client has not got yet is replaced, so a mailbox needs no queue.
type userStates struct {
	shared *Shared
	after  func(time.Duration, func()) *time.Timer // time.AfterFunc; tests have others

	mu    sync.Mutex
	users map[lastseen.UserKey]*userState
	now   clockReading // the newest
	refreshQueue
}

// clockReading is a reading of the store's clock.
type clockReading struct {
	time lastseen.Instant
	at   time.Time
}

func newUserStates(shared *Shared) *userStates {
	return &userStates{
		shared: shared, after: time.AfterFunc, users: map[lastseen.UserKey]*userState{},
		refreshQueue: refreshQueue{spread: map[lastseen.UserKey]struct{}{}},
	}
}

// userState is the state of a user who has a mailbox. The mutex of userStates guards it.
//
// What happens has numbers in order. A read that began after something became known replaces it. If another read ended
// meanwhile, it is not clear which of the two is newer: see read.
type userState struct {
	key       lastseen.UserKey
	mailboxes []*mailbox
	last      uint64 // number
	read      uint64 // when the last read ended

	availability lastseen.Said
	changed      uint64 // when clients had to be sent it last
	calls        []knownCall
	ends, late   *time.Timer // reads the availability again when it ends, and the call that goes on

	job *refreshJob // nil if there is nothing to read
}

// knownCall is a call that clients of the user know.
type knownCall struct {
	lastseen.Call
	since   uint64 // when it became known as it is
	changed uint64 // when clients had to be sent it last
}

// mailbox is the place of one connection or request.
type mailbox struct {
	states *userStates
	state  *userState
	wake   func() // called with the mutex of states held
	polls  bool   // only woken by signals about calls: the request reads for itself
	seen   uint64 // changes up to this one were taken
}

// open returns a mailbox. The caller closes it.
func (s *userStates) open(key lastseen.UserKey, polls bool, wake func()) *mailbox {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.users[key]
	if st == nil {
		st = &userState{key: key}
		s.users[key] = st
	}
	m := &mailbox{states: s, state: st, wake: wake, polls: polls}
	st.mailboxes = append(st.mailboxes, m)
	return m
}

// close ends the mailbox. It does nothing for nil.
func (m *mailbox) close() {
	if m == nil {
		return
	}
	m.states.mu.Lock()
	defer m.states.mu.Unlock()
	st := m.state
	st.mailboxes = slices.DeleteFunc(st.mailboxes, func(other *mailbox) bool { return other == m })
	if len(st.mailboxes) == 0 {
		stop(st.ends)
		stop(st.late)
		delete(m.states.users, st.key)
	}
}

func stop(t *time.Timer) {
	if t != nil {
		t.Stop()
	}
}

// take returns what has changed since it was called last: the availability, nil if it has not, and calls.
func (m *mailbox) take() (availability *lastseen.Said, changed []lastseen.Call) {
	m.states.mu.Lock()
	defer m.states.mu.Unlock()
	st := m.state
	if st.changed > m.seen {
		availability = new(st.availability)
	}
	calls := slices.DeleteFunc(slices.Clone(st.calls), func(c knownCall) bool { return c.changed <= m.seen })
	slices.SortFunc(calls, func(a, b knownCall) int { return cmp.Compare(a.changed, b.changed) })
	for _, c := range calls {
		changed = append(changed, c.Call)
	}
	m.seen = st.last
	return availability, changed
}

// begin reads the state for a connection that opens. Take returns what changes after that.
func (m *mailbox) begin(ctx context.Context) (availability lastseen.Said, ongoing []lastseen.Call, err error) {
	if err := m.states.read(ctx, m.state, reason{availability: true, calls: true}); err != nil {
		return availability, nil, err
	}
	m.states.mu.Lock()
	defer m.states.mu.Unlock()
	if c := m.state.goingOn(); c != nil {
		ongoing = []lastseen.Call{c.Call}
	}
	m.seen = m.state.last
	return m.state.availability, ongoing, nil
}

// next returns the number of something that happens.
func (st *userState) next() uint64 {
	st.last++
	return st.last
}

// change returns the number of a change, and wakes the connections.
func (st *userState) change() uint64 {
	for _, m := range st.mailboxes {
		if !m.polls {
			m.wake()
		}
	}
	return st.next()
}

// isShown reports whether the user has a connection.
func (st *userState) isShown() bool {
	return slices.ContainsFunc(st.mailboxes, func(m *mailbox) bool { return !m.polls })
}

// wakePolls wakes the requests that wait for a call.
func (st *userState) wakePolls() {
	for _, m := range st.mailboxes {
		if m.polls {
			m.wake()
		}
	}
}

// setAvailability notes what a read returned. Renewed says that the user has set it since, perhaps to the same: clients
// are sent it in any case, since they may know something else, from the response to a request of theirs that was done
// before another device's request. The caller holds the mutex.
func (s *userStates) setAvailability(st *userState, a lastseen.Said, renewed bool) {
	if renewed || a != st.availability {
		st.availability, st.changed = a, st.change()
	}
	stop(st.ends)
	if a.Until != 0 && len(st.mailboxes) > 0 {
		left := max(s.until(a.Until), minSelfEnd)
		st.ends = s.after(left, func() { s.refresh(st.key, reason{availability: true}) })
	}
}

// until returns the time until an instant by the store's clock, within what timers wait for.
func (s *userStates) until(t lastseen.Instant) time.Duration {
	left := time.Duration(min(t-s.now.time, lastseen.Instant(maxSelfEnd.Milliseconds()))) * time.Millisecond
	return max(0, left-time.Since(s.now.at))
}

// set notes a call as a read has it that began then, or a signal. The caller holds the mutex of the states.
func (st *userState) set(c lastseen.Call, began uint64) {
	known := st.call(c.ID)
	switch {
	case known == nil:
		st.makeRoom()
		changed := st.change()
		st.calls = append(st.calls, knownCall{c, changed, changed})
	case known.State.Over(), began < known.since && !c.Replaces(known.Call):
	default:
		if !sameCall(c, known.Call) {
			known.changed = st.change()
		}
		known.Call, known.since = c, st.next()
	}
}

// sameCall reports whether clients see no difference.
func sameCall(a, b lastseen.Call) bool {
	a.Version, a.Expires = b.Version, b.Expires // which moves while the parties are heard
	return a == b
}

// setCalls notes what a read returned: those that are over before the one that goes on. A call that was deleted has
// ended, if it goes on as far as clients know; this happens if a party is deleted. The caller holds the mutex.
func (s *userStates) setCalls(st *userState, found []lastseen.Call, deleted []string, began uint64) {
	for _, id := range deleted {
		if known := st.call(id); known != nil && !known.State.Over() {
			c := known.Call
			c.State, c.By, c.ByDevice, c.App = lastseen.Ended, "", "", ""
			c.Over, c.Expires, c.Version = s.now.time, 0, c.Version+1
			st.set(c, began)
		}
	}
	for _, over := range []bool{true, false} {
		for _, c := range found {
			if c.State.Over() == over {
				st.set(c, began)
			}
		}
	}
	s.planLate(st)
}

// makeRoom forgets the oldest call that is over if there are too many.
func (st *userState) makeRoom() {
	if len(st.calls) == maxKnownCalls {
		oldest := max(0, slices.IndexFunc(st.calls, func(c knownCall) bool { return c.State.Over() }))
		st.calls = slices.Delete(st.calls, oldest, oldest+1)
	}
}

// call returns a call that is known; nil if it is not.
func (st *userState) call(id string) *knownCall {
	for i := range st.calls {
		if st.calls[i].ID == id {
			return &st.calls[i]
		}
	}
	return nil
}

// goingOn returns the newest call that goes on; nil if none does.
func (st *userState) goingOn() *knownCall {
	for i := range slices.Backward(st.calls) {
		if !st.calls[i].State.Over() {
			return &st.calls[i]
		}
	}
	return nil
}

// planLate has the call that goes on read again when its time has passed. The caller holds the mutex.
func (s *userStates) planLate(st *userState) {
	stop(st.late)
	if c := st.goingOn(); c != nil && len(st.mailboxes) > 0 {
		st.late = s.after(s.until(c.Expires)+lateCall, func() { s.checkLate(st.key, c.ID) })
	}
}

// checkLate reads a call again whose time has passed as far as clients know, unless the keeper has heard both parties
// since: reading each call a minute would cost more than hearing its parties.
func (s *userStates) checkLate(key lastseen.UserKey, id string) {
	left := s.shared.newest.Load().Keeper.Rest(key.Namespace, key.User, id)
	if left == 0 {
		s.refresh(key, reason{calls: true})
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if st := s.users[key]; st != nil && st.goingOn() != nil && st.goingOn().ID == id {
		st.late = s.after(min(left, maxSelfEnd)+lateCall, func() { s.checkLate(key, id) })
	}
}

// receiveCall has the parties of a call learn of a change, in the order of the signal. Work for the callee begins once
// the caller's connections are woken, so that these do not take longer if an invisible callee is connected.
func (s *userStates) receiveCall(namespace string, change calls.Change) {
	if len(change.Users) == 0 {
		return
	}
	key := lastseen.UserKey{Namespace: namespace, User: change.Users[0]}
	change.Users = change.Users[1:]
	next := func() { s.receiveCall(namespace, change) }
	if s.setSignalled(key, change.Call) {
		next()
		return
	}
	s.refresh(key, reason{ids: []string{change.ID}, then: []func(){next}})
}

// setSignalled notes a call as a signal has it, and reports whether it need not be read: not if it is not known, since
// who can publish must not make anybody's phone ring, nor if it is not newer and differs, as after a failover.
func (s *userStates) setSignalled(key lastseen.UserKey, c *lastseen.Call) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.users[key]
	if st == nil {
		return true
	}
	st.wakePolls()
	if c == nil {
		return false
	}
	known := st.call(c.ID)
	switch {
	case known == nil || known.From != c.From || known.To != c.To:
		return false
	case known.State.Over():
		return true
	case c.State.Over(), c.Version > known.Version:
		st.set(*c, st.last)
		s.planLate(st)
		s.shared.newest.Load().Keeper.Follow(key.Namespace, key.User, *c)
		return true
	default:
		return c.Version == known.Version && sameCall(*c, known.Call)
	}
}
