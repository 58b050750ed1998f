package api

import (
	"github.com/go-json-experiment/json/jsontext"
	"github.com/labstack/echo/v4"
)

// leaveBody is the JSON of a leave.
type leaveBody struct {
	At     jsontext.Value `json:"at" swaggertype:"string" validate:"optional"`
	Device *deviceBody    `json:"device" validate:"optional"`
	// How long to wait before the leave is recorded, up to a minute, such as `5s`. A ping in the meantime makes it
	// void. The response is 202.
	After string `json:"after" validate:"optional"`
	// The user's JWT, for a page that closes and cannot set headers. Ignored if the request has the header
	// Authorization, or if the server does not authenticate.
	Token string `json:"token" validate:"optional"`
} // @name LeaveRequest

// leave records that a user went away.
//
// @ID leaveUser
// @Tags Recording
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
// @Param namespace path string true "namespace"
// @Param user path string true "user"
// @Param Prefer header string false "preference"
// @Param body body leaveBody false "The device, and the time of the event if it is not now."
// @Success 200 {object} userResponse "The resulting presence."
// @Success 202 "Accepted. The leave has `after` and is recorded then."
// @Success 204 "Recorded. The request has `Prefer: return=minimal`, or the caller lacks the scope `read`."
// @Router /v1/namespaces/{namespace}/users/{user}/leave [post]
func (s *server) leave(c echo.Context, _ query) error {
	return s.recordOne(c, eventLeave, s.readLeave)
}

// readLeave reads the body of a leave, which is optional. It checks an anonymous caller by the token in the body:
// navigator.sendBeacon, which a closing page uses, cannot set headers.
func (s *server) readLeave(c echo.Context) (assertion, error) {
	var body leaveBody
	if err := s.readOne(c, &body); err != nil {
		return assertion{}, err
	}
	asserted := assertion{At: body.At, Device: body.Device, After: body.After}
	if callerOf(c).IsAnonymous() {
		return asserted, s.authorizeToken(c, leaveSelf, body.Token)
	}
	return asserted, nil
}
