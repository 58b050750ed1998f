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

// ping records that a user is here.
func (s *server) ping(c echo.Context, _ query) error { return s.assert(c, s.store.Ping, true) }

// leave records that a user went away.
func (s *server) leave(c echo.Context, _ query) error { return s.assert(c, s.store.Leave, false) }

// assert makes one assertion about the user in the path and answers with the presence that results.
func (s *server) assert(c echo.Context, write recordFunc, again bool) error {
	namespace, user, err := namesOf(c)
	if err != nil {
		return err
	}
	var body struct {
		At jsontext.Value `json:"at"`
	}
	if _, err := readJSON(c, &body); err != nil {
		return err
	}
	ctx := c.Request().Context()
	now, err := s.store.Now(ctx)
	if err != nil {
		return err
	}
	at, err := parseAt(body.At, now)
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
	if prefersMinimal(c.Request()) {
		return minimal(c, pingAfter)
	}
	return answer(c, userAnswer{
		presence: presenceOf(settings.Thresholds.Presence(user, states[0], now)),
		AsOf:     timestamp(now), PingAfterMs: pingAfter,
	})
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
	header.Set("Preference-Applied", "return=minimal")
	if pingAfter > 0 {
		header.Set(pingAfterHeader, strconv.FormatInt(pingAfter, 10))
	}
	return c.NoContent(http.StatusNoContent)
}

// forgetUser erases a user.
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
func (s *server) getUser(c echo.Context, q query) error {
	namespace, user, err := namesOf(c)
	if err != nil {
		return err
	}
	asOf, thresholds, err := s.evaluation(c, namespace, q)
	if err != nil {
		return err
	}
	states, err := s.store.Lookup(c.Request().Context(), namespace, []string{user})
	if err != nil {
		return err
	}
	found := presenceOf(thresholds.Presence(user, states[0], asOf))
	return answerCached(c, userAnswer{presence: found, AsOf: timestamp(asOf)}, timestamp(asOf), found)
}

// evaluation returns the instant and the thresholds by which a lookup is evaluated.
func (s *server) evaluation(c echo.Context, namespace string, q query) (lastseen.Instant, lastseen.Thresholds, error) {
	thresholds, err := q.thresholds(s.settings(namespace))
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
