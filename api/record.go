package api

import (
	"context"
	"net/http"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/labstack/echo/v4"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// recordFunc is one of the store's two ways of recording assertions.
type recordFunc func(ctx context.Context, namespace string, batch []store.Sighting) ([]lastseen.State, error)

// pingAfterHeader carries the advice when to ping next, in milliseconds, where there is no body.
const pingAfterHeader = "Lastseen-Ping-After-Ms"

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
