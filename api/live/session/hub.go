// Package session serves WebSockets: it reads and writes frames, records that users are connected, has clients follow
// changes, and sends users what concerns themselves. A [Hub] has the sessions of a process, which outlive reloads, and
// uses the newest [Server] for everything. Requests that stay open are [Waiting], some to stream events.
//
// It knows neither routes nor package echo. Presences, which responses show, too, are encoded by its caller: see
// [Show].
package session

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/api/limit"
	"github.com/lastseen/lastseen/api/live/subscription"
	"github.com/lastseen/lastseen/api/live/transport"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/api/telemetry"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/calls"
	"github.com/lastseen/lastseen/store/connections"
)

// Options are what sessions use that reloads do not replace. All fields are required.
type Options struct {
	Telemetry     *telemetry.Metrics
	Subscriptions *subscription.Shared
	Bodies        *limit.Memory // for frames while they are read
	Failures      *telemetry.Failures
	Now           func() time.Time // it must not go backwards
	Show          Show

	// Authenticate returns the caller with some credentials, as in headers Authorization; nil on an open server.
	Authenticate func(ctx context.Context, credentials []string) (*auth.Caller, error)
	// Classify returns what a client is sent about an error.
	Classify func(error) *problem.Error
}

// Show are the presences in frames, which responses over HTTP also have. Each function appends JSON.
type Show struct {
	Presence func(b []byte, user string, p store.Published) []byte
	// Self appends the fields of a user's own presence.
	Self func(b []byte, user string, s lastseen.State, t lastseen.Thresholds, now lastseen.Instant) []byte
}

// Server is what sessions use of a server. A reload replaces it. All fields are required.
type Server struct {
	*subscription.Server
	Limits       Limits
	Connections  *connections.Registry
	Calls        *calls.Manager
	Logger       *slog.Logger
	Thresholds   func(namespace string) lastseen.Thresholds
	PingInterval func(namespace string) time.Duration
	// CheckServed returns an error if the server does not serve a namespace.
	CheckServed func(namespace string) error
	// Count returns how many users have each status at a time, which it also returns.
	Count func(ctx context.Context, namespace string) (map[lastseen.Status]int64, lastseen.Instant, error)
}

// Hub has the sessions of a process. Its methods may be called by many goroutines at once.
type Hub struct {
	Options
	Reloads Waker // wakes what has to be authorized again; also when the server begins to stop

	newest     atomic.Pointer[Server]
	draining   atomic.Bool
	sockets    sockets
	arrivals   *arrivals
	counting   countsHub
	userStates *userStates
	upgrader   *transport.SocketUpgrader
}

// New returns a hub. Call Configure before anything else.
func New(o Options) *Hub {
	h := &Hub{Options: o, arrivals: newArrivals(o.Now), upgrader: transport.NewSocketUpgrader()}
	h.userStates = newUserStates(h)
	return h
}

// Configure has sessions use a server from now on. They are authorized again, and so is what waits for Reloads.
func (h *Hub) Configure(s *Server) {
	h.newest.Store(s)
	h.Reloads.Wake()
	go h.checkSockets()
}

// CheckUpgrade returns an error unless a request is one for a WebSocket.
func CheckUpgrade(r *http.Request) error {
	if !transport.IsUpgrade(r) || r.Method != http.MethodGet || !transport.IsSupportedVersion(r) {
		return &problem.Error{
			Code: problem.UpgradeRequired, Detail: "This path serves WebSockets, version " + transport.SocketVersion +
				", over HTTP/1.1: send the headers Upgrade, Connection and Sec-WebSocket-Version.",
			Header: map[string]string{
				"Upgrade": "websocket", "Connection": "Upgrade",
				"Sec-WebSocket-Version": transport.SocketVersion,
			},
		}
	}
	if err := transport.CheckUpgrade(r); err != nil {
		return problem.Errorf(problem.InvalidParameter, "Invalid request for a WebSocket: %v.", err)
	}
	return nil
}

// Opening is a request for a WebSocket.
type Opening struct {
	Namespace string
	RequestID string
	Address   netip.Addr
	Limited   bool // whether the address is
}

// Open takes the connection of a request over, and begins a session. It reports whether it did the former, also with an
// error. Then nothing else must respond.
func (h *Hub) Open(w http.ResponseWriter, r *http.Request, o Opening) (taken bool, err error) {
	if h.Draining() {
		return false, errShuttingDown()
	}
	ticket, err := h.sockets.admit(h.newest.Load().Limits, o.Address, o.Limited)
	if err != nil {
		return false, err
	}
	if err := h.arrivals.enter(r.Context()); err != nil {
		ticket.close()
		return false, err
	}
	began := false
	defer func() {
		if !began { // also after a panic
			h.arrivals.leave()
			ticket.close()
		}
	}()
	if h.Draining() { // since the client has begun to wait
		return false, errShuttingDown()
	}
	socket, err := h.upgrader.Upgrade(w, r, http.Header{"X-Request-Id": {o.RequestID}}, transport.SocketLimits{
		Message: maxHello, MessageTime: messageTime, PerSecond: framesPerSecond, Burst: frameBurst,
	})
	if err != nil {
		return true, &problem.Error{Code: problem.InvalidParameter, Detail: "The upgrade failed.", Cause: err}
	}
	n := &session{
		Hub: h, ticket: ticket, namespace: strings.Clone(o.Namespace), requestID: o.RequestID,
		credentials: append([]string(nil), r.Header["Authorization"]...),
	}
	n.begin(socket)
	began = true
	return true, nil
}

// FollowCalls calls wake for each signal about the calls of a user, until the returned function is called.
func (h *Hub) FollowCalls(of lastseen.UserKey, wake func()) (end func()) {
	return h.userStates.open(of, true, wake).close
}

// WebSockets returns the number of WebSockets that are open.
func (h *Hub) WebSockets() int {
	h.sockets.mu.Lock()
	defer h.sockets.mu.Unlock()
	return h.sockets.open
}

// Drain prepares for the end of the server. From now on its readiness fails, so that load balancers stop sending
// requests, and each response ends its connection, so that clients connect to another server. Requests still succeed.
// Those that stay open end at once. WebSockets stay open, and their clients are asked to connect to another server, one
// after the other over the time that [Limits] has for that: see [Hub.EndWebSockets].
func (h *Hub) Drain() {
	h.draining.Store(true)
	h.Reloads.Wake()
	h.drainSockets()
}

// Draining reports whether Drain was called.
func (h *Hub) Draining() bool { return h.draining.Load() }

// signalTimeout bounds how long a caller waits for a signal to be sent.
const signalTimeout = time.Second

// Signal sends a signal to all servers, also to this one, after what it is about was done. That was done whether the
// signal arrives or not, so a failure is logged, with its consequence. Where rights are missing, the store logs it.
func (h *Hub) Signal(ctx context.Context, signal store.Signal, consequence string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), signalTimeout)
	defer cancel()
	if err := h.newest.Load().Store.Signal(ctx, signal); err != nil && !errors.Is(err, store.ErrNoSignals) {
		h.Failures.Defects.Log(slog.LevelWarn, "signal "+signal.Kind,
			"a signal to other servers was not sent: "+consequence,
			slog.String("namespace", signal.Namespace), slog.Any("error", err))
	}
}

// SignalAvailability has the connections of a user, or for "" of all users, learn that the availability has changed.
func (h *Hub) SignalAvailability(ctx context.Context, namespace, user string) {
	h.Signal(ctx, store.Signal{Kind: signalSelf, Namespace: namespace, User: user},
		"connections of the user to other servers are not sent the availability until they open again")
}
