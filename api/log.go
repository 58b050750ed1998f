package api

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"net/netip"

	"github.com/labstack/echo/v4"

	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/api/guard"
	"github.com/lastseen/lastseen/api/limit"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/api/telemetry"
)

// Log lines about requests have the route as a template and never the path: names of namespaces and users are personal
// data. The handlers of log/slog escape control characters.

// maxDefects is how many lines a minute are about failures with one code that is not an outage: each can have a
// different cause.
const maxDefects = 20

// accessLog logs a line for each request and its response.
func (s *server) accessLog(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		began := s.Now()
		if err := next(c); err != nil {
			c.Error(err) // now, because the response is logged; it must not be returned, or it would be handled twice
		}
		took := s.Now().Sub(began)
		s.Logger.LogAttrs(c.Request().Context(), slog.LevelInfo, "request", append(s.requestAttrs(c),
			slog.Int("status", c.Response().Status),
			slog.Float64("duration_ms", float64(took.Microseconds())/1000),
			slog.Int64("bytes", c.Response().Size))...)
		return nil
	}
}

// requestAttrs returns the attributes of a request in log lines.
func (s *server) requestAttrs(c echo.Context) []slog.Attr {
	return []slog.Attr{
		slog.String("request_id", c.Response().Header().Get(echo.HeaderXRequestID)),
		slog.String("method", telemetry.Bounded(c.Request().Method, telemetry.MaxReason)),
		slog.String("route", c.Path()),
		slog.String("caller", s.nameOf(callerOf(c), s.limiter.Proxies.Client(c.Request()))),
	}
}

// nameOf returns the caller that something is charged to, in the form key:NAME, user:HASH or address:IP. The hash is
// the same for all requests of a user until the server restarts, and reveals nothing else. Only callers without
// credentials are named by their address.
func (s *server) nameOf(caller *auth.Caller, address netip.Addr) string {
	switch {
	case caller == nil || caller.IsAnonymous():
		return string(limit.PerAddress) + ":" + address.String()
	case caller.Kind == auth.ByKey:
		return string(limit.PerKey) + ":" + caller.Name
	default:
		return string(limit.PerUser) + ":" + s.pseudonyms.of(caller.Issuer+"\x00"+caller.Name)
	}
}

// pseudonyms replaces names by hashes that cannot be computed elsewhere.
type pseudonyms []byte // a secret key

func (p pseudonyms) of(name string) string {
	mac := hmac.New(sha256.New, p)
	mac.Write([]byte(name))
	return hex.EncodeToString(mac.Sum(nil)[:8])
}

// logRefused logs, at level debug, why something with these attributes was refused.
func (s *server) logRefused(e *problem.Error, about func() []slog.Attr) {
	ctx := context.Background()
	if !s.Logger.Enabled(ctx, slog.LevelDebug) {
		return
	}
	reason := e.Detail
	if inner := (*problem.Error)(nil); e.Cause != nil && !errors.As(e.Cause, &inner) {
		reason = e.Cause.Error()
	}
	s.Logger.LogAttrs(ctx, slog.LevelDebug, "request refused", append(about(),
		slog.Int("status", e.Code.Type().Status), slog.String("code", string(e.Code)),
		slog.String("reason", telemetry.Quotable(reason)))...)
}

// logFailed logs or counts a failure of what needs a reach, and has attributes.
func (s *server) logFailed(e *problem.Error, err error, needs telemetry.Reach, about []slog.Attr) {
	attrs := append([]slog.Attr{slog.String("code", string(e.Code))}, about...)
	attrs = append(attrs, slog.String("error", telemetry.Bounded(err.Error(), telemetry.MaxCause)))
	switch {
	case e.Code == problem.ShuttingDown, // the log has it
		e.Code == problem.KeysUnavailable,      // anyone can send such tokens; package auth logs the failed fetch
		e.Code == problem.AvailabilityNotReady, // which is expected, and ends by itself
		errors.Is(err, guard.ErrShed):          // the overload is logged
		s.Logger.LogAttrs(context.Background(), slog.LevelDebug, "request failed", attrs...)
	case e.Code == problem.StoreUnavailable, e.Code == problem.StoreFull, e.Code == problem.Overloaded:
		// as long as the store is down, all for the same reason
		s.outages.Failed(e.Code, needs, err, attrs...)
	default:
		s.Defects.Log(slog.LevelError, string(e.Code), "request failed", attrs...)
	}
}
