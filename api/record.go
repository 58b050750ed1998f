package api

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/guard"
	"github.com/lastseen/lastseen/api/request"
	"github.com/lastseen/lastseen/api/telemetry"
	"github.com/lastseen/lastseen/store"
)

// record records a batch of events in the store, and counts them by result. It returns the resulting states if all are
// of no device, or all of devices. Those of devices are first, since the store can refuse them all.
func (s *server) record(
	ctx context.Context, e telemetry.Event, namespace string, b *batch,
) (states []lastseen.State, err error) {
	if err := s.checkLater(ctx, namespace, b); err != nil {
		return nil, err
	}
	if len(b.devices) > 0 {
		settings := s.settings(namespace)
		window := lastseen.DeviceWindow(settings.Thresholds, settings.PingInterval)
		if states, err = s.Store.RecordDevices(ctx, namespace, window, b.devices); err != nil {
			return nil, err
		}
		s.recorded(e, namespace, states, func(i int) lastseen.Instant { return b.devices[i].At })
	}
	if len(b.plain) > 0 {
		if e == telemetry.Ping {
			states, err = s.Store.Ping(ctx, namespace, b.plain)
		} else {
			states, err = s.Store.Leave(ctx, namespace, b.plain)
		}
		if err != nil {
			return nil, err
		}
		s.recorded(e, namespace, states, func(i int) lastseen.Instant { return b.plain[i].At })
	}
	if len(b.later) == 0 { // as in most: this saves allocations
		return states, nil
	}
	if err := s.Connections.Later(ctx, b.later...); err != nil {
		return nil, err
	}
	s.Telemetry.Accepted(e, len(b.later))
	return states, nil
}

// recorded counts events that were recorded, given the resulting states and the time of each event.
func (s *server) recorded(
	e telemetry.Event, namespace string, states []lastseen.State, at func(i int) lastseen.Instant,
) {
	superseded, left := 0, 0
	for i, state := range states {
		switch {
		case state.Compare(lastseen.State{At: at(i), Left: e == telemetry.Leave}) > 0:
			superseded++
		case state.Left: // not if another device is live
			left++
		}
	}
	s.Telemetry.Recorded(e, namespace, len(states), superseded, left)
}

// checkLater returns an error if a batch has leaves of devices that wait, and the namespace cannot have devices. After
// the wait, no client would learn of it.
func (s *server) checkLater(ctx context.Context, namespace string, b *batch) error {
	for _, departure := range b.later {
		if departure.ID == "" {
			continue
		}
		if _, err := s.Store.ReadDevices(ctx, namespace, departure.User); errors.Is(err, store.ErrNoDevices) {
			return err
		}
		return nil // a store that is unavailable now can be back then
	}
	return nil
}

// recordOne records an event of a user, and returns the resulting presence. The function read reads the body.
func (s *server) recordOne(
	c echo.Context, namespace, user string, e telemetry.Event, read func(echo.Context) (request.Event, error),
) error {
	body, err := read(c)
	if err != nil {
		return err
	}
	ctx := c.Request().Context()
	now, err := s.Store.Now(ctx)
	if err != nil {
		return err
	}
	var b batch
	if err := b.add(e, namespace, user, body, now); err != nil {
		return err
	}
	states, err := s.record(ctx, e, namespace, &b)
	if err != nil {
		return err
	}
	if len(b.later) > 0 {
		return c.NoContent(http.StatusAccepted)
	}
	settings := s.settings(namespace)
	var pingAfter int64
	if e == telemetry.Ping {
		pingAfter = s.pingAfter(settings)
	}
	if request.PrefersMinimal(c.Request()) || guard.CallerOf(c).IsBlind(namespace) {
		return request.RespondMinimal(c, pingAfter)
	}
	v := view{now, settings.Thresholds, now}
	return request.Respond(c, userResponse{v.presence(user, states[0], nil), v.evaluated(), pingAfter})
}

// pingAfter returns when to ping next: 80 % to 100 % of the ping interval, which load stretches, at random, in
// milliseconds. Clients that start together drift apart.
func (s *server) pingAfter(settings Settings) int64 {
	interval := settings.stretched(s.load.Stretch())
	return max(1, int64(float64(interval.Milliseconds())*(0.8+0.2*s.Random())))
}

// stretched returns the ping interval to advise: the setting, or more of the room up to half of green, so that a user
// stays green even if a ping is lost.
func (s Settings) stretched(part float64) time.Duration {
	room := max(0, s.Thresholds.Green/2-s.PingInterval)
	return s.PingInterval + time.Duration(part*float64(room))
}

// maxFactor returns the largest factor by which the ping interval is stretched.
func (s Settings) maxFactor() float64 {
	if s.PingInterval <= 0 {
		return 1
	}
	return float64(s.stretched(1)) / float64(s.PingInterval)
}
