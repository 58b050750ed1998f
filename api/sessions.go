package api

import (
	"context"
	"log/slog"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/live/audience"
	"github.com/lastseen/lastseen/api/live/session"
	"github.com/lastseen/lastseen/api/live/subscription"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/store"
)

// sessions returns what WebSockets, and all who follow changes, use of the server.
func (s *server) sessions() *session.Server {
	return &session.Server{
		Server: &subscription.Server{
			Options: audience.Options{Store: s.Store, Feeds: s.Feeds, Shared: s.audience},
			Viewer:  s.viewerOf, Restricted: s.isRestricted, Limiter: &s.limiter, Load: s.load, Random: s.Random,
			Now: s.Now, Lag: s.Telemetry.ObserveLag,
		},
		Limits: s.Config.WebSockets, Connections: s.Connections, Calls: s.Keeper, Logger: s.Logger,
		Thresholds:   func(namespace string) lastseen.Thresholds { return s.settings(namespace).Thresholds },
		PingInterval: func(namespace string) time.Duration { return s.settings(namespace).PingInterval },
		CheckServed:  s.checkServed, Count: s.countNow, RetryAfter: s.retryAfter, NameOf: s.nameOf,
		Refused: s.logRefused,
		Failed: func(e *problem.Error, err error, about []slog.Attr) {
			s.logFailed(e, err, nothing, about)
		},
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
		Call: func(b []byte, c lastseen.Call) []byte {
			encoded, _ := json.Marshal(showCall(c)) // which has only names, times and JSON that was checked
			return append(b, encoded...)
		},
		Counts: func(b []byte, n map[lastseen.Status]int64, asOf lastseen.Instant) []byte {
			encoded, _ := json.Marshal(showCounts(n, asOf)) // which has only numbers and a time
			return append(b, encoded...)
		},
	}
}
