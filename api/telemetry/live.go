package telemetry

import (
	"cmp"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lastseen/lastseen/api/problem"
)

// Delivery is how changes get to a client that waits for them.
type Delivery int

// The deliveries.
const (
	LongPoll Delivery = iota
	ServerSentEvents
	webSocket
	CallPoll // a long poll for the calls of a user
	deliveries
)

// changesMetrics are about requests that wait for changes.
type changesMetrics struct {
	open [deliveries]atomic.Int64
	lag  prometheus.Observer
}

func newChangesMetrics(f factory) *changesMetrics {
	m := &changesMetrics{lag: f.histograms("lastseen_changes_delivery_lag_seconds",
		"Time from recording a change to writing it to a client that was waiting.",
		[]float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}).WithLabelValues()}
	for t, label := range [deliveries]string{
		LongPoll: "long_poll", ServerSentEvents: "sse", webSocket: "websocket", CallPoll: "calls",
	} {
		f.NewGaugeFunc(prometheus.GaugeOpts{
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

// ObserveLag observes how long after a change it was written to a client that waited.
func (m *Metrics) ObserveLag(lag time.Duration) {
	m.changes.lag.Observe(max(0, lag).Seconds())
}

// Hold counts a request as one that waits, and no longer as one being served, until the returned function is called.
func (m *Metrics) Hold(c echo.Context, t Delivery) (release func()) {
	began := m.requests.now()
	m.requests.inProgress.Add(-1)
	m.changes.open[t].Add(1)
	return func() {
		m.changes.open[t].Add(-1)
		m.requests.inProgress.Add(1)
		c.Set(heldKey, heldTime(c)+m.requests.now()-began)
	}
}

// socketEvent is something on a WebSocket that is counted.
type socketEvent int

// The events of WebSockets.
const (
	FrameReceived   socketEvent = iota // or a ping or pong
	FrameSent                          // without these
	TypingSent                         // by a user who is not invisible
	TypingDelivered                    // to a connection
	SlowReader                         // a WebSocket closed because the client received nothing for too long
	socketEvents
)

// socketMetrics are about WebSockets.
type socketMetrics struct {
	open, limit atomic.Int64
	opened      prometheus.Counter
	closed      map[int]prometheus.Counter // by close code; 0 for others
	events      [socketEvents]prometheus.Counter
}

func newSocketMetrics(f factory) *socketMetrics {
	frames := f.counters("lastseen_websocket_frames_total",
		"Frames of WebSockets: those received with pings and pongs, those sent without.", "direction")
	typing := f.counters("lastseen_websocket_typing_total",
		"Frames typing: those sent by clients of this server, and those delivered to them.", "direction")
	slow := f.counters("lastseen_websocket_slow_readers_total",
		"WebSockets closed because the client received nothing for too long.")
	closed := f.counters("lastseen_websockets_closed_total",
		"WebSockets that ended, by close code, sent or received.", "code")
	m := &socketMetrics{
		opened: f.counters("lastseen_websockets_opened_total", "WebSockets opened.").WithLabelValues(),
		closed: map[int]prometheus.Counter{0: closed.WithLabelValues(otherLabel)},
		events: [socketEvents]prometheus.Counter{
			FrameReceived: frames.WithLabelValues("in"), FrameSent: frames.WithLabelValues("out"),
			TypingSent: typing.WithLabelValues("in"), TypingDelivered: typing.WithLabelValues("out"),
			SlowReader: slow.WithLabelValues(),
		},
	}
	f.gauge("lastseen_websockets", "WebSockets that are open, those without a user included.", &m.open)
	f.gauge("lastseen_websockets_limit", "WebSockets that can be open at the same time; 0 for no limit.", &m.limit)
	codes := []int{1000, 1001, 1002, 1005, 1006} // usual ones of RFC 6455, and those of errors
	for _, status := range []int{400, 401, 403, 404, 408, 409, 410, 413, 429, 500, 503} {
		codes = append(codes, problem.CloseCodes+status)
	}
	for _, code := range codes {
		m.closed[code] = closed.WithLabelValues(strconv.Itoa(code))
	}
	return m
}

// SocketOpened counts a WebSocket that opened.
func (m *Metrics) SocketOpened() {
	m.sockets.open.Add(1)
	m.sockets.opened.Inc()
}

// SocketClosed counts a WebSocket that ended with a close code.
func (m *Metrics) SocketClosed(code int) {
	m.sockets.open.Add(-1)
	cmp.Or(m.sockets.closed[code], m.sockets.closed[0]).Inc() // a client can send any code
}

// CountSocket counts an event of a WebSocket.
func (m *Metrics) CountSocket(e socketEvent) { m.sockets.events[e].Inc() }

// Follows counts sessions that follow changes.
func (m *Metrics) Follows(n int64) { m.changes.open[webSocket].Add(n) }
