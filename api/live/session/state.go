package session

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/lastseen/lastseen"
)

const (
	// maxKnownCalls is the number of calls that are remembered of a user: the ongoing one, and some that have ended.
	maxKnownCalls = 4
	// maxUnsentCalls is the number while connections have not taken them.
	maxUnsentCalls = 32
	// lateCall is how long after the end of its time a call is read again that goes on as far as clients know. The
	// server that ends calls has then sent a signal, unless that was lost.
	lateCall = time.Second
	// minSelfEnd is the least time until what has an end is read again, if it has not ended by the store's clock yet.
	minSelfEnd = 10 * time.Millisecond
	// maxSending is for how long a slow caller can delay what the callee is sent.
	maxSending = 100 * time.Millisecond
	// maxSelfEnd is the most: the store's clock can be set meanwhile.
	maxSelfEnd = time.Hour
)

// userStates has what users connected to this server are sent about themselves: their availability and their calls.
// There is one state for all connections of a user. It is read from the store when a connection opens, again when a
// signal says that it has changed, when it ends, and when signals may have been lost: see refreshQueue. Only what the
// app says in a known call is taken from a signal.
//
// Connections and requests that wait have a mailbox each. They are woken when there is something new, and then take the
// newest state: what a slow client has not got yet is replaced, so a mailbox needs no queue.
type userStates struct {
	hub   *Hub
	after func(time.Duration, func()) *time.Timer // time.AfterFunc; tests have others

	mu    sync.Mutex
	users map[lastseen.UserKey]*userState
	now   clockReading // of the read that ended last
	refreshQueue
}

// clockReading is a reading of the store's clock.
type clockReading struct {
	time lastseen.Instant
	at   time.Time
}

func newUserStates(hub *Hub) *userStates {
	return &userStates{
		hub: hub, after: time.AfterFunc, users: map[lastseen.UserKey]*userState{},
		refreshQueue: refreshQueue{spread: map[lastseen.UserKey]struct{}{}},
	}
}

// userState is the state of a user who has a mailbox. The mutex of userStates guards it.
//
// What happens has numbers in order. A read that began after something became known replaces it. If the availability
// became known while another read of it was in progress, it is not clear which of the two is newer: see setRead.
type userState struct {
	key       lastseen.UserKey
	mailboxes []*mailbox
	last      uint64   // number
	changed   uint64   // of the last change
	sending   int      // mailboxes with sending set
	afterSent []func() // see whenSent

	availability      lastseen.AvailabilityState
	availabilitySince uint64 // when it became known
	availabilityNews  uint64 // when clients had to be sent it last
	renewed           uint64 // when it was known last that the user has set it
	calls             []knownCall
	ends, late        *time.Timer // reads the availability again when it ends, and the ongoing call

	job *reason // to read it, or parts; nil if nothing is to be read
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
	// sending says that the connection was woken, and was not sent everything yet.
	sending bool
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
	m := &mailbox{states: s, state: st, wake: wake, polls: polls, seen: st.last}
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
	defer st.setSent(m)
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
func (m *mailbox) take() (availability *lastseen.AvailabilityState, changed []lastseen.Call) {
	m.states.mu.Lock()
	defer m.states.mu.Unlock()
	st := m.state
	if st.availabilityNews > m.seen {
		availability = new(st.availability)
	}
	for _, c := range slices.SortedFunc(slices.Values(st.calls), knownCall.compare) {
		if c.changed > m.seen {
			changed = append(changed, c.Call)
		}
	}
	m.seen = st.last
	return availability, changed
}

// sent notes that the connection was sent what take returned.
func (m *mailbox) sent() {
	m.states.mu.Lock()
	defer m.states.mu.Unlock()
	if m.seen >= m.state.changed {
		m.state.setSent(m)
	}
}

// compare sorts calls by when clients had to be sent them.
func (k knownCall) compare(other knownCall) int { return cmp.Compare(k.changed, other.changed) }

// beginning is the state of a user when a connection opens.
type beginning struct {
	now          lastseen.Instant
	availability lastseen.AvailabilityState
	ongoing      []lastseen.Call // one at most
	renewed      bool            // the user has set the availability since the mailbox was opened
}

// begin reads the state for a connection that opens. Take returns what changes after that.
func (m *mailbox) begin(ctx context.Context) (b beginning, err error) {
	st := m.state
	r, err := m.states.read(ctx, st, &reason{availability: true, calls: true})
	if err != nil {
		return b, err
	}
	if len(r.lost) > 0 {
		m.states.refresh(st.key, reason{calls: true})
	}
	m.states.mu.Lock()
	defer m.states.mu.Unlock()
	b = beginning{now: r.now.time, availability: st.availability, renewed: st.renewed > m.seen}
	if c := st.ongoing(); c != nil {
		b.ongoing = []lastseen.Call{c.Call}
	}
	m.seen = st.last
	return b, nil
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
			if !m.sending {
				m.sending = true
				st.sending++
			}
			m.wake()
		}
	}
	st.changed = st.next()
	return st.changed
}

// setSent notes that a connection has nothing to send. The caller holds the mutex.
func (st *userState) setSent(m *mailbox) {
	if !m.sending {
		return
	}
	m.sending = false
	if st.sending--; st.sending == 0 {
		for _, do := range st.afterSent {
			go do()
		}
		st.afterSent = nil
	}
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
func (s *userStates) setAvailability(st *userState, a lastseen.AvailabilityState, renewed bool) {
	if renewed || a != st.availability {
		st.availability, st.availabilityNews = a, st.change()
	}
	if renewed {
		st.renewed = st.availabilityNews
	}
	st.availabilitySince = st.next()
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

// setCall notes a call as a read has it that began then. The caller holds the mutex of the states.
func (st *userState) setCall(c lastseen.Call, began uint64) {
	known := st.call(c.ID)
	switch {
	case known == nil:
		st.makeRoom()
		changed := st.change()
		st.calls = append(st.calls, knownCall{c, changed, changed})
	case known.State.Over(), began < known.since && !c.Replaces(known.Call):
	default:
		known.replace(st, c)
	}
}

// replace notes a newer version of a call.
func (k *knownCall) replace(st *userState, c lastseen.Call) {
	if !sameCall(c, k.Call) {
		k.changed = st.change()
	}
	k.Call, k.since = c, st.next()
}

// sameCall reports whether clients see no difference.
func sameCall(a, b lastseen.Call) bool {
	a.Version, a.Expires = b.Version, b.Expires // which moves while the parties are active
	return a == b
}

// setCalls notes what a read returned: first those that have ended, then the ongoing one. A call that was deleted has
// ended, if it goes on as far as clients know; this happens if a party is deleted. The caller holds the mutex.
func (s *userStates) setCalls(st *userState, r *stateRead) {
	for _, id := range r.deleted {
		if known := st.call(id); known != nil && !known.State.Over() {
			c := known.Call
			c.State, c.By, c.ByDevice, c.App = lastseen.Ended, "", "", ""
			c.Over, c.Expires, c.Version = s.now.time, 0, c.Version+1
			st.setCall(c, r.began)
		}
	}
	for _, over := range []bool{true, false} {
		for _, c := range r.found {
			if c.State.Over() != over {
				continue
			}
			if known := st.call(c.ID); known != nil && !over && known.State.Over() && known.since < r.began {
				r.lost = append(r.lost, c)
			}
			st.setCall(c, r.began)
		}
	}
	s.planLate(st)
}

// makeRoom forgets the oldest call that has ended and that all connections have taken; if there are too many, any.
func (st *userState) makeRoom() {
	if len(st.calls) < maxKnownCalls {
		return
	}
	seen := st.last
	for _, m := range st.mailboxes {
		if !m.polls {
			seen = min(seen, m.seen)
		}
	}
	forgotten := func(c knownCall) bool { return c.State.Over() && c.changed <= seen }
	oldest := slices.IndexFunc(st.calls, forgotten)
	if oldest < 0 && len(st.calls) >= maxUnsentCalls {
		oldest = max(0, slices.IndexFunc(st.calls, func(c knownCall) bool { return c.State.Over() }))
	}
	if oldest >= 0 {
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

// ongoing returns the newest ongoing call; nil if none does.
func (st *userState) ongoing() *knownCall {
	for i := range slices.Backward(st.calls) {
		if !st.calls[i].State.Over() {
			return &st.calls[i]
		}
	}
	return nil
}

// planLate has the ongoing call read again when its time has passed. The caller holds the mutex.
func (s *userStates) planLate(st *userState) {
	stop(st.late)
	if c := st.ongoing(); c != nil && len(st.mailboxes) > 0 {
		id := c.ID
		st.late = s.after(s.until(c.Expires)+lateCall, func() { s.checkLate(st.key, id) })
	}
}

// checkLate reads a call again whose time has passed as far as clients know, unless the manager knows that both parties
// were active since: reading each call a minute would cost more than to note that its parties are.
func (s *userStates) checkLate(key lastseen.UserKey, id string) {
	left := s.hub.newest.Load().Calls.Rest(key.Namespace, key.User, id)
	if left == 0 {
		s.refresh(key, reason{calls: true})
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if st := s.users[key]; st != nil && st.ongoing() != nil && st.ongoing().ID == id {
		stop(st.late)
		st.late = s.after(min(left, maxSelfEnd)+lateCall, func() { s.checkLate(key, id) })
	}
}
