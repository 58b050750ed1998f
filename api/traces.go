package api

import (
	"net/http"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

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
