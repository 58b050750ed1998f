package api

import (
	"net/http"

	"github.com/labstack/echo/v4"
)

// getUser returns the presence of a user.
//
// @ID getUser
// @Tags Reading
// @Summary Look up one user
// @Description A user never seen is no error: they are grey, and `last_seen` is null.
// @Description
// @Description The answer may be cached for as long as `Cache-Control` says, at most 5 seconds, and never past `valid_until`.
// @Description
// @Description Needs the scope `read`.
// @Produce json
// @Param namespace path string true "namespace"
// @Param user path string true "user"
// @Param as_of query string false "instant of evaluation"
// @Param green query string false "green threshold"
// @Param yellow query string false "yellow threshold"
// @Param If-None-Match header string false "ETag of an older answer"
// @Success 200 {object} userResponse "The presence of the user."
// @Success 304 "Nothing changed since the answer that `If-None-Match` names."
// @Failure 400 {object} problem "invalid_namespace, invalid_user, invalid_time, invalid_duration, invalid_thresholds, invalid_parameter, unknown_parameter"
// @Failure 401 {object} problem "unauthenticated"
// @Failure 403 {object} problem "forbidden"
// @Failure 404 {object} problem "not_found"
// @Failure 429 {object} problem "rate_limited"
// @Failure 500 {object} problem "wrong_key_type, namespace_mismatch, internal"
// @Failure 503 {object} problem "store_unavailable, overloaded, keys_unavailable"
// @Security bearer
// @Router /v1/namespaces/{namespace}/users/{user} [get]
func (s *server) getUser(c echo.Context, q query) error {
	namespace, user, err := pathNames(c)
	if err != nil {
		return err
	}
	v, err := s.view(c, namespace, q)
	if err != nil {
		return err
	}
	states, err := s.store.Lookup(c.Request().Context(), namespace, []string{user})
	if err != nil {
		return err
	}
	response := userResponse{presence: v.presence(user, states[0]), evaluated: v.evaluated()}
	return respondCached(c, response, response.evaluated, response.presence)
}

// forgetUser deletes a user.
//
// @ID forgetUser
// @Tags Erasing
// @Summary Forget a user
// @Description Erases a user from every answer, at once and across a crash. Forgetting someone unknown is no error. Their next ping makes them known again.
// @Description
// @Description Needs the scope `admin`.
// @Produce json
// @Param namespace path string true "namespace"
// @Param user path string true "user"
// @Success 204 "Forgotten."
// @Failure 400 {object} problem "invalid_namespace, invalid_user, invalid_parameter, unknown_parameter"
// @Failure 401 {object} problem "unauthenticated"
// @Failure 403 {object} problem "forbidden"
// @Failure 429 {object} problem "rate_limited"
// @Failure 500 {object} problem "wrong_key_type, namespace_mismatch, internal"
// @Failure 503 {object} problem "store_unavailable, store_full, overloaded, keys_unavailable"
// @Security bearer
// @Router /v1/namespaces/{namespace}/users/{user} [delete]
func (s *server) forgetUser(c echo.Context, _ query) error {
	namespace, user, err := pathNames(c)
	if err != nil {
		return err
	}
	if err := s.store.Forget(c.Request().Context(), namespace, user); err != nil {
		return err
	}
	return c.NoContent(http.StatusNoContent)
}
