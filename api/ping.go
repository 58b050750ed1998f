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
} // @name PingRequest

// goodbye is when a user went away, and whose word that is.
type goodbye struct {
	At jsontext.Value `json:"at" swaggertype:"string" validate:"optional"`
	// The user's JWT, for a page that closes and cannot set headers. Ignored if the request has the header
	// Authorization, or if the server does not authenticate.
	Token string `json:"token" validate:"optional"`
} // @name LeaveRequest

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
// @Description The body is optional. Requires the scope `ping` or the user's own token. The response has no body with
// @Description `Prefer: return=minimal`, or if an API key lacks the scope `read`.
// @Param namespace path string true "namespace"
// @Param user path string true "user"
// @Param Prefer header string false "preference"
// @Param body body assertion false "The time of the event, if it is not now."
// @Success 200 {object} userAnswer "The resulting presence."
// @Success 204 "Recorded. The request has `Prefer: return=minimal`, or the caller lacks the scope `read`."
// @Router /v1/namespaces/{namespace}/users/{user}/ping [post]
func (s *server) ping(c echo.Context, _ query) error {
	return s.assert(c, s.store.Ping, (*server).readAt, true)
}

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
// @Param body body goodbye false "The time of the event, if it is not now."
// @Success 200 {object} userAnswer "The resulting presence."
// @Success 204 "Recorded. The request has `Prefer: return=minimal`, or the caller lacks the scope `read`."
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
		return body.At, s.authorizeToken(c, byBeacon, body.Token)
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
// @ID deleteUser
// @Tags Deleting
// @Summary Delete a user
// @Description Deletes a user from all responses at once. The deletion survives a crash. Deleting an unknown user is
// @Description not an error. The next ping makes the user known again. Requires the scope `admin`.
// @Param namespace path string true "namespace"
// @Param user path string true "user"
// @Success 204 "Deleted."
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
// @Description A user never seen is not an error: they are grey, and `last_seen` is null. Requires the scope `read`.
// @Param namespace path string true "namespace"
// @Param user path string true "user"
// @Param as_of query string false "time of evaluation"
// @Param green query string false "green threshold"
// @Param yellow query string false "yellow threshold"
// @Param If-None-Match header string false "ETag of an earlier response"
// @Success 200 {object} userAnswer "The presence of the user."
// @Success 304 "Not modified since the response that `If-None-Match` names."
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
