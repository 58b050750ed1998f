package session

import (
	"net/http"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/lastseen/lastseen/api/guard"
	"github.com/lastseen/lastseen/api/live/transport"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/api/telemetry"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/connections"
)

// Received notes that something was received from the client; see [transport.SocketHandler].
func (n *session) Received() {
	n.active.Store(true)
	n.Telemetry.CountSocket(telemetry.FrameReceived)
	if n.device != nil { // which only this method sets
		n.device.Received()
	}
}

// Message handles a frame; see [transport.SocketHandler].
func (n *session) Message(text []byte) {
	defer func() { n.recovered(recover()) }()
	if requests := len(text) / frameCharge; n.greeted && requests > 0 {
		key, limited := n.payer()
		n.newest.Load().Limiter.Pay(key, limited, requests)
	}
	f, err := parseFrame(text)
	switch {
	case err != nil:
		n.fail(err, f.id)
	case !n.greeted && f.name != frameHello: // which only this method sets
		n.fail(problem.New(problem.UnknownFrame, "The first frame is not hello."), f.id)
	case !n.greeted:
		if err := n.arrive(f); err != nil {
			n.fail(err, f.id)
		}
	default:
		if err := n.handle(f); err != nil {
			n.refuse(err, f.id)
		}
	}
}

// Fault closes the session of a client that broke a limit; see [transport.SocketHandler].
func (n *session) Fault(f transport.Fault) {
	switch f {
	case transport.FaultBinary:
		n.fail(problem.New(problem.InvalidJSON, "The frame is binary: send text."), "")
	case transport.FaultLarge:
		most := maxFrame
		if !n.greeted {
			most = maxHello
		}
		n.fail(problem.Errorf(problem.BodyTooLarge, "The frame has more than %d bytes: send a smaller one.", most), "")
	case transport.FaultFlood:
		n.fail(problem.Errorf(problem.RateLimited,
			"Limit for one connection: %d frames per second.", framesPerSecond), "")
	case transport.FaultSlow:
		n.fail(problem.New(problem.TimedOut, "The frame is incomplete or arrived too slowly."), "")
	}
}

// Reserve takes memory for a message from that of request bodies; see [transport.SocketHandler].
func (n *session) Reserve(bytes int) bool {
	if n.memory == nil {
		n.memory = n.Bodies.Hold(n.payer())
	}
	if err := n.memory.Grow(bytes); err != nil {
		n.close(err)
		return false
	}
	return true
}

// Release gives the memory back; see [transport.SocketHandler].
func (n *session) Release() {
	if n.memory != nil {
		n.memory.Release()
		n.memory = nil
	}
}

// handle handles a frame after hello.
func (n *session) handle(f clientFrame) error {
	switch f.name {
	case frameWatch:
		return n.handleWatch(f)
	case frameActivity:
		return n.handleActivity(f)
	case frameToken:
		return n.handleToken(f)
	case frameLeave:
		return n.handleLeave(f)
	case frameTyping:
		return n.handleTyping(f)
	case frameHello:
		return problem.New(problem.UnknownFrame, "The connection has had its frame hello.")
	default:
		return problem.Errorf(problem.UnknownFrame,
			"Unknown frame %.40q. Allowed: watch, activity, token, leave, typing.", f.name)
	}
}

// errNoUser is the error of a frame that is about the user of the connection.
func errNoUser(frame string) error {
	return problem.Errorf(problem.InvalidParameter,
		"The frame %s needs a connection with a user: this one only watches.", frame)
}

func (n *session) handleActivity(f clientFrame) error {
	var body struct { // the device changes now, so there is no idle_ms
		Idle *bool `json:"idle"`
	}
	if err := f.decode(&body); err != nil {
		return err
	}
	activity, err := activityBody{Idle: body.Idle}.activity()
	if err != nil {
		return err
	}
	if n.device == nil {
		return errNoUser(f.name)
	}
	n.device.SetIdle(activity.Idle)
	n.confirm(f.id)
	return nil
}

// handleToken replaces the token by a newer one of the same user.
func (n *session) handleToken(f clientFrame) error {
	var body struct {
		Token string `json:"token"`
	}
	if err := f.decode(&body); err != nil {
		return err
	}
	if body.Token == "" {
		return problem.New(problem.InvalidParameter, "The field token is missing.")
	}
	server := n.newest.Load()
	if err := n.charge(1); err != nil {
		return err
	}
	before, credentials := n.currentCaller(), bearerHeader(body.Token)
	caller, err := n.Authenticate(n.ctx, credentials)
	if err != nil {
		return guard.ErrInvalidCredentials(err)
	}
	if !before.Same(caller) {
		return problem.New(problem.Forbidden, "The token is that of another user: open another connection.")
	}
	if err := n.permit(caller); err != nil {
		return err
	}
	n.mu.Lock()
	n.caller, n.credentials = caller, credentials
	n.mu.Unlock()
	n.checkReload(server)
	n.schedule()
	if expires := n.expiresIn(); expires != nil {
		n.send(withID(strconv.AppendInt([]byte(`{"ok":{"expires_in_ms":`), *expires, 10), f.id))
		return nil
	}
	n.confirm(f.id)
	return nil
}

// handleLeave records a leave, which ends the connection.
func (n *session) handleLeave(f clientFrame) error {
	if err := f.decode(&struct{}{}); err != nil {
		return err
	}
	if n.device == nil {
		return errNoUser(f.name)
	}
	if _, err := n.device.Leave(n.ctx); err != nil {
		return err
	}
	n.setOutcome(departed)
	n.confirm(f.id)
	n.socket.Close(transport.CodeNormal, "")
	return nil
}

// confirm responds to a frame that has no other response.
func (n *session) confirm(id string) { n.send(withID([]byte(`{"ok":{`), id)) }

// problem returns the frame of an error.
func (n *session) problem(e *problem.Error, id string) []byte {
	body, _ := json.Marshal(problemBody{ // which has only strings and numbers
		Body: e.Body(n.requestID), RetryAfterMs: n.newest.Load().retryAfterMs(e),
	})
	return withID(append([]byte(`{"problem":`), body[:len(body)-1]...), id)
}

// problemBody is the content of the frame problem: that of an error over HTTP, with the header Retry-After as a field.
type problemBody struct {
	problem.Body
	RetryAfterMs int64 `json:"retry_after_ms,omitzero"`
}

// retryAfterMs returns after how many milliseconds a client should try again; 0 if the error does not depend on time.
func (s *Server) retryAfterMs(e *problem.Error) int64 {
	seconds, _ := strconv.Atoi(e.Header["Retry-After"]) // 0 for none
	if seconds == 0 && e.Code.Type().Status == http.StatusServiceUnavailable {
		seconds = s.Load.RetryAfter(s.Random())
	}
	return int64(seconds) * time.Second.Milliseconds()
}

// withID ends the content of a frame, and the frame with the ID of the one that it responds to.
func withID(b []byte, id string) []byte {
	b = append(b, '}')
	if id != "" {
		b = append(append(b, `,"id":`...), id...)
	}
	return append(b, '}')
}

// ended is called by the registry when it ends the connection of the user.
func (n *session) ended(reason connections.Reason) {
	defer func() { n.recovered(recover()) }()
	if reason == connections.Closed {
		n.fail(problem.New(problem.ConnectionClosed,
			"The user was deleted, or an operator closed the user's connections."), "")
		return
	}
	n.fail(store.ErrNoDevices, "")
}
