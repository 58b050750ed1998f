package tracing

import (
	"context"
	"log/slog"
	"sync/atomic"

	sdk "go.opentelemetry.io/otel/sdk/trace"
)

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
