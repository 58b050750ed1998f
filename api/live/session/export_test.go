package session

import (
	"context"
	"sync"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/apitest/kit"
	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/api/limit"
	"github.com/lastseen/lastseen/api/live/subscription"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/connections"
)

// What package session_test reads of package session, and what it has happen that does not happen on demand.

var CheckSessions = checkSessions

// timers is time.AfterFunc, or what replaces it.
type timers = func(time.Duration, func()) *time.Timer

func (s *Hub) Receive(signal store.Signal)     { s.receive(signal) }
func (s *Hub) Sessions() []*session            { return s.sockets.all() }
func (s *Hub) SetTimers(t timers)              { s.userStates.after = t }
func (s *Hub) UserStates() int                 { return lenOf(&s.userStates.mu, &s.userStates.users) }
func (s *Hub) SlotsTaken() int                 { return valueOf(&s.arrivals.mu, &s.arrivals.taken) }
func (s *Hub) WaitingForSlot() int             { return kit.Locked(&s.arrivals.mu, s.arrivals.queue.Len) }
func (n *session) Arriving() bool              { return valueOf(&n.mu, &n.arriving) }
func (n *session) Caller() *auth.Caller        { return n.currentCaller() }
func (n *session) End(why connections.Reason)  { n.ended(why) }
func (n *session) Send(frame []byte)           { n.send(frame) }
func (n *session) AllSent() bool               { return valueOf(&n.mu, &n.sends) == nil }
func (n *session) Wake()                       { n.wake() }
func (n *session) Welcomed() bool              { return valueOf(&n.mu, &n.welcomed) }
func valueOf[T any](mu sync.Locker, from *T) T { return kit.Locked(mu, func() T { return *from }) }
func lenOf[K comparable, V any](mu sync.Locker, m *map[K]V) int {
	return kit.Locked(mu, func() int { return len(*m) })
}

// KnowsCall reports whether the state of a user has a call.
func (s *Hub) KnowsCall(of lastseen.UserKey, id string) bool {
	return kit.Locked(&s.userStates.mu, func() bool {
		st := s.userStates.users[of]
		return st != nil && st.call(id) != nil
	})
}

// Refreshing returns how many states of users are to be read again.
func (s *Hub) Refreshing() (n int) {
	s.userStates.mu.Lock()
	defer s.userStates.mu.Unlock()
	for _, st := range s.userStates.users {
		if st.job != nil {
			n++
		}
	}
	return n + len(s.userStates.spread)
}

// Watch has a caller follow n more users.
func (s *Hub) Watch(caller *auth.Caller, n int) (end func(), err error) {
	l := subscription.Ledger{Shared: s.Subscriptions}
	return l.Clear, l.Set(n, caller)
}

func (s *Hub) WatchesOf(caller limit.Key) int { return s.Subscriptions.Users.Of(caller) }

func (s *Hub) CountFollowers(namespace string) int {
	s.counting.mu.Lock()
	defer s.counting.mu.Unlock()
	if space := s.counting.spaces[namespace]; space != nil {
		return len(space.followers)
	}
	return 0
}

// OneArrival has one client at a time begin a session. A test can be that client.
func (s *Hub) OneArrival() (enter func(context.Context) error, leave func()) {
	s.arrivals.slots, s.arrivals.hellos = 1, make(chan struct{}, 1)
	return s.arrivals.enter, s.arrivals.leave
}

// Jam has no more clients begin, as if those before them did not end.
func (s *Hub) Jam() {
	a := s.arrivals
	a.mu.Lock()
	defer a.mu.Unlock()
	a.slots, a.taken, a.since = 1, 1, a.now().Add(-time.Hour)
	a.queue.PushBack(make(chan struct{}))
}

// CredentialsOf returns the credentials that are checked, in their order.
func CredentialsOf(sessions []*session) (credentials [][]string) {
	for _, group := range groupByCredentials(sessions) {
		credentials = append(credentials, group.credentials)
	}
	return credentials
}
