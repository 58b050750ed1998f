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

// recordFunc records pings or leaves in the store.
type recordFunc func(ctx context.Context, namespace string, batch []store.Sighting) ([]lastseen.State, error)

// pingAfterHeader is the header of a response without a body that says when to ping next, in milliseconds.
const pingAfterHeader = "Lastseen-Ping-After-Ms"

// recordOne records a ping or leave of the user in the path, and returns the resulting presence. The function readAt
// reads the body and returns its field "at", or nil if that is omitted.
func (s *server) recordOne(
	c echo.Context, record recordFunc, readAt func(echo.Context) (jsontext.Value, error), withPingAfter bool,
) error {
	namespace, user, err := pathNames(c)
	if err != nil {
		return err
	}
	raw, err := readAt(c)
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	now, err := s.Store.Now(ctx)
	if err != nil {
		return err
	}
	at, err := parseAt(raw, now)
	if err != nil {
		return err
	}
	states, err := record(ctx, namespace, []store.Sighting{{User: user, At: at}})
	if err != nil {
		return err
	}
	settings := s.settings(namespace)
	var pingAfter int64
	if withPingAfter {
		pingAfter = s.pingAfter(settings)
	}
	if prefersMinimal(c.Request()) || callerOf(c).IsBlind(namespace) {
		return respondMinimal(c, pingAfter)
	}
	v := view{now, settings.Thresholds}
	return respond(c, userResponse{v.presence(user, states[0]), v.evaluated(), pingAfter})
}

// pingAfter returns when to ping next: 80 % to 100 % of the ping interval, at random, in milliseconds. Clients that
// start together drift apart.
func (s *server) pingAfter(settings Settings) int64 {
	return max(1, int64(float64(settings.PingInterval.Milliseconds())*(0.8+0.2*s.Random())))
}

// prefersMinimal reports whether the client prefers a response without a body: see RFC 7240.
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

// respondMinimal sends a response without a body.
func respondMinimal(c echo.Context, pingAfter int64) error {
	header := c.Response().Header()
	header["Preference-Applied"] = minimalDone
	if pingAfter > 0 {
		header.Set(pingAfterHeader, strconv.FormatInt(pingAfter, 10))
	}
	return c.NoContent(http.StatusNoContent)
}
