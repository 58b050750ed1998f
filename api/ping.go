package api

import (
	"net/http"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/labstack/echo/v4"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/guard"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/api/request"
	"github.com/lastseen/lastseen/api/telemetry"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/connections"
)

// pingBody is the JSON of a ping.
type pingBody struct {
	At     jsontext.Value  `json:"at" swaggertype:"string" validate:"optional"`
	Device *request.Device `json:"device" validate:"optional"`
	// Whether the person uses the device. It requires a device. Default: active.
	Activity string `json:"activity" validate:"optional"`
} // @name PingRequest

// @ID pingUser
// @Summary Record a ping
// @Description Send a ping while the user is online, about as often as `ping_after_ms` in the response asks. The user
// @Description is green at first, then yellow, then grey; this needs no further request.
// @Description
// @Description A ping older than the stored time changes nothing, so pings can arrive in any order and can be
// @Description repeated. The response has the resulting presence.
// @Description
// @Description With a device, the ping is of that device alone: the user stays online until all devices left. Pings
// @Description without a device are recorded for the user.
// @Description
// @Description The body is optional. Requires the scope `ping` or the user's own token. The response has no body with
// @Description `Prefer: return=minimal`, or if an API key lacks the scope `read`.
// @Param Prefer header string false "preference"
// @Param body body pingBody false "The device, and the time of the event if it is not now."
// @Success 200 {object} userResponse "The resulting presence."
// @Router /v1/namespaces/{namespace}/users/{user}/ping [post]
func (s *server) ping(c echo.Context, _ request.Query, namespace, user string) error {
	return s.recordOne(c, namespace, user, telemetry.Ping, s.readPing)
}

// readPing reads the body of a ping, which is optional.
func (s *server) readPing(c echo.Context) (request.Event, error) {
	if c.Request().Body == http.NoBody { // as in most pings; this saves an allocation
		return request.Event{}, nil
	}
	var body pingBody
	err := s.readBody(c, oneForm, &body)
	return request.Event{At: body.At, Device: body.Device, Activity: body.Activity}, err
}

// oneForm is the form of a body about one user, which may contain a token.
var oneForm = request.Form{Max: 16 << 10, Optional: true}

// readBody reads a JSON body of a form into v. Its memory does not count until the response is sent.
func (s *server) readBody(c echo.Context, f request.Form, v any) error {
	hold := s.hold(c)
	defer hold.Release()
	return f.Read(c, hold, v, strict)
}

// leaveBody is the JSON of a leave.
type leaveBody struct {
	At     jsontext.Value  `json:"at" swaggertype:"string" validate:"optional"`
	Device *request.Device `json:"device" validate:"optional"`
	// How long to wait before the leave is recorded, up to a minute, such as `5s`. A ping in the meantime makes it
	// void. The response is 202.
	After string `json:"after" validate:"optional"`
	// The user's JWT, for a page that closes and cannot set headers. Ignored if the request has the header
	// Authorization, or if the server does not authenticate.
	Token string `json:"token" validate:"optional"`
} // @name LeaveRequest

// @ID recordLeave
// @Summary Record a leave
// @Description Without a device, the leave applies to the user on all tabs and devices: the user is grey at once, and
// @Description the time of the leave becomes their last-seen time. Send it when the user signs out. The next ping, from
// @Description any device, brings them back.
// @Description
// @Description With a device, the leave is of that device alone: the user is grey at once if no other device that has
// @Description not left was seen recently. Send it when a page closes, with the device of its pings. With `after`, the
// @Description leave waits, so that the next page of the same site can ping first.
// @Description
// @Description A leave older than the stored time changes nothing. A leave of a user never seen is recorded, so pings
// @Description and leaves can arrive in any order. The body is optional. Requires the scope `ping` or the user's own
// @Description token. A page that closes can send the token in the body, because `navigator.sendBeacon` cannot set
// @Description headers.
// @Param Prefer header string false "preference"
// @Param body body leaveBody false "The device, and the time of the event if it is not now."
// @Success 200 {object} userResponse "The resulting presence."
// @Success 202 "Accepted. The leave has `after` and is recorded then."
// @Router /v1/namespaces/{namespace}/users/{user}/leave [post]
func (s *server) leave(c echo.Context, _ request.Query, namespace, user string) error {
	return s.recordOne(c, namespace, user, telemetry.Leave, s.readLeave)
}

// readLeave reads the body of a leave, which is optional. It checks an anonymous caller by the token in the body:
// navigator.sendBeacon, which a closing page uses, cannot set headers.
func (s *server) readLeave(c echo.Context) (request.Event, error) {
	var body leaveBody
	if err := s.readBody(c, oneForm, &body); err != nil {
		return request.Event{}, err
	}
	event := request.Event{At: body.At, Device: body.Device, After: body.After}
	if guard.CallerOf(c).IsAnonymous() {
		return event, s.gate.AuthorizeToken(c, guard.LeaveSelf, body.Token)
	}
	return event, nil
}

// batch are valid events in one namespace, by the way in which they are recorded.
type batch struct {
	plain   []store.PresenceEvent // of no device
	devices []store.DeviceEvent
	later   []connections.DelayedLeave // leaves
}

func (b *batch) size() int { return len(b.plain) + len(b.devices) + len(b.later) }

// add validates an event of a user and adds it to the batch. Its namespace is that of the batch.
func (b *batch) add(e telemetry.Event, namespace, user string, a request.Event, now lastseen.Instant) *problem.Error {
	if err := lastseen.CheckUser(user); err != nil {
		return problem.From(problem.InvalidUser, err)
	}
	at, err := a.Time(now)
	if err != nil {
		return err
	}
	if a.Device == nil && a.Activity == "" && a.After == "" { // as in most
		b.plain = append(b.plain, store.PresenceEvent{User: user, At: at})
		return nil
	}
	event, after, bad := details(e, a, at)
	if bad != nil {
		return bad
	}
	event.User, event.At, event.Gone = user, at, e == telemetry.Leave
	switch {
	case after > 0:
		b.later = append(b.later, connections.DelayedLeave{Namespace: namespace, DeviceEvent: event, After: after})
	case event.ID == "":
		b.plain = append(b.plain, store.PresenceEvent{User: user, At: at})
	default:
		b.devices = append(b.devices, event)
	}
	return nil
}

// details validates the device of an event at a time, and how long the event has to wait.
func details(
	e telemetry.Event, a request.Event, at lastseen.Instant,
) (event store.DeviceEvent, after time.Duration, err *problem.Error) {
	if a.Device != nil {
		event = store.DeviceEvent{ID: a.Device.ID, Meta: string(a.Device.Meta)}
		if event.Kind, err = a.Device.Check(); err != nil {
			return event, 0, err
		}
	}
	switch {
	case e == telemetry.Ping && a.After != "":
		return event, 0, problem.New(problem.UnknownField, `Unknown field "after": only leaves have it.`)
	case e == telemetry.Leave && a.Activity != "":
		return event, 0, problem.New(problem.UnknownField, `Unknown field "activity": only pings have it.`)
	case a.Activity != "" && a.Device == nil:
		return event, 0, problem.New(problem.InvalidDevice, "activity is that of a device: send the device, too.")
	}
	if event.Idle, err = a.IdleSince(at); err != nil {
		return event, 0, err
	}
	after, err = a.Wait(connections.MaxGrace)
	return event, after, err
}
