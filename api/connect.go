package api

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/live/audience"
	"github.com/lastseen/lastseen/api/live/session"
	"github.com/lastseen/lastseen/api/live/subscription"
	"github.com/lastseen/lastseen/api/request"
	"github.com/lastseen/lastseen/store"
)

// WebSocketLimits are the limits of WebSockets on one server.
type WebSocketLimits = session.Limits

// connect upgrades a request to a WebSocket. What a browser cannot see the reason of is refused before; credentials and
// the rest are checked when the first frame has come, so that a browser can see why by the close code.
//
// @ID connect
// @Summary Connect
// @Description Opens a WebSocket over HTTP/1.1, with the subprotocol `lastseen.v1` or none. A user who holds one is
// @Description present, and the client can follow changes. The guide [Frames](../guides/frames) describes them.
// @Description
// @Description The credentials are in the header Authorization or in the first frame, and are checked then. Browsers
// @Description are accepted from the server's own origin and those of the setting cors-origins. Requires the scope
// @Description `ping` or the user's own token; to follow changes, the scope `read`.
// @Success 101 "A WebSocket."
// @Router /v1/namespaces/{namespace}/connect [get]
func (s *server) connect(c echo.Context, _ request.Query, namespace string) error {
	r, response := c.Request(), c.Response()
	if err := cmp.Or(session.CheckUpgrade(r), s.gate.Sources.CheckSocket(r)); err != nil {
		return err
	}
	taken, err := s.Open(response, r, session.Opening{
		Namespace: namespace, RequestID: response.Header().Get(echo.HeaderXRequestID),
		Address: s.gate.Limiter.Proxies.Client(r), Limited: !s.gate.Limiter.Proxies.IsLocal(r),
	})
	if taken {
		response.Status, response.Committed = http.StatusSwitchingProtocols, true // package echo must not respond
	}
	return err
}

// sessions returns what WebSockets, and all who follow changes, use of the server.
func (s *server) sessions() *session.Server {
	limits := s.Config.WebSockets //nolint:staticcheck // not the method of [session.Hub] with this name
	return &session.Server{
		Server: &subscription.Server{
			Options: audience.Options{Store: s.Store, Feeds: s.Feeds, Shared: s.audience},
			Viewer:  s.viewerOf, Restricted: s.isRestricted, Limiter: &s.gate.Limiter, Load: s.load, Random: s.Random,
			Now: s.Now, Lag: s.Telemetry.ObserveLag,
		},
		Limits: limits, Connections: s.Connections, Calls: s.Calls, Logger: s.Logger,
		Thresholds:   func(namespace string) lastseen.Thresholds { return s.settings(namespace).Thresholds },
		PingInterval: func(namespace string) time.Duration { return s.settings(namespace).PingInterval },
		CheckServed:  s.checkServed, Count: s.countNow,
	}
}

// countNow returns how many users have each status now, and when that is.
func (s *server) countNow(ctx context.Context, namespace string) (map[lastseen.Status]int64, lastseen.Instant, error) {
	now, err := s.latest(ctx, s.Store, namespace)
	if err != nil {
		return nil, 0, err
	}
	n, err := store.CountByStatus(ctx, s.Store, namespace, s.settings(namespace).Thresholds, now, 0, now)
	return n, now, err
}

// shown returns how frames show what responses show, too.
func shown() session.Show {
	return session.Show{
		Presence: func(b []byte, user string, p store.Published) []byte {
			return append(published(user, p).appendFields(append(b, '{')), '}')
		},
		Self: func(b []byte, user string, s lastseen.State, t lastseen.Thresholds, now lastseen.Instant) []byte {
			self := view{now, t, now}.presence(user, s, nil)
			self.ValidUntil = 0 // the connection lasts longer
			return self.appendFields(b)
		},
	}
}
