package telemetry

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/lastseen/lastseen/api/problem"
)

// Log lines about requests have the route as a template and never the path: names of namespaces and users are personal
// data. The handlers of log/slog escape control characters.

// maxDefects is how many lines a minute are about failures with one code that is not an outage: each can have a
// different cause.
const maxDefects = 20

// Failures logs what requests and connections fail by. Its methods may be called concurrently.
type Failures struct {
	logger  *slog.Logger
	Defects *Throttle
	Outages *Outages
}

// NewFailures returns a log of no failures.
func NewFailures(logger *slog.Logger, now func() time.Time) *Failures {
	return &Failures{logger, NewThrottle(logger, maxDefects), NewOutages(logger, now)}
}

// AccessLog logs a line for each request and its response, with the attributes of the request.
func AccessLog(
	logger *slog.Logger, now func() time.Time, attributes func(echo.Context) []slog.Attr,
) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			began := now()
			if err := next(c); err != nil {
				c.Error(err) // now, because the response is logged; not returned, or it would be handled twice
			}
			took := now().Sub(began)
			logger.LogAttrs(c.Request().Context(), slog.LevelInfo, "request", append(attributes(c),
				slog.Int("status", c.Response().Status),
				slog.Float64("duration_ms", float64(took.Microseconds())/1000),
				slog.Int64("bytes", c.Response().Size))...)
			return nil
		}
	}
}

// Refused logs, at level debug, why something with these attributes was refused.
func (f *Failures) Refused(e *problem.Error, about func() []slog.Attr) {
	ctx := context.Background()
	if !f.logger.Enabled(ctx, slog.LevelDebug) {
		return
	}
	reason := e.Detail
	if inner := (*problem.Error)(nil); e.Cause != nil && !errors.As(e.Cause, &inner) {
		reason = e.Cause.Error()
	}
	f.logger.LogAttrs(ctx, slog.LevelDebug, "request refused", append(about(),
		slog.Int("status", e.Code.Type().Status), slog.String("code", string(e.Code)),
		slog.String("reason", Quotable(reason)))...)
}

// Failed logs or counts a failure of what needs a reach, and has attributes.
func (f *Failures) Failed(e *problem.Error, err error, needs Reach, about []slog.Attr) {
	attrs := append([]slog.Attr{slog.String("code", string(e.Code))}, about...)
	attrs = append(attrs, slog.String("error", Bounded(err.Error(), MaxCause)))
	switch {
	case e.Code == problem.ShuttingDown, // the log has it
		e.Code == problem.KeysUnavailable,      // anyone can send such tokens; package auth logs the failed fetch
		e.Code == problem.AvailabilityNotReady, // which is expected, and ends by itself
		errors.Is(err, problem.ErrShed):        // the overload is logged
		f.logger.LogAttrs(context.Background(), slog.LevelDebug, "request failed", attrs...)
	case e.Code == problem.StoreUnavailable, e.Code == problem.StoreFull, e.Code == problem.Overloaded:
		// as long as the store is down, all for the same reason
		f.Outages.Failed(e.Code, needs, err, attrs...)
	default:
		f.Defects.Log(slog.LevelError, string(e.Code), "request failed", attrs...)
	}
}
