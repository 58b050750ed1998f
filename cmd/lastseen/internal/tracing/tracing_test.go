package tracing

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
)

// failingExporter is a collector that accepts spans unless it has an error.
type failingExporter struct{ err error }

func (e *failingExporter) ExportSpans(context.Context, []sdk.ReadOnlySpan) error { return e.err }
func (e *failingExporter) Shutdown(context.Context) error                        { return nil }

// TestOutageOfCollectorIsLoggedOnce checks that the log has its begin and its end, however many spans are lost.
func TestOutageOfCollectorIsLoggedOnce(t *testing.T) {
	var log bytes.Buffer
	collector := &failingExporter{}
	e := &loggedExporter{SpanExporter: collector, logger: slog.New(slog.NewTextHandler(&log, nil))}
	export := func(spans int) {
		t.Helper()
		require.NoError(t, e.ExportSpans(t.Context(), make([]sdk.ReadOnlySpan, spans)))
	}
	export(3)
	require.Empty(t, log.String())
	for range 2 {
		log.Reset()
		collector.err = errors.New("connection refused")
		export(3)
		export(4)
		require.Equal(t, 1, strings.Count(log.String(), "\n"), log.String())
		require.Contains(t, log.String(), "connection refused")
		collector.err = nil
		export(1)
		export(1)
		require.Equal(t, 2, strings.Count(log.String(), "\n"), log.String())
		require.Contains(t, log.String(), "lost=7")
	}
}

// TestOnlyRequestsBeginTraces checks that spans of background work are not recorded, and those within requests are.
func TestOnlyRequestsBeginTraces(t *testing.T) {
	recorder := tracetest.NewSpanRecorder()
	sampler := requestSampler{1}
	provider := sdk.NewTracerProvider(sdk.WithSpanProcessor(recorder), sdk.WithSampler(sdk.ParentBased(sampler)))
	tracer := provider.Tracer("")
	_, background := tracer.Start(t.Context(), "background", trace.WithSpanKind(trace.SpanKindClient))
	background.End()
	ctx, request := tracer.Start(t.Context(), "request", trace.WithSpanKind(trace.SpanKindServer))
	_, command := tracer.Start(ctx, "command", trace.WithSpanKind(trace.SpanKindClient))
	command.End()
	request.End()
	var names []string
	for _, span := range recorder.Ended() {
		names = append(names, span.Name())
	}
	require.Equal(t, []string{"command", "request"}, names)
}
