package session

import (
	"errors"
	"strconv"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/guard"
	"github.com/lastseen/lastseen/api/live/subscription"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/api/request"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/connections"
	"github.com/lastseen/lastseen/store/feed"
)

// connectRoute is the route of WebSockets in log lines.
const connectRoute = "/v1/namespaces/:namespace/connect"

// arrive handles the first frame. A client that sent it late waits for its turn again.
func (n *session) arrive(f clientFrame) error {
	if !n.receive() {
		if err := n.arrivals.enter(n.ctx); err != nil {
			return err
		}
		n.mu.Lock()
		n.arriving = true
		n.mu.Unlock()
	}
	defer n.leaveArrivals()
	select {
	case n.arrivals.hellos <- struct{}{}: // waiters are served in order
		n.mu.Lock()
		n.greeting = true
		n.mu.Unlock()
		return n.hello(f)
	case <-n.ctx.Done():
		return n.ctx.Err()
	}
}

// receive notes that the frame hello has come. Handling it can wait for the store, with many others after a restart:
// the client is not late then. It reports whether the client still has its slot.
func (n *session) receive() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.received = true
	n.timer.Reset(welcomeTimeout)
	return n.arriving
}

// yieldSlot gives the slot of a client that has not said hello yet to the next one, and reports whether it did.
func (n *session) yieldSlot() bool {
	n.mu.Lock()
	yields := n.arriving && !n.received
	if yields {
		n.arriving = false
		n.timer.Reset(helloTimeout - promptHello)
	}
	n.mu.Unlock()
	if yields {
		n.arrivals.leave()
	}
	return yields
}

// leaveArrivals lets the next clients begin. It can be called more than once.
func (n *session) leaveArrivals() {
	n.mu.Lock()
	arriving, greeting := n.arriving, n.greeting
	n.arriving, n.greeting = false, false
	n.mu.Unlock()
	if greeting {
		<-n.arrivals.hellos
	}
	if arriving {
		n.arrivals.leave()
	}
}

// hello handles the first frame. It checks the client, records the connection of its user and begins to follow
// changes, in this order: what fails costs as little as possible.
func (n *session) hello(f clientFrame) error {
	var body helloBody
	if err := f.decode(&body); err != nil {
		return err
	}
	server := n.newest.Load()
	opening, err := body.opening(server.Limits.Grace)
	if err != nil {
		return err
	}
	asked, err := body.asked(n.namespace)
	if err != nil {
		return err
	}
	if err := n.admit(server, body, opening, asked != nil); err != nil {
		return err
	}
	if asked != nil && asked.counts {
		if err := server.checkCounts(n.namespace, n.currentCaller()); err != nil {
			return err
		}
	}
	if opening != nil {
		if err := n.open(server, *opening); err != nil {
			return err
		}
	}
	var first feed.Batch
	if asked != nil {
		if first, err = n.follow(server, *asked); err != nil {
			return err
		}
	}
	if err := n.welcome(server, f.id, asked, first); err != nil {
		if asked != nil {
			n.following.end()
		}
		return err
	}
	n.checkReload(server)
	return nil
}

// asked returns what the client wants to watch; nil for nothing.
func (b helloBody) asked(namespace string) (*watchQuery, error) {
	if b.Watch == nil {
		if b.Cursor != nil {
			return nil, problem.New(problem.InvalidParameter, "cursor needs watch.")
		}
		return nil, nil
	}
	q := &watchQuery{counts: isTrue(b.Watch.Counts), feed: isTrue(b.Watch.Everyone) || len(b.Watch.Users) > 0}
	q.Users = b.Watch.Users
	return q, q.check(namespace, b.Watch.everyoneBody, b.Cursor)
}

// admit authenticates the client, charges it and checks what it can do.
func (n *session) admit(s *Server, body helloBody, opening *connections.Opening, watches bool) error {
	credentials, err := body.credentials(n.credentials)
	if err != nil {
		return err
	}
	caller, invalid := n.Authenticate(n.ctx, credentials)
	if invalid != nil {
		return guard.ErrInvalidCredentials(invalid)
	}
	if caller != nil && !caller.IsAnonymous() { // others have paid for the upgrade
		if err := s.Limiter.ChargeKey(guard.CallerKey(caller), true, 1); err != nil {
			return err
		}
	}
	user := ""
	if opening != nil {
		user = opening.User
	}
	if err := s.permitSession(n.namespace, user, watches, caller); err != nil {
		return err
	}
	if n.Draining() {
		return errShuttingDown()
	}
	n.mu.Lock()
	n.caller, n.credentials, n.user = caller, credentials, user
	n.mu.Unlock()
	return n.ticket.greet(s.Limits, caller)
}

// open records that the user is connected.
func (n *session) open(s *Server, o connections.Opening) error {
	mailbox := n.userStates.open(n.key(), false, func() { n.sendSoon(nil) }) // first, so that no signal is missed
	n.mu.Lock()
	n.mailbox = mailbox
	n.mu.Unlock()
	o.Namespace, o.Close, o.Peer = n.namespace, n.ended, n
	device, err := s.Connections.Open(n.ctx, o)
	switch {
	case errors.Is(err, connections.ErrTooMany):
		return problem.New(problem.RateLimited, "The user has too many connections. Close others first.")
	case errors.Is(err, connections.ErrStopping):
		return errShuttingDown()
	case err != nil:
		return err
	}
	n.mu.Lock()
	n.device = device
	n.mu.Unlock()
	return nil
}

// welcome sends the response to hello, with the first batch of what the client asked to watch: the session has begun.
func (n *session) welcome(s *Server, id string, asked *watchQuery, first feed.Batch) error {
	var own beginning
	var err error
	if n.device != nil {
		own, err = n.mailbox.begin(n.ctx)
	} else {
		own.now, err = s.Store.Now(n.ctx)
	}
	if err != nil {
		return err
	}
	n.socket.SetMessageLimit(maxFrame)
	n.mu.Lock()
	n.greeted = true
	n.mu.Unlock()
	n.leaveArrivals() // before a client that is slow to receive can keep others waiting
	b := request.AppendString(append(make([]byte, 0, 1<<10), `{"welcome":{"connection":`...), n.id)
	if n.device != nil {
		b = request.AppendString(append(b, `,"device":`...), n.device.Device())
	}
	thresholds := s.Thresholds(n.namespace)
	b = n.appendLimits(b, thresholds, asked != nil)
	if n.isShownSelf() {
		b = n.appendSelf(b, thresholds, own)
	}
	if n.isShownCalls() {
		b = appendCalls(append(b, `,"calls":`...), own.ongoing)
	}
	b = append(b, ',')
	if asked != nil && asked.feed {
		n.sendFirst(b, id, *asked, first)
	} else {
		n.send(withID(appendNobody(b, own.now, "", false), id))
		if asked != nil {
			n.following.start()
		}
	}
	if own.renewed {
		n.renew()
	}
	n.setWelcomed()
	n.schedule()
	return nil
}

// appendLimits appends what the client needs to know of the server.
func (n *session) appendLimits(b []byte, t lastseen.Thresholds, watches bool) []byte {
	tick := subscription.TickInterval
	if !watches {
		tick = maxSocketPing
	}
	b = strconv.AppendInt(append(b, `,"tick_ms":`...), tick.Milliseconds(), 10)
	b = strconv.AppendInt(append(b, `,"green_ms":`...), t.Green.Milliseconds(), 10)
	b = strconv.AppendInt(append(b, `,"yellow_ms":`...), t.Yellow.Milliseconds(), 10)
	if expires := n.expiresIn(); expires != nil {
		b = strconv.AppendInt(append(b, `,"expires_in_ms":`...), *expires, 10)
	}
	b = strconv.AppendInt(append(b, `,"limits":{"users":`...), store.MaxWatched, 10)
	b = strconv.AppendInt(append(b, `,"users_per_frame":`...), request.MaxUsers, 10)
	b = strconv.AppendInt(append(b, `,"frame_bytes":`...), maxFrame, 10)
	return append(strconv.AppendInt(append(b, `,"frames_per_second":`...), framesPerSecond, 10), '}')
}

// expiresIn returns the milliseconds until the token expires; nil if it does not.
func (n *session) expiresIn() *int64 {
	caller := n.currentCaller()
	if caller == nil || caller.Expires.IsZero() {
		return nil
	}
	return new(max(0, caller.Expires.Sub(n.newest.Load().Now()).Milliseconds()))
}
