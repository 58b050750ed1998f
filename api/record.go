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

// event is what clients record.
type event int

// The events.
const (
	eventPing event = iota
	eventLeave
)

// record records events in the store, and counts them by result.
func (s *server) record(
	ctx context.Context, e event, namespace string, batch []store.Sighting,
) (states []lastseen.State, err error) {
	if e == eventPing {
		states, err = s.Store.Ping(ctx, namespace, batch)
	} else {
		states, err = s.Store.Leave(ctx, namespace, batch)
	}
	if err == nil {
		s.metrics.recorded(e, namespace, batch, states)
	}
	return states, err
}

// pingAfterHeader is the header of a response without a body that says when to ping next, in milliseconds.
const pingAfterHeader = "Lastseen-Ping-After-Ms"

// recordOne records an event of the user in the path, and returns the resulting presence. The function readAt reads the
// body and returns its field "at", or nil if that is omitted.
func (s *server) recordOne(c echo.Context, e event, readAt func(echo.Context) (jsontext.Value, error)) error {
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
	states, err := s.record(ctx, e, namespace, []store.Sighting{{User: user, At: at}})
	if err != nil {
		return err
	}
	settings := s.settings(namespace)
	var pingAfter int64
	if e == eventPing {
		pingAfter = s.pingAfter(settings)
	}
	if prefersMinimal(c.Request()) || callerOf(c).IsBlind(namespace) {
		return respondMinimal(c, pingAfter)
	}
	v := view{now, settings.Thresholds}
	return respond(c, userResponse{v.presence(user, states[0]), v.evaluated(), pingAfter})
}

// pingAfter returns when to ping next: 80 % to 100 % of the ping interval, which load stretches, at random, in
// milliseconds. Clients that start together drift apart.
func (s *server) pingAfter(settings Settings) int64 {
	interval := settings.stretched(s.overload.stretch())
	return max(1, int64(float64(interval.Milliseconds())*(0.8+0.2*s.Random())))
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
