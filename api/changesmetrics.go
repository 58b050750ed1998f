package api

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store/feed"
)

// transport is how changes get to a client that waits for them.
type transport int

// The transports.
const (
	longPoll transport = iota
	events
	webSocket
	callPoll // a long poll for the calls of a user
	transports
)

// changesMetrics are about requests that wait for changes.
type changesMetrics struct {
	open [transports]atomic.Int64
	lag  prometheus.Histogram
}

func newChangesMetrics(register promauto.Factory) *changesMetrics {
	m := &changesMetrics{lag: register.NewHistogram(withNativeBuckets(prometheus.HistogramOpts{
		Name:    "lastseen_changes_delivery_lag_seconds",
		Help:    "Time from recording a change to writing it to a client that was waiting.",
		Buckets: []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
	}))}
	labels := [transports]string{longPoll: "long_poll", events: "sse", webSocket: "websocket", callPoll: "calls"}
	for t, label := range labels {
		register.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "lastseen_changes_streams", Help: "Requests that wait for changes or calls now.",
			ConstLabels: prometheus.Labels{"transport": label},
		}, func() float64 { return float64(m.open[t].Load()) })
	}
	return m
}

// heldKey is the key, in the context of a request, of how long it only waited: a time.Duration.
const heldKey = "held"

// heldTime returns how long a request only waited for something to happen, which is not a sign of load.
func heldTime(c echo.Context) time.Duration {
	held, _ := c.Get(heldKey).(time.Duration)
	return held
}

// delivered observes how long changes took that were written to a client which was waiting when they were recorded.
func (w *watch) delivered(users []feed.Update) {
	w.server.delivered(w.c.Request().Context(), w.opened, users)
}

// delivered is [watch.delivered] for a client that waits since an instant.
func (s *server) delivered(ctx context.Context, opened lastseen.Instant, users []feed.Update) {
	if s.metrics == nil || len(users) == 0 {
		return
	}
	now, err := s.Store.Now(ctx)
	if err != nil {
		return // the lag is not known
	}
	for _, u := range users {
		if u.Recorded >= opened {
			s.metrics.changes.lag.Observe(float64(max(0, now-u.Recorded)) / 1000)
		}
	}
}
