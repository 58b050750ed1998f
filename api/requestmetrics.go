package api

import (
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// otherLabel stands for all methods and all paths that are not served.
const otherLabel = "other"

// requestMetrics count requests and measure their time.
type requestMetrics struct {
	now        func() time.Duration // since some moment: half the cost of the time of day, twice a request
	total      *prometheus.CounterVec
	duration   *prometheus.HistogramVec
	inProgress atomic.Int64
	endpoints  map[endpointKey]*endpoint // of all label values; not modified
}

type endpointKey struct{ method, route string }

// endpoint counts the requests to one route with one method. A time series is made when it is first needed.
type endpoint struct {
	endpointKey
	total    [outcomes]atomic.Pointer[prometheus.Counter]
	duration atomic.Pointer[prometheus.Observer]
	refused  prometheus.Counter // of the events that the requests record, one each; nil for other routes
}

// outcome is how a request ended: 0 to 3 for the status classes 2xx to 5xx.
type outcome int

const (
	failed   outcome = 3 // 5xx
	canceled outcome = 4 // the client closed the connection, or read too slowly
	outcomes         = 5
)

func outcomeLabels() [outcomes]string { return [...]string{"2xx", "3xx", "4xx", "5xx", "canceled"} }

// methodLabels returns the methods that are counted separately.
func methodLabels() []string {
	return []string{
		http.MethodGet, http.MethodHead, http.MethodPost, http.MethodDelete, http.MethodOptions, otherLabel,
	}
}

func newRequestMetrics(register promauto.Factory, routes []route) *requestMetrics {
	start := time.Now()
	m := &requestMetrics{
		now: func() time.Duration { return time.Since(start) },
		total: register.NewCounterVec(prometheus.CounterOpts{
			Name: "lastseen_http_requests_total", Help: "Requests served.",
		}, []string{"method", "route", "status"}),
		duration: register.NewHistogramVec(withNativeBuckets(prometheus.HistogramOpts{
			Name:    "lastseen_http_request_duration_seconds",
			Help:    "Time from the request's header to the end of the response, without waiting for changes.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10},
		}), []string{"method", "route"}),
		endpoints: map[endpointKey]*endpoint{},
	}
	register.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "lastseen_http_requests_in_progress", Help: "Requests being served now.",
	}, func() float64 { return float64(m.inProgress.Load()) })
	for _, method := range methodLabels() {
		for _, r := range append(routes, route{path: otherLabel}) {
			key := endpointKey{method, r.path}
			m.endpoints[key] = &endpoint{endpointKey: key}
		}
	}
	return m
}

// endpoint returns the endpoint of a request.
func (m *requestMetrics) endpoint(method, path string) *endpoint {
	if e, ok := m.endpoints[endpointKey{method, path}]; ok {
		return e
	}
	if _, ok := m.endpoints[endpointKey{method, otherLabel}]; !ok {
		method = otherLabel
	}
	if _, ok := m.endpoints[endpointKey{method, path}]; !ok {
		path = otherLabel
	}
	return m.endpoints[endpointKey{method, path}]
}

// measure calls the next handler and counts the request, without the time in which it only waited for changes. It
// handles an error itself, because the metrics have the status of the response. A panic that remains is counted, too.
func (m *requestMetrics) measure(c echo.Context, next echo.HandlerFunc) {
	began := m.now()
	m.inProgress.Add(1)
	result, refused := failed, true
	defer func() {
		m.inProgress.Add(-1)
		m.count(m.endpoint(c.Request().Method, c.Path()), result, refused, m.now()-began-heldTime(c))
	}()
	err := next(c)
	if err != nil {
		c.Error(err)
	}
	result, refused = outcomeOf(c, err)
}

// outcomeOf returns how a request ended, and whether what it should record was refused. If only the response could not
// be sent, it was not.
func outcomeOf(c echo.Context, err error) (result outcome, refused bool) {
	if err != nil && clientGone(err, c) {
		return canceled, !errors.Is(err, errNotSent)
	}
	return min(max(outcome(c.Response().Status/100-2), 0), failed), err != nil
}

// count counts a request.
func (m *requestMetrics) count(e *endpoint, result outcome, refused bool, took time.Duration) {
	total := e.total[result].Load()
	if total == nil {
		made := m.total.WithLabelValues(e.method, e.route, outcomeLabels()[result])
		total = &made
		e.total[result].Store(total)
	}
	(*total).Inc()
	duration := e.duration.Load()
	if duration == nil {
		made := m.duration.WithLabelValues(e.method, e.route)
		duration = &made
		e.duration.Store(duration)
	}
	(*duration).Observe(took.Seconds())
	if refused && e.refused != nil {
		e.refused.Inc()
	}
}
