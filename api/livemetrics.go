package api

import (
	"context"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/live/transport"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/store/feed"
)

// delivery is how changes get to a client that waits for them.
type delivery int

// The deliveries.
const (
	longPoll delivery = iota
	events
	webSocket
	callPoll // a long poll for the calls of a user
	deliveries
)

// changesMetrics are about requests that wait for changes.
type changesMetrics struct {
	open [deliveries]atomic.Int64
	lag  prometheus.Histogram
}

func newChangesMetrics(register promauto.Factory) *changesMetrics {
	m := &changesMetrics{lag: register.NewHistogram(withNativeBuckets(prometheus.HistogramOpts{
		Name:    "lastseen_changes_delivery_lag_seconds",
		Help:    "Time from recording a change to writing it to a client that was waiting.",
		Buckets: []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
	}))}
	labels := [deliveries]string{longPoll: "long_poll", events: "sse", webSocket: "websocket", callPoll: "calls"}
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

// socketMetrics are about WebSockets. Methods of [metrics] count; those of a nil *metrics have no effect.
type socketMetrics struct {
	open   atomic.Int64
	limit  atomic.Int64
	opened prometheus.Counter
	closed map[int]prometheus.Counter // by close code; 0 for others
	in     prometheus.Counter
	out    prometheus.Counter
	slow   prometheus.Counter
	typing [2]prometheus.Counter // sent by users who are not invisible; delivered to connections
}

// usualCloseCodes are the close codes that are counted separately besides those of errors.
func usualCloseCodes() []int {
	return []int{1000, 1001, transport.CodeProtocol, 1005, transport.CodeBroken}
}

func newSocketMetrics(register promauto.Factory) *socketMetrics {
	frames := register.NewCounterVec(prometheus.CounterOpts{
		Name: "lastseen_websocket_frames_total",
		Help: "Frames of WebSockets: those received with pings and pongs, those sent without.",
	}, []string{"direction"})
	closed := register.NewCounterVec(prometheus.CounterOpts{
		Name: "lastseen_websockets_closed_total", Help: "WebSockets that ended, by close code, sent or received.",
	}, []string{"code"})
	m := &socketMetrics{
		opened: register.NewCounter(prometheus.CounterOpts{
			Name: "lastseen_websockets_opened_total", Help: "WebSockets opened.",
		}),
		closed: map[int]prometheus.Counter{0: closed.WithLabelValues(otherLabel)},
		in:     frames.WithLabelValues("in"), out: frames.WithLabelValues("out"),
		slow: register.NewCounter(prometheus.CounterOpts{
			Name: "lastseen_websocket_slow_readers_total",
			Help: "WebSockets closed because the client received nothing for too long.",
		}),
	}
	typing := register.NewCounterVec(prometheus.CounterOpts{
		Name: "lastseen_websocket_typing_total",
		Help: "Frames typing: those sent by clients of this server, and those delivered to them.",
	}, []string{"direction"})
	m.typing[0], m.typing[1] = typing.WithLabelValues("in"), typing.WithLabelValues("out")
	register.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "lastseen_websockets", Help: "WebSockets that are open, those without a user included.",
	}, func() float64 { return float64(m.open.Load()) })
	register.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "lastseen_websockets_limit", Help: "WebSockets that can be open at the same time; 0 for no limit.",
	}, func() float64 { return float64(m.limit.Load()) })
	for _, code := range usualCloseCodes() {
		m.closed[code] = closed.WithLabelValues(strconv.Itoa(code))
	}
	for _, status := range []int{400, 401, 403, 404, 408, 409, 410, 413, 429, 500, 503} {
		code := problem.CloseCodes + status
		m.closed[code] = closed.WithLabelValues(strconv.Itoa(code))
	}
	return m
}

func (m *metrics) socketOpened() {
	if m != nil {
		m.sockets.open.Add(1)
		m.sockets.opened.Inc()
	}
}

func (m *metrics) socketClosed(code int) {
	if m == nil {
		return
	}
	m.sockets.open.Add(-1)
	counter := m.sockets.closed[code]
	if counter == nil { // a client can send any code
		counter = m.sockets.closed[0]
	}
	counter.Inc()
}

func (m *metrics) frameReceived() {
	if m != nil {
		m.sockets.in.Inc()
	}
}

func (m *metrics) frameSent() {
	if m != nil {
		m.sockets.out.Inc()
	}
}

func (m *metrics) typingSent() {
	if m != nil {
		m.sockets.typing[0].Inc()
	}
}

func (m *metrics) typingDelivered() {
	if m != nil {
		m.sockets.typing[1].Inc()
	}
}

func (m *metrics) slowReader() {
	if m != nil {
		m.sockets.slow.Inc()
	}
}

// follows counts sessions that follow changes.
func (m *metrics) follows(n int64) {
	if m != nil {
		m.changes.open[webSocket].Add(n)
	}
}
