package api

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/apitest/kit"
	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/api/limit"
	"github.com/lastseen/lastseen/api/live/subscription"
	"github.com/lastseen/lastseen/api/telemetry"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/connections"
)

// What package api_test reads of package api, and what it has happen that does not happen on demand.

var CheckSessions = checkSessions

// timers is time.AfterFunc, or what replaces it.
type timers = func(time.Duration, func()) *time.Timer

func Routes() []telemetry.Route                { return measured((&server{}).routes()) }
func (s *Shared) CallsInProgress() int64       { return s.load.Calls() }
func (s *Shared) ClearRedials()                { s.redials.last.Purge() }
func (s *Shared) Receive(signal store.Signal)  { s.receive(signal) }
func (s *Shared) Sessions() []*session         { return s.sockets.all() }
func (s *Shared) BodyMemoryUsed() int64        { return s.bodies.Used() }
func (s *Shared) SetTimers(t timers)           { s.userStates.after = t }
func (s *Shared) UserStates() int              { return lenOf(&s.userStates.mu, &s.userStates.users) }
func (s *Shared) SlotsTaken() int              { return valueOf(&s.arrivals.mu, &s.arrivals.taken) }
func (s *Shared) WaitingForSlot() int          { return kit.Locked(&s.arrivals.mu, s.arrivals.queue.Len) }
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
func (s *Shared) KnowsCall(of lastseen.UserKey, id string) bool {
	return kit.Locked(&s.userStates.mu, func() bool {
		st := s.userStates.users[of]
		return st != nil && st.call(id) != nil
	})
}

// Refreshing returns how many states of users are to be read again.
func (s *Shared) Refreshing() (n int) {
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
func (s *Shared) Watch(caller *auth.Caller, n int) (end func(), err error) {
	l := subscription.Ledger{Shared: s.subscriptions}
	return l.Clear, l.Set(n, caller)
}

func (s *Shared) WatchesOf(caller limit.Key) int { return s.subscriptions.Users.Of(caller) }

func (s *Shared) CountFollowers(namespace string) int {
	s.counting.mu.Lock()
	defer s.counting.mu.Unlock()
	if space := s.counting.spaces[namespace]; space != nil {
		return len(space.followers)
	}
	return 0
}

// FillBodyMemory has a caller take what is left of the memory for bodies.
func (s *Shared) FillBodyMemory() (release func(), err error) {
	hold := s.bodies.Hold(limit.ByAPIKey("another"), false)
	return hold.Release, hold.Grow(MinBodyMemory - int(s.bodies.Used()))
}

// OneArrival has one client at a time begin a session. A test can be that client.
func (s *Shared) OneArrival() (enter func(context.Context) error, leave func()) {
	s.arrivals.slots, s.arrivals.hellos = 1, make(chan struct{}, 1)
	return s.arrivals.enter, s.arrivals.leave
}

// Jam has no more clients begin, as if those before them did not end.
func (s *Shared) Jam() {
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

// Connections returns how many connections of a listener wait to be served, are open, and are idle.
func Connections(listener net.Listener) (n struct{ Accepted, Open, Idle int }) {
	l := listener.(*limitedListener)
	l.mu.Lock()
	defer l.mu.Unlock()
	n.Accepted, n.Open, n.Idle = len(l.accepted), l.open, l.idle.Len()
	return n
}
