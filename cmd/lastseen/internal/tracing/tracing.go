// Package tracing makes OpenTelemetry traces of requests and sends them to a collector.
package tracing

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/extra/redisotel/v9"
	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// flushTimeout is how long the last spans can take to be sent.
const flushTimeout = time.Second

// Options say where traces go, and of which requests. All are required.
type Options struct {
	Endpoint string // URL of a collector that accepts OTLP over HTTP
	OneIn    int    // the number of requests of which one is traced, at random; at least 1
	Version  string // of the service
	Logger   *slog.Logger
}

// Tracing makes and sends traces. A nil *Tracing makes none.
type Tracing struct {
	provider *sdk.TracerProvider
	logger   *slog.Logger
}

// New returns the tracing with these options. It connects to the collector when there is something to send. An error
// means that the exporter's environment variables are not valid.
func New(ctx context.Context, o Options) (*Tracing, error) {
	// Without retries: while they last, newer spans would be lost.
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(o.Endpoint),
		otlptracehttp.WithRetry(otlptracehttp.RetryConfig{Enabled: false}))
	if err != nil {
		return nil, err
	}
	sampler := requestSampler{o.OneIn}
	return &Tracing{logger: o.Logger, provider: sdk.NewTracerProvider(
		sdk.WithBatcher(&loggedExporter{SpanExporter: exporter, logger: o.Logger}),
		sdk.WithResource(resource.NewSchemaless(semconv.ServiceName("lastseen"), semconv.ServiceVersion(o.Version))),
		sdk.WithSampler(sdk.ParentBased(sampler,
			sdk.WithRemoteParentSampled(sampler), sdk.WithRemoteParentNotSampled(sampler))),
	)}, nil
}

// Tracer returns what makes spans; nil if tracing is off.
func (t *Tracing) Tracer() trace.Tracer {
	if t == nil {
		return nil
	}
	return t.provider.Tracer("github.com/lastseen/lastseen")
}

// Instrument makes a Redis client add spans for its commands to those of requests. The spans name commands, but not
// their arguments, which are user IDs.
func (t *Tracing) Instrument(client redis.UniversalClient) error {
	return redisotel.InstrumentTracing(client, redisotel.WithTracerProvider(t.provider),
		redisotel.WithDBStatement(false), redisotel.WithCallerEnabled(false))
}

// Close sends the spans that were not sent yet. It takes at most a second.
func (t *Tracing) Close() {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil {
		t.logger.Warn("the last traces were not sent", "error", err)
	}
}

// requestSampler records one in a number of requests, at random. It ignores what the client's traceparent asks for:
// otherwise anyone could have each of their requests recorded. Work that belongs to no request is not recorded.
type requestSampler struct{ oneIn int }

// ShouldSample implements [sdk.Sampler].
func (s requestSampler) ShouldSample(p sdk.SamplingParameters) sdk.SamplingResult {
	result := sdk.SamplingResult{Tracestate: trace.SpanContextFromContext(p.ParentContext).TraceState()}
	if p.Kind == trace.SpanKindServer && rand.IntN(s.oneIn) == 0 {
		result.Decision = sdk.RecordAndSample
	}
	return result
}

// Description implements [sdk.Sampler].
func (requestSampler) Description() string { return "one in a number of requests" }

// loggedExporter logs when spans cannot be sent, and when they can be again, instead of each failure.
type loggedExporter struct {
	sdk.SpanExporter
	logger *slog.Logger
	lost   atomic.Int64 // spans since the last success
}

// ExportSpans implements [sdk.SpanExporter].
func (e *loggedExporter) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	err := e.SpanExporter.ExportSpans(ctx, spans)
	if err == nil {
		if lost := e.lost.Swap(0); lost > 0 {
			e.logger.Info("traces can be sent again", "lost", lost)
		}
		return nil
	}
	if e.lost.Add(int64(len(spans))) == int64(len(spans)) {
		e.logger.Warn("traces cannot be sent; they are lost until the collector responds", "error", err)
	}
	return nil // logged; OpenTelemetry would log it for each batch
}
