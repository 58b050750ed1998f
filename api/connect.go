package api

import (
	"cmp"
	"net/http"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/lastseen/lastseen/api/limit"
	"github.com/lastseen/lastseen/api/live/transport"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/api/request"

	"github.com/lastseen/lastseen/api/guard"
)

// WebSocketLimits are the limits of WebSockets on one server.
type WebSocketLimits struct {
	// Max is how many can be open at the same time; 0 for no limit.
	Max int
	// PerUser is how many one user with a token can have open; 0 for no limit. The registry has a limit for each user
	// of a namespace.
	PerUser int
	// PerCaller is how many can be open with one API key; 0 for no limit.
	PerCaller int
	// PerAddress is how many can be open from one address that have not said hello; 0 for no limit.
	PerAddress int
	// Grace is the time from the end of a connection to the user's goodbye, unless the client asks for another one.
	Grace time.Duration
	// Drain is the time over which clients are asked to connect to another server when this one stops.
	Drain time.Duration
}

// Limits of WebSockets that are not settings. The client learns some of them by the frame welcome.
const (
	maxHello        = 16 << 10 // bytes
	helloTimeout    = 5 * time.Second
	welcomeTimeout  = 30 * time.Second // for handling the frame hello
	maxFrame        = 64 << 10         // bytes of later frames
	frameCharge     = 2 << 10          // bytes of them that count as a request
	messageTime     = 10 * time.Second
	framesPerSecond = 20
	frameBurst      = 40
	maxSent         = 32 << 10 // bytes of a frame from the server
	maxFrameID      = 64       // bytes of an ID, as JSON
	maxSocketPing   = 25 * time.Second
	maxUnanswered   = 2 // pings
)

// connect upgrades a request to a WebSocket. What a browser cannot see the reason of is refused before; credentials and
// the rest are checked when the first frame has come, so that a browser can see why by the close code.
//
// @ID connect
// @Tags Connecting
// @Summary Connect
// @Description Opens a WebSocket over HTTP/1.1, with the subprotocol `lastseen.v1` or none. A user who holds one is
// @Description present, and the client can follow changes. The guide /docs/connections describes the frames.
// @Description
// @Description The credentials are in the header Authorization or in the first frame, and are checked then. Browsers
// @Description are accepted from the server's own origin and those of the setting cors-origins. Requires the scope
// @Description `ping` or the user's own token; to follow changes, the scope `read`.
// @Param namespace path string true "namespace"
// @Success 101 "A WebSocket."
// @Router /v1/namespaces/{namespace}/connect [get]
func (s *server) connect(c echo.Context, _ request.Query, namespace string) error {
	r := c.Request()
	if err := cmp.Or(checkUpgrade(r), s.sources.CheckSocket(r)); err != nil {
		return err
	}
	if s.Draining() {
		return errShuttingDown()
	}
	address := s.limiter.Proxies.Client(r)
	ticket, err := s.sockets.admit(s.Config.WebSockets, address, !s.limiter.Proxies.IsLocal(r))
	if err != nil {
		return err
	}
	if err := s.arrivals.enter(r.Context()); err != nil {
		ticket.close()
		return err
	}
	began := false
	defer func() {
		if !began { // also after a panic
			s.arrivals.leave()
			ticket.close()
		}
	}()
	n := &session{
		Shared: s.Shared, ticket: ticket, namespace: strings.Clone(namespace), address: address,
		requestID: c.Response().Header().Get(echo.HeaderXRequestID),
		header:    append([]string(nil), r.Header[echo.HeaderAuthorization]...),
	}
	if err := s.upgrade(c, n); err != nil {
		return err
	}
	began = true
	return nil
}

// upgrade takes the connection of a request over, and begins a session, unless the server has begun to shut down while
// the client waited.
func (s *server) upgrade(c echo.Context, n *session) error {
	if s.Draining() {
		return errShuttingDown()
	}
	header := http.Header{echo.HeaderXRequestID: {n.requestID}}
	socket, err := s.upgrader.Upgrade(c.Response(), c.Request(), header, transport.SocketLimits{
		Message: maxHello, MessageTime: messageTime, PerSecond: framesPerSecond, Burst: frameBurst,
	})
	response := c.Response()
	response.Status, response.Committed = http.StatusSwitchingProtocols, true // package echo must not respond
	if err != nil {
		return &problem.Error{Code: problem.InvalidParameter, Detail: "The upgrade failed.", Cause: err}
	}
	n.begin(socket)
	return nil
}

// checkUpgrade returns an error unless a request is one for a WebSocket.
func checkUpgrade(r *http.Request) error {
	if !transport.IsUpgrade(r) || r.Method != http.MethodGet || !transport.IsSupportedVersion(r) {
		return &problem.Error{
			Code: problem.UpgradeRequired, Detail: "This path serves WebSockets, version " + transport.SocketVersion +
				", over HTTP/1.1: send the headers Upgrade, Connection and Sec-WebSocket-Version.",
			Header: map[string]string{
				echo.HeaderUpgrade: "websocket", echo.HeaderConnection: "Upgrade",
				"Sec-WebSocket-Version": transport.SocketVersion,
			},
		}
	}
	if err := transport.CheckUpgrade(r); err != nil {
		return problem.Errorf(problem.InvalidParameter, "Invalid request for a WebSocket: %v.", err)
	}
	return nil
}

// payer returns what a session is charged to: as [guard.Limiter.Key] does for requests.
func (n *session) payer() (limit.Key, bool) {
	if caller := n.currentCaller(); caller != nil && !caller.IsAnonymous() {
		return guard.CallerKey(caller), true
	}
	return limit.ByAddress(n.address), n.ticket.limited
}

// charge charges requests to the caller's rate limit.
func (n *session) charge(requests int) error {
	key, limited := n.payer()
	return n.newest.Load().limiter.ChargeKey(key, limited, requests)
}
