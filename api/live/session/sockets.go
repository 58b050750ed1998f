package session

import (
	"context"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"

	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/api/guard"
	"github.com/lastseen/lastseen/api/limit"
	"github.com/lastseen/lastseen/api/live/subscription"
	"github.com/lastseen/lastseen/api/problem"
)

// sockets are the WebSockets that are open. The zero value is ready to use, and its methods may be called concurrently.
type sockets struct {
	mu       sync.Mutex
	open     int // admitted ones included
	sessions map[*session]struct{}
	waiting  limit.Tally   // that have not said hello, by address
	callers  limit.Tally   // by API key and by user with a token
	none     chan struct{} // closed when open is 0, if somebody waits for that
}

// ticket is the place of one WebSocket among the limits. One goroutine uses it at a time. It is small: there is one for
// each connection.
type ticket struct {
	sockets *sockets
	address netip.Addr
	limited bool // whether the address is counted
	waiting bool
	caller  *limit.Key // nil if it is not counted
}

// admit returns a place for another WebSocket, or an error if the server or the address has as many as allowed.
func (s *sockets) admit(limits Limits, address netip.Addr, limited bool) (*ticket, error) {
	key := limit.ByAddress(address)
	s.mu.Lock()
	defer s.mu.Unlock()
	if limits.Max > 0 && s.open >= limits.Max {
		return nil, problem.New(problem.Overloaded, "The server has as many WebSockets as it can. Try another server.")
	}
	if limited && !s.waiting.Add(key, 1, limits.PerAddress) {
		return nil, tooManySockets("address", limits.PerAddress, "before the frame hello")
	}
	s.open++
	return &ticket{sockets: s, address: address, limited: limited, waiting: limited}, nil
}

// greet counts the WebSocket to its caller, and no longer to those that have not said hello.
func (t *ticket) greet(limits Limits, caller *auth.Caller) error {
	t.endWaiting()
	if caller == nil || caller.IsAnonymous() {
		return nil
	}
	most, what := limits.PerCaller, "API key"
	if caller.Kind == auth.ByToken {
		most, what = limits.PerUser, "user"
	}
	key := guard.CallerKey(caller)
	if !t.sockets.callers.Add(key, 1, most) {
		return tooManySockets(what, most, "at the same time")
	}
	t.caller = &key
	return nil
}

func tooManySockets(of string, most int, when string) error {
	return problem.Errorf(problem.RateLimited,
		"Limit for one %s: %d WebSockets %s. Close others first.", of, most, when).
		RetryAfter(subscription.RetryWait)
}

// close gives the place back.
func (t *ticket) close() {
	s := t.sockets
	t.endWaiting()
	if t.caller != nil {
		s.callers.Add(*t.caller, -1, 0)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open--; s.open == 0 && s.none != nil {
		close(s.none)
		s.none = nil
	}
}

// endWaiting ends the time before hello.
func (t *ticket) endWaiting() {
	if t.waiting {
		t.sockets.waiting.Add(limit.ByAddress(t.address), -1, 0)
		t.waiting = false
	}
}

func (s *sockets) add(n *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sessions == nil {
		s.sessions = map[*session]struct{}{}
	}
	s.sessions[n] = struct{}{}
}

func (s *sockets) remove(n *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sessions, n)
}

// all returns the sessions in random order.
func (s *sockets) all() []*session {
	s.mu.Lock()
	all := make([]*session, 0, len(s.sessions))
	for n := range s.sessions {
		all = append(all, n)
	}
	s.mu.Unlock()
	rand.Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
	return all
}

// EndWebSockets returns when no WebSocket is open any longer. When the context ends, it closes the rest. It is for the
// time after [Hub.Drain].
func (h *Hub) EndWebSockets(ctx context.Context) {
	select {
	case <-h.sockets.empty():
		return
	case <-ctx.Done():
	}
	var closing sync.WaitGroup
	for _, n := range h.sockets.all() {
		closing.Go(func() { n.close(errShuttingDown()) })
	}
	closing.Wait()
}

func errShuttingDown() error {
	return problem.New(problem.ShuttingDown, "The server is shutting down. Connect to another server.")
}

// empty returns a channel that is closed when no WebSocket is open.
func (s *sockets) empty() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == 0 {
		none := make(chan struct{})
		close(none)
		return none
	}
	if s.none == nil {
		s.none = make(chan struct{})
	}
	return s.none
}

// drainSockets asks all clients to connect to another server, spread over the time to drain.
func (h *Hub) drainSockets() {
	newest := h.newest.Load()
	if newest == nil {
		return
	}
	all, drain := h.sockets.all(), newest.Limits.Drain
	spread := max(drain/2, drain/10*9-maxByePause) // the last ones need a moment, too
	for i, n := range all {
		time.AfterFunc(spread*time.Duration(i)/time.Duration(len(all)), n.bye)
	}
}
