package api

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/labstack/echo/v4"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// pingAfterHeader carries the advice when to ping next, in milliseconds, where there is no body.
const pingAfterHeader = "Lastseen-Ping-After-Ms"

// assertion is when something was asserted.
type assertion struct {
	At jsontext.Value `json:"at" swaggertype:"string" validate:"optional"`
} // @name Assertion

// goodbye is when a user went away, and whose word that is.
type goodbye struct {
	At jsontext.Value `json:"at" swaggertype:"string" validate:"optional"`
	// A JWT of the user, for a page that closes and can send no headers. With the header Authorization, and on a
	// server that asks nobody, it is passed over.
	Token string `json:"token" validate:"optional"`
} // @name Goodbye

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
// @Param body body assertion false "When it was, if not now."
// @Success 200 {object} userAnswer "The presence that results."
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
	return s.assert(c, s.store.Ping, (*server).readAt, true)
}

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
// @Param body body goodbye false "When it was, if not now."
// @Success 200 {object} userAnswer "The presence that results."
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
	return s.assert(c, s.store.Leave, (*server).readGoodbye, false)
}

// assert makes one assertion about the user in the path, for the time that it reads from the body, and answers with
// the presence that results.
func (s *server) assert(c echo.Context, write recordFunc, read func(*server, echo.Context) (jsontext.Value, error), again bool) error {
	namespace, user, err := namesOf(c)
	if err != nil {
		return err
	}
	raw, err := read(s, c)
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	now, err := s.store.Now(ctx)
	if err != nil {
		return err
	}
	at, err := parseAt(raw, now)
	if err != nil {
		return err
	}
	states, err := write(ctx, namespace, []store.Sighting{{User: user, At: at}})
	if err != nil {
		return err
	}
	settings := s.settings(namespace)
	var pingAfter int64
	if again {
		pingAfter = s.pingAfter(settings)
	}
	if prefersMinimal(c.Request()) || callerOf(c).IsBlind(namespace) {
		return minimal(c, pingAfter)
	}
	return answer(c, userAnswer{
		presence:    presenceOf(settings.Thresholds.Presence(user, states[0], now)),
		evaluated:   evaluatedAt(now, settings.Thresholds),
		PingAfterMs: pingAfter,
	})
}

// readAt returns the time in the body of a ping, as it was sent; nothing if there is none.
func (s *server) readAt(c echo.Context) (jsontext.Value, error) {
	if c.Request().Body == http.NoBody {
		return nil, nil // as in most pings
	}
	var body assertion
	err := s.readOne(c, &body)
	return body.At, err
}

// readGoodbye returns the time in the body of a leave likewise. A caller who is not known so far has to be the one whose
// token is beside it: what a page sends while it closes, by navigator.sendBeacon, has a body but no headers of its own.
func (s *server) readGoodbye(c echo.Context) (jsontext.Value, error) {
	var body goodbye
	if c.Request().Body != http.NoBody {
		if err := s.readOne(c, &body); err != nil {
			return nil, err
		}
	}
	if callerOf(c).IsAnonymous() {
		return body.At, s.authorizeToken(c, body.Token)
	}
	return body.At, nil
}

// pingAfter is the ping interval in milliseconds, times 0.8 to 1 by chance: clients that started
// together drift apart.
func (s *server) pingAfter(settings Settings) int64 {
	return max(1, int64(float64(settings.PingInterval.Milliseconds())*(0.8+0.2*s.random())))
}

// prefersMinimal reports whether the caller does without a body: see RFC 7240.
func prefersMinimal(r *http.Request) bool {
	for _, header := range r.Header.Values("Prefer") {
		for preference := range strings.SplitSeq(header, ",") {
			preference, _, _ = strings.Cut(preference, ";")
			name, value, _ := strings.Cut(strings.ReplaceAll(preference, " ", ""), "=")
			if strings.EqualFold(name, "return") && strings.Trim(value, `"`) == "minimal" {
				return true
			}
		}
	}
	return false
}

func minimal(c echo.Context, pingAfter int64) error {
	header := c.Response().Header()
	header["Preference-Applied"] = minimalDone
	if pingAfter > 0 {
		header.Set(pingAfterHeader, strconv.FormatInt(pingAfter, 10))
	}
	return c.NoContent(http.StatusNoContent)
}

// forgetUser erases a user.
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
	namespace, user, err := namesOf(c)
	if err != nil {
		return err
	}
	if err := s.store.Forget(c.Request().Context(), namespace, user); err != nil {
		return err
	}
	return c.NoContent(http.StatusNoContent)
}

// getUser answers with one user's presence.
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
// @Success 200 {object} userAnswer "The presence of the user."
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
	namespace, user, err := namesOf(c)
	if err != nil {
		return err
	}
	asOf, thresholds, err := s.evaluate(c, namespace, q)
	if err != nil {
		return err
	}
	states, err := s.store.Lookup(c.Request().Context(), namespace, []string{user})
	if err != nil {
		return err
	}
	found, by := presenceOf(thresholds.Presence(user, states[0], asOf)), evaluatedAt(asOf, thresholds)
	return answerCached(c, userAnswer{presence: found, evaluated: by}, by, found)
}

// evaluate returns the instant and the thresholds by which a lookup is evaluated.
func (s *server) evaluate(c echo.Context, namespace string, q query) (lastseen.Instant, lastseen.Thresholds, error) {
	thresholds, err := q.thresholds(s.settings(namespace).Thresholds)
	if err != nil {
		return 0, thresholds, err
	}
	if _, given := q.get("as_of"); given {
		asOf, err := q.time("as_of", 0)
		return asOf, thresholds, err
	}
	now, err := s.store.Now(c.Request().Context())
	return now, thresholds, err
}
