package api

import (
	"net/http"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/labstack/echo/v4"
)

// pingBody is the JSON of a ping.
type pingBody struct {
	At jsontext.Value `json:"at" swaggertype:"string" validate:"optional"`
} // @name Assertion

// ping records that a user is here.
//
// @ID pingUser
// @Tags Recording
// @Summary Record that a user is here
// @Description Send this while the user is here, about as often as `ping_after_ms` of the answer says. The user is green for a while after it, then yellow, then grey; nothing has to be sent for that.
// @Description
// @Description A ping older than what is stored changes nothing, so pings may arrive in any order and may be sent again. The answer is the presence that results.
// @Description
// @Description The body is optional. With `Prefer: return=minimal` there is no body in the answer either.
// @Description
// @Description Needs the scope `ping`, or a token of this user. An API key without `read` gets no body.
// @Accept json
// @Produce json
// @Param namespace path string true "namespace"
// @Param user path string true "user"
// @Param Prefer header string false "preference"
// @Param body body pingBody false "When it was, if not now."
// @Success 200 {object} userResponse "The presence that results."
// @Success 204 "Recorded, if the request says `Prefer: return=minimal`, or the caller may not read here."
// @Failure 400 {object} problem "invalid_namespace, invalid_user, invalid_time, invalid_parameter, unknown_parameter, invalid_json, unknown_field"
// @Failure 401 {object} problem "unauthenticated"
// @Failure 403 {object} problem "forbidden"
// @Failure 404 {object} problem "not_found"
// @Failure 413 {object} problem "body_too_large"
// @Failure 415 {object} problem "unsupported_media_type"
// @Failure 429 {object} problem "rate_limited"
// @Failure 500 {object} problem "wrong_key_type, namespace_mismatch, internal"
// @Failure 503 {object} problem "store_unavailable, store_full, overloaded, keys_unavailable"
// @Security bearer
// @Router /v1/namespaces/{namespace}/users/{user}/ping [post]
func (s *server) ping(c echo.Context, _ query) error {
	return s.recordOne(c, s.store.Ping, s.readPing, true)
}

// readPing returns the time in the body of a ping as it was sent, or nil if it is omitted.
func (s *server) readPing(c echo.Context) (jsontext.Value, error) {
	if c.Request().Body == http.NoBody { // as in most pings; this saves an allocation
		return nil, nil
	}
	var body pingBody
	err := s.readOne(c, &body)
	return body.At, err
}
