package observe

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// maxLinks bounds the requests that the span of a batch is linked to.
const maxLinks = 128

// TraceBatches returns a function that makes a span for each batch that carries a recorded request; see Trace of
// [github.com/lastseen/lastseen/store/coalesce.Options]. The span belongs to the trace of the first such request. It is
// linked to the others, at most 128, and they to it: a request in another trace shows where its batch is.
func TraceBatches(
	tracer trace.Tracer,
) func(context.Context, string, []context.Context) (context.Context, func(error)) {
	return func(ctx context.Context, operation string, calls []context.Context) (context.Context, func(error)) {
		requests := recorded(calls)
		if len(requests) == 0 {
			return ctx, func(error) {}
		}
		links := make([]trace.Link, 0, len(requests)-1)
		for _, other := range requests[1:] {
			links = append(links, trace.Link{SpanContext: other.SpanContext()})
		}
		ctx, batch := tracer.Start(trace.ContextWithSpan(ctx, requests[0]), "batch "+operation,
			trace.WithLinks(links...), trace.WithAttributes(attribute.Int("lastseen.batch.calls", len(calls))))
		for _, other := range requests[1:] {
			other.AddLink(trace.Link{SpanContext: batch.SpanContext()})
		}
		return ctx, func(err error) {
			if err != nil {
				batch.SetStatus(codes.Error, outcome(err)) // its text can name a namespace
			}
			batch.End()
		}
	}
}

// recorded returns the spans of the calls that are recorded, at most maxLinks and one.
func recorded(calls []context.Context) (spans []trace.Span) {
	for _, call := range calls {
		if span := trace.SpanFromContext(call); span.IsRecording() && len(spans) <= maxLinks {
			spans = append(spans, span)
		}
	}
	return spans
}
