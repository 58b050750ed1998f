package session

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/api/guard"
	"github.com/lastseen/lastseen/api/limit"
	"github.com/lastseen/lastseen/api/live/transport"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/api/telemetry"
	"github.com/lastseen/lastseen/store/connections"
)

// session is a WebSocket that is open. One goroutine reads; others send, while there is something to send: see
// [following] and [sendQueue]. A timer sends pings and checks the caller again. Since the session outlives reloads, it
// uses the newest server for everything.
type session struct {
	*Hub
	socket    *transport.Socket
	ticket    *ticket
	namespace string
	id        string // of the connection, for the client and the log
	requestID string
	ctx       context.Context //nolint:containedctx // it is the session; guarded by mu until setWelcomed
	cancel    func()

	asked      atomic.Bool // to connect to another server
	active     atomic.Bool // since the last ping
	unanswered int8        // pings; used by the timer alone
	outcome    outcome     // so far; guarded by mu
	memory     *limit.Hold // of the message that is read; nil for none; used by the reader alone

	mu          sync.Mutex
	timer       *time.Timer
	arriving    bool // it has one of the slots of arrivals
	greeting    bool // its frame hello is one of those that are being handled
	received    bool // the frame hello, which is being handled or was
	greeted     bool
	welcomed    bool // the frame welcome was sent
	caller      *auth.Caller
	credentials []string // as an Authorization header, until hello that of the request; none for an anonymous caller
	user        string   // empty for a client that only watches
	device      *connections.Connection
	mailbox     *mailbox   // of the user's own state; nil without a device
	following   *following // nil until the client watches
	sends       *sendQueue // nil if nothing waits, and then no goroutine sends
}

// outcome is why a session ends.
type outcome int8

// The outcomes, in order: a later one replaces an earlier one.
const (
	unknown  outcome = iota
	byServer         // the server closes it, or asked the client to leave
	silent           // the client does not answer
	departed         // the client left with a frame
)

// begin begins the session.
func (n *session) begin(socket *transport.Socket) {
	n.socket, n.id = socket, strconv.FormatUint(rand.Uint64(), 36)
	n.ctx, n.cancel = context.WithCancel(context.Background())
	n.active.Store(true)
	n.sockets.add(n)
	n.Telemetry.SocketOpened()
	n.mu.Lock()
	n.arriving, n.timer = true, time.AfterFunc(promptHello, n.wake)
	n.mu.Unlock()
	if n.Draining() { // after add, so that either this or drainSockets notices
		time.AfterFunc(0, n.bye)
	}
	go n.run()
}

// run serves the session until it ends.
func (n *session) run() {
	how := transport.Closed
	defer func() {
		n.recovered(recover())
		n.end(how)
	}()
	how = n.socket.Serve(n)
}

// recovered handles a panic: a defect ends this session alone.
func (n *session) recovered(panicked any) {
	if panicked != nil {
		n.close(fmt.Errorf("panic: %v\n%s", panicked, debug.Stack()))
	}
}

// end ends the session, whose socket is closed.
func (n *session) end(how transport.Ending) {
	n.cancel()
	n.leaveArrivals()
	n.mu.Lock()
	n.timer.Stop()
	device, outcome, mailbox, following := n.device, n.outcome, n.mailbox, n.following
	n.mu.Unlock()
	mailbox.close()
	if following != nil {
		following.wake() // to end
	}
	if device != nil {
		device.End(endingOf(how, outcome)) // before EndWebSockets can return: the registry is stopped then
	}
	n.sockets.remove(n)
	n.ticket.close()
	code := n.socket.Code()
	n.Telemetry.SocketClosed(code)
	server := n.newest.Load()
	if ctx := context.Background(); server.Logger.Enabled(ctx, slog.LevelDebug) {
		attrs := append(n.attrs(), slog.Int("close_code", code))
		server.Logger.LogAttrs(ctx, slog.LevelDebug, "websocket closed", attrs...)
	}
}

// endingOf returns how a user's connection ended. Only a client that left itself has Left.
func endingOf(how transport.Ending, outcome outcome) connections.Ending {
	switch {
	case outcome == departed:
		return connections.Left
	case outcome == unknown && how == transport.Gone:
		return connections.Gone
	case outcome == silent, how == transport.Lost:
		return connections.Silent
	default:
		return connections.Ended
	}
}

// attrs returns the attributes of the session in log lines.
func (n *session) attrs() []slog.Attr {
	return []slog.Attr{
		slog.String("request_id", n.requestID), slog.String("connection", n.id),
		slog.String("route", connectRoute),
		slog.String("caller", n.newest.Load().Limiter.NameOf(n.currentCaller(), n.ticket.address)),
	}
}

// key names the user of the session.
func (n *session) key() lastseen.UserKey {
	return lastseen.UserKey{Namespace: n.namespace, User: n.user}
}

// payer returns what a session is charged to: as [guard.Limiter.Key] does for requests.
func (n *session) payer() (limit.Key, bool) {
	if caller := n.currentCaller(); caller != nil && !caller.IsAnonymous() {
		return guard.CallerKey(caller), true
	}
	return limit.ByAddress(n.ticket.address), n.ticket.limited
}

// charge charges requests to the caller's rate limit.
func (n *session) charge(requests int) error {
	key, limited := n.payer()
	return n.newest.Load().Limiter.ChargeKey(key, limited, requests)
}

func (n *session) currentCaller() *auth.Caller {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.caller
}

// setOutcome records an outcome, unless a later one in their order was recorded.
func (n *session) setOutcome(e outcome) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.outcome = max(n.outcome, e)
}

// close ends the session with an error, by a close frame with its code.
func (n *session) close(err error) {
	e := n.Classify(err)
	n.setOutcome(byServer)
	if n.socket.Close(e.Code.CloseCode(), string(e.Code)) {
		n.report(e, err)
	}
}

// report counts and logs an error.
func (n *session) report(e *problem.Error, err error) {
	n.Telemetry.Failed(e.Code)
	if e.Code.CloseCode() < problem.Internal.CloseCode() {
		n.Failures.Refused(e, n.attrs)
	} else {
		n.Failures.Failed(e, err, telemetry.NoStore, n.attrs())
	}
}

// fail sends an error as a problem, and ends the session: a close frame has no room for details.
func (n *session) fail(err error, id string) {
	n.setOutcome(byServer)
	late := time.AfterFunc(closeWait, func() { n.close(err) }) // another frame may be on its way to a slow client
	_ = n.sendWithin(n.problem(n.Classify(err), id), closeWait)
	late.Stop()
	n.close(err)
}

// closeWait is how long a client can take to receive the problem before the close frame.
const closeWait = time.Second

// refuse sends an error that does not end the session.
func (n *session) refuse(err error, id string) {
	e := n.Classify(err)
	n.report(e, err)
	n.send(n.problem(e, id))
}

// send sends a frame.
func (n *session) send(text []byte) bool {
	return n.sent(n.sendWithin(text, transport.WriteTimeout))
}

// sent reports whether something was sent. A client that did not receive it in time is disconnected; other errors end
// the session by themselves.
func (n *session) sent(err error) bool {
	if err != nil && transport.IsSlow(err) {
		n.Telemetry.CountSocket(telemetry.SlowReader)
		n.close(problem.New(problem.TimedOut, "The client received nothing for too long."))
	}
	return err == nil
}

func (n *session) sendWithin(text []byte, within time.Duration) error {
	err := n.socket.Send(text, within)
	if err == nil {
		n.Telemetry.CountSocket(telemetry.FrameSent)
	}
	return err
}

// setWelcomed notes that the client has got the frame welcome. The context, grown by its children, is replaced.
func (n *session) setWelcomed() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.welcomed = true
	if n.following == nil && n.ctx.Err() == nil {
		n.ctx, n.cancel = context.WithCancel(context.Background())
	}
	if n.sends != nil {
		go n.sendQueued()
	}
}

// wake is called by the timer.
func (n *session) wake() {
	defer func() { n.recovered(recover()) }()
	if n.yieldSlot() {
		return
	}
	n.mu.Lock()
	received, greeted, ctx, cancel := n.received, n.greeted, n.ctx, n.cancel
	n.mu.Unlock()
	switch {
	case ctx.Err() != nil:
	case received && !greeted:
		n.fail(problem.New(problem.Overloaded, "The server could not handle the frame hello in time."), "")
		cancel() // afterwards: what handles the frame would respond that the store does not
	case !greeted:
		n.fail(problem.New(problem.TimedOut, "The frame hello did not come in time."), "")
	case n.check() && n.beat():
		n.schedule()
	}
}

// beat sends a ping, unless the client did not answer those before.
func (n *session) beat() bool {
	n.unanswered++
	if n.active.Swap(false) {
		n.unanswered = 0
	}
	if n.unanswered >= maxUnanswered {
		n.setOutcome(silent)
		n.close(problem.New(problem.TimedOut, "The client does not answer pings."))
		return false
	}
	n.mu.Lock()
	watches := n.following != nil
	n.mu.Unlock()
	if watches {
		return n.sent(n.socket.Ping())
	}
	err := n.socket.PingText(idleTick) // pings are not visible to scripts
	if err == nil {
		n.Telemetry.CountSocket(telemetry.FrameSent)
	}
	return n.sent(err)
}

// idleTick is the tick of a client that watches nothing: it shows that the connection is alive.
const idleTick = `{"tick":{}}`

// schedule sets the timer: to the next ping, or to the end of the token if that is sooner.
func (n *session) schedule() {
	server := n.newest.Load()
	interval := server.PingInterval(n.namespace)
	if interval <= 0 || interval > maxSocketPing {
		interval = maxSocketPing
	}
	next := onGrid(time.Now(), server.Jitter(interval*4/5, interval))
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.caller != nil && !n.caller.Expires.IsZero() {
		next = min(next, max(minWake, n.caller.Expires.Sub(server.Now())))
	}
	if n.ctx.Err() == nil {
		n.timer.Reset(next)
	}
}

// minWake is the least time between two calls of the timer, for a token that ends now.
const minWake = 50 * time.Millisecond

// bye asks the client to connect to another server. The end of the session is then not recorded as a leave.
func (n *session) bye() {
	defer func() { n.recovered(recover()) }()
	if n.asked.Swap(true) {
		return
	}
	n.setOutcome(byServer)
	after := n.newest.Load().Jitter(0, maxByePause).Milliseconds()
	n.send([]byte(fmt.Sprintf(`{"bye":{"reconnect_after_ms":%d}}`, after)))
}

const maxByePause = time.Second

// wakeGrid is the distance of the moments at which timers of sessions fire. Many together take a third of the CPU time:
// the processors do not go to sleep in between, and the pongs arrive together, too.
const wakeGrid = 250 * time.Millisecond

// onGrid shortens a duration so that it ends on the grid. It is at least minWake.
func onGrid(now time.Time, d time.Duration) time.Duration {
	return max(minWake, now.Add(d).Truncate(wakeGrid).Sub(now))
}
