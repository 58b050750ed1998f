package api

import (
	"net/http"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/labstack/echo/v4"
)

// pingBody is the JSON of a ping.
type pingBody struct {
	At     jsontext.Value `json:"at" swaggertype:"string" validate:"optional"`
	Device *deviceBody    `json:"device" validate:"optional"`
	// Whether the person uses the device. It requires a device. Default: active.
	Activity string `json:"activity" enums:"active,idle" validate:"optional"`
} // @name PingRequest

// ping records that a user is here.
//
// @ID pingUser
// @Tags Recording
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
// @Param namespace path string true "namespace"
// @Param user path string true "user"
// @Param Prefer header string false "preference"
// @Param body body pingBody false "The device, and the time of the event if it is not now."
// @Success 200 {object} userResponse "The resulting presence."
// @Success 204 "Recorded. The request has `Prefer: return=minimal`, or the caller lacks the scope `read`."
// @Router /v1/namespaces/{namespace}/users/{user}/ping [post]
func (s *server) ping(c echo.Context, _ query) error {
	return s.recordOne(c, eventPing, s.readPing)
}

// readPing reads the body of a ping, which is optional.
func (s *server) readPing(c echo.Context) (assertion, error) {
	if c.Request().Body == http.NoBody { // as in most pings; this saves an allocation
		return assertion{}, nil
	}
	var body pingBody
	err := s.readOne(c, &body)
	return assertion{At: body.At, Device: body.Device, Activity: body.Activity}, err
}
