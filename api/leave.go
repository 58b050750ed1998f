package api

import (
	"github.com/go-json-experiment/json/jsontext"
	"github.com/labstack/echo/v4"
)

// leaveBody is the JSON of a leave.
type leaveBody struct {
	At jsontext.Value `json:"at" swaggertype:"string" validate:"optional"`
	// The user's JWT, for a page that closes and cannot set headers. Ignored if the request has the header
	// Authorization, or if the server does not authenticate.
	Token string `json:"token" validate:"optional"`
} // @name LeaveRequest

// leave records that a user went away.
//
// @ID leaveUser
// @Tags Recording
// @Summary Record a leave
// @Description The user is grey at once, and the time of the leave becomes their last-seen time. The next ping, from
// @Description any device, brings them back.
// @Description
// @Description A leave applies to the user on all tabs and devices. Send it when the user signs out, not each time a
// @Description page closes: closing one of two tabs would make the user grey until the other one pings.
// @Description
// @Description A leave older than the stored time changes nothing. A leave of a user never seen is recorded, so pings
// @Description and leaves can arrive in any order. The body is optional. Requires the scope `ping` or the user's own
// @Description token. A page that closes can send the token in the body, because `navigator.sendBeacon` cannot set
// @Description headers.
// @Param namespace path string true "namespace"
// @Param user path string true "user"
// @Param Prefer header string false "preference"
// @Param body body leaveBody false "The time of the event, if it is not now."
// @Success 200 {object} userResponse "The resulting presence."
// @Success 204 "Recorded. The request has `Prefer: return=minimal`, or the caller lacks the scope `read`."
// @Router /v1/namespaces/{namespace}/users/{user}/leave [post]
func (s *server) leave(c echo.Context, _ query) error {
	return s.recordOne(c, eventLeave, s.readLeave)
}

// readLeave returns the time in the body of a leave as it was sent, or nil if it is omitted. It checks an anonymous
// caller by the token in the body: navigator.sendBeacon, which a closing page uses, cannot set headers.
func (s *server) readLeave(c echo.Context) (jsontext.Value, error) {
	var body leaveBody
	if err := s.readOne(c, &body); err != nil {
		return nil, err
	}
	if callerOf(c).IsAnonymous() {
		return body.At, s.authorizeToken(c, body.Token)
	}
	return body.At, nil
}
