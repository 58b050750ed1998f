package telemetry

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/lastseen/lastseen/api/problem"
)

// otherLabel stands for all methods and all paths that are not served.
const otherLabel = "other"

// requestMetrics count requests and measure their time.
type requestMetrics struct {
	now        func() time.Duration // since some moment: half the cost of the time of day, twice a request
	total      *prometheus.CounterVec
	duration   *prometheus.HistogramVec
	inProgress atomic.Int64
	endpoints  map[[2]string]*endpoint // by method and route, of all label values; not modified
}

// Route is one method of a path.
type Route struct {
	Method, Path string
	Records      bool // whether each request records one event
	Event        Event
}

// endpoint counts the requests to one route with one method. A time series is made when it is first needed.
type endpoint struct {
	method, route string
	total         [outcomes]atomic.Pointer[prometheus.Counter]
	duration      atomic.Pointer[prometheus.Observer]
	refused       prometheus.Counter // of the events that the requests record, one each; nil for other routes
}

// outcome is how a request ended: 0 to 3 for the status classes 2xx to 5xx.
type outcome int

const (
	failed   outcome = 3 // 5xx
	canceled outcome = 4 // the client closed the connection, or read too slowly
	outcomes         = 5
)

func newRequestMetrics(f factory, routes []Route) *requestMetrics {
	start := time.Now()
	m := &requestMetrics{
		now:   func() time.Duration { return time.Since(start) },
		total: f.counters("lastseen_http_requests_total", "Requests served.", "method", "route", "status"),
		duration: f.histograms("lastseen_http_request_duration_seconds",
			"Time from the request's header to the end of the response, without waiting for changes.",
			[]float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10}, "method", "route"),
		endpoints: map[[2]string]*endpoint{},
	}
	f.gauge("lastseen_http_requests_in_progress", "Requests being served now.", &m.inProgress)
	for _, method := range []string{
		http.MethodGet, http.MethodHead, http.MethodPost, http.MethodDelete, http.MethodOptions, otherLabel,
	} {
		for _, r := range append(routes, Route{Path: otherLabel}) {
			m.endpoints[[2]string{method, r.Path}] = &endpoint{method: method, route: r.Path}
		}
	}
	return m
}

// endpoint returns the endpoint of a request.
func (m *requestMetrics) endpoint(method, path string) *endpoint {
	for _, key := range [][2]string{{method, path}, {otherLabel, path}, {method, otherLabel}} {
		if e, ok := m.endpoints[key]; ok {
			return e
		}
	}
	return m.endpoints[[2]string{otherLabel, otherLabel}]
}

// Measure calls the next handler and counts the request, without the time in which it only waited for changes. It
// handles an error itself, because the metrics have the status of the response. A panic that remains is counted, too.
func (m *Metrics) Measure(c echo.Context, next echo.HandlerFunc) error {
	r, began := m.requests, m.requests.now()
	r.inProgress.Add(1)
	result, refused := failed, true
	defer func() {
		r.inProgress.Add(-1)
		r.count(r.endpoint(c.Request().Method, c.Path()), result, refused, r.now()-began-heldTime(c))
	}()
	err := next(c)
	if err != nil {
		c.Error(err)
	}
	result, refused = outcomeOf(c, err)
	return nil
}

// outcomeOf returns how a request ended, and whether what it should record was refused. If only the response could not
// be sent, it was not.
func outcomeOf(c echo.Context, err error) (result outcome, refused bool) {
	if err != nil && ClientGone(err, c) {
		return canceled, !errors.Is(err, problem.ErrNotSent)
	}
	return min(max(outcome(c.Response().Status/100-2), 0), failed), err != nil
}

// ClientGone reports whether the request failed only because its client closed the connection or reads too slowly.
func ClientGone(err error, c echo.Context) bool {
	return errors.Is(err, problem.ErrNotSent) || errors.Is(err, context.Canceled) && c.Request().Context().Err() != nil
}

// count counts a request.
func (m *requestMetrics) count(e *endpoint, result outcome, refused bool, took time.Duration) {
	total := e.total[result].Load()
	if total == nil {
		labels := [outcomes]string{"2xx", "3xx", "4xx", "5xx", "canceled"}
		made := m.total.WithLabelValues(e.method, e.route, labels[result])
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

// Trace makes a span for each request below /v1, by the conventions of OpenTelemetry for HTTP servers. It records the
// route as a template, and neither the path, which names a user, nor addresses. The span continues the trace that the
// client's traceparent names; whether it is recorded is up to this server's sampler.
func Trace(tracer trace.Tracer) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			request := c.Request()
			if !strings.HasPrefix(request.URL.Path, "/v1/") {
				return next(c)
			}
			ctx := propagation.TraceContext{}.Extract(request.Context(), propagation.HeaderCarrier(request.Header))
			ctx, span := tracer.Start(ctx, "HTTP", trace.WithSpanKind(trace.SpanKindServer))
			if !span.IsRecording() {
				return next(c)
			}
			defer span.End()
			c.SetRequest(request.WithContext(ctx))
			if err := next(c); err != nil {
				c.Error(err) // now, because the span needs the status; not returned, or it would be handled twice
			}
			describe(span, c)
			return nil
		}
	}
}

// describe names the span of a request that was served.
func describe(span trace.Span, c echo.Context) {
	method, status := c.Request().Method, c.Response().Status
	span.SetName(strings.TrimSpace(knownMethod(method) + " " + c.Path()))
	span.SetAttributes(
		semconv.HTTPRequestMethodKey.String(knownMethod(method)),
		semconv.HTTPRoute(c.Path()),
		semconv.HTTPResponseStatusCode(status),
	)
	if status >= http.StatusInternalServerError {
		span.SetStatus(codes.Error, "")
	}
}

// knownMethod returns the method of a request, or _OTHER for methods that a client made up.
func knownMethod(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodDelete, http.MethodOptions, http.MethodPut,
		http.MethodPatch:
		return method
	default:
		return "_OTHER"
	}
}
