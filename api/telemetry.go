package api

import (
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
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

// trace makes a span for each request below /v1, by the conventions of OpenTelemetry for HTTP servers. It records the
// route as a template, and neither the path, which names a user, nor addresses. The span continues the trace that the
// client's traceparent names; whether it is recorded is up to this server's sampler.
func (s *server) trace(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		request := c.Request()
		if !strings.HasPrefix(request.URL.Path, "/v1/") {
			return next(c)
		}
		ctx := propagation.TraceContext{}.Extract(request.Context(), propagation.HeaderCarrier(request.Header))
		ctx, span := s.Tracer.Start(ctx, "HTTP", trace.WithSpanKind(trace.SpanKindServer))
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
	known := []string{
		http.MethodGet, http.MethodHead, http.MethodPost, http.MethodDelete, http.MethodOptions, http.MethodPut,
		http.MethodPatch,
	}
	if slices.Contains(known, method) {
		return method
	}
	return "_OTHER"
}

// serverLog is the error log of package net/http.
type serverLog struct {
	logger   *slog.Logger
	failures *throttle
}

// serverFailures returns the prefixes of messages about failures of this server or its machine. Clients cause the other
// messages, for example by a TLS handshake that fails.
func serverFailures() []string {
	return []string{
		"http: panic serving ", "http2: panic serving ", "http: Accept error: ", "http: superfluous ",
		"http: response.Write", "http: invalid Content-Length ", "http: WriteHeader called ",
	}
}

// Write logs a message.
func (l *serverLog) Write(text []byte) (int, error) {
	message, stack, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
	for _, prefix := range serverFailures() {
		if rest, found := strings.CutPrefix(message, prefix); found {
			l.fail(prefix, rest, stack)
			return len(text), nil
		}
	}
	l.logger.Debug(message)
	return len(text), nil
}

// fail logs a failure. A panic is the same failure whichever client it was with.
func (l *serverLog) fail(prefix, rest, stack string) {
	if !strings.Contains(prefix, "panic") {
		cause, _, _ := strings.Cut(rest, ";") // "retrying in 5ms" follows
		l.failures.log(slog.LevelError, prefix+cause, prefix+cause)
		return
	}
	client, cause, _ := strings.Cut(rest, ": ")
	message := strings.TrimSuffix(prefix, "serving ") + cause
	l.failures.log(slog.LevelError, message, message, slog.String("client", client), slog.String("stack", stack))
}
