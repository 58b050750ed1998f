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

// timers is time.AfterFunc, or what replaces it.
type timers = func(time.Duration, func()) *time.Timer

func (h *Hub) Receive(signal store.Signal)     { h.receive(signal) }
func (h *Hub) Sessions() []*session            { return h.sockets.all() }
func (h *Hub) SetTimers(t timers)              { h.userStates.after = t }
func (h *Hub) UserStates() int                 { return lenOf(&h.userStates.mu, &h.userStates.users) }
func (h *Hub) SlotsTaken() int                 { return valueOf(&h.arrivals.mu, &h.arrivals.taken) }
func (h *Hub) WaitingForSlot() int             { return kit.Locked(&h.arrivals.mu, h.arrivals.queue.Len) }
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
func (h *Hub) KnowsCall(of lastseen.UserKey, id string) bool {
	return kit.Locked(&h.userStates.mu, func() bool {
		st := h.userStates.users[of]
		return st != nil && st.call(id) != nil
	})
}

// Refreshing returns how many states of users are to be read again.
func (h *Hub) Refreshing() (n int) {
	h.userStates.mu.Lock()
	defer h.userStates.mu.Unlock()
	for _, st := range h.userStates.users {
		if st.job != nil {
			n++
		}
	}
	return n + len(h.userStates.spread)
}

// Watch has a caller follow n more users.
func (h *Hub) Watch(caller *auth.Caller, n int) (end func(), err error) {
	l := subscription.Ledger{Shared: h.Subscriptions}
	return l.Clear, l.Set(n, caller)
}

func (h *Hub) WatchesOf(caller limit.Key) int { return tallied(&h.Subscriptions.Users, caller) }

func (h *Hub) CountFollowers(namespace string) int {
	h.counting.mu.Lock()
	defer h.counting.mu.Unlock()
	if space := h.counting.spaces[namespace]; space != nil {
		return len(space.followers)
	}
	return 0
}

// OneArrival has one client at a time begin a session. A test can be that client.
func (h *Hub) OneArrival() (enter func(context.Context) error, leave func()) {
	h.arrivals.slots, h.arrivals.hellos = 1, make(chan struct{}, 1)
	return h.arrivals.enter, h.arrivals.leave
}

// Jam has no more clients begin, as if those before them did not end.
func (h *Hub) Jam() {
	a := h.arrivals
	a.mu.Lock()
	defer a.mu.Unlock()
	a.slots, a.taken, a.since = 1, 1, a.now().Add(-time.Hour)
	a.queue.PushBack(make(chan struct{}))
}

// KeysFirst returns sessions in the order in which they are checked.
func KeysFirst(sessions []*session) []*session { return keysFirst(sessions) }

// CheckSockets has all sessions checked, as after a reload.
func (h *Hub) CheckSockets() { h.checkSockets() }

// tallied returns how many a caller has.
func tallied(t *limit.Tally, k limit.Key) (n int) {
	for !t.Add(k, 1, n+1) {
		n++
	}
	t.Add(k, -1, 0)
	return n
}
