package api

import (
	"github.com/go-json-experiment/json/jsontext"
	"github.com/labstack/echo/v4"
)

// leaveBody is the JSON of a leave.
type leaveBody struct {
	At jsontext.Value `json:"at" swaggertype:"string" validate:"optional"`
	// A JWT of the user, for a page that closes and can send no headers. With the header Authorization, and on a
	// server that asks nobody, it is passed over.
	Token string `json:"token" validate:"optional"`
} // @name Goodbye

// leave records that a user went away.
//
// @ID leaveUser
// @Tags Recording
// @Summary Record that a user went away
// @Description The user is grey at once, and this moment becomes their last seen time. The next ping brings them back, also one from another device.
// @Description
// @Description A leave is about the user, in all tabs and on all devices. Send it when the user signs out, not whenever a page closes: a user who closes one of two tabs would be grey until the next ping of the other.
// @Description
// @Description A leave older than what is stored changes nothing. A leave of a user never seen is recorded, too, so the order in which pings and leaves arrive does not matter. The body is optional.
// @Description
// @Description Needs the scope `ping`, or a token of this user. A page that closes may put the token into the body, since `navigator.sendBeacon` sends no headers of its own.
// @Accept json
// @Produce json
// @Param namespace path string true "namespace"
// @Param user path string true "user"
// @Param Prefer header string false "preference"
// @Param body body leaveBody false "When it was, if not now."
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
// @Router /v1/namespaces/{namespace}/users/{user}/leave [post]
func (s *server) leave(c echo.Context, _ query) error {
	return s.recordOne(c, s.store.Leave, s.readLeave, false)
}

// readLeave returns the time in the body of a leave as it was sent, or nil if it is omitted. It authorizes an anonymous
// caller by the token in the body: navigator.sendBeacon, which a closing page uses, cannot set headers.
func (s *server) readLeave(c echo.Context) (jsontext.Value, error) {
	var body leaveBody
	if err := s.readOne(c, &body); err != nil {
		return nil, err
	}
	if callerOf(c).IsAnonymous() {
		return body.At, s.authorizeToken(c, byBeacon, body.Token)
	}
	return body.At, nil
}
