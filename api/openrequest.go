package api

import (
	"time"

	"github.com/labstack/echo/v4"

	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/api/guard"
	"github.com/lastseen/lastseen/api/live/session"
	"github.com/lastseen/lastseen/api/live/transport"
	"github.com/lastseen/lastseen/api/telemetry"
)

// openRequest is a request that can stay open, to wait for something.
type openRequest struct {
	*server
	*session.Waiting
	c         echo.Context
	namespace string
	caller    *auth.Caller
	permitted func(*auth.Caller) error // returns an error unless a caller can use it; it depends on nothing stored
}

// newOpenRequest returns a request of a caller who was authorized.
func newOpenRequest(s *server, c echo.Context, namespace string) *openRequest {
	r := &openRequest{server: s, c: c, namespace: namespace, caller: guard.CallerOf(c)}
	r.Waiting = s.NewWaiting(s.live, session.WaitingOptions{
		Context: c.Request().Context(), Namespace: namespace, Caller: r.caller,
		Authorize: func() error { return s.authorizeAgain(c, r.permitted) },
	})
	return r
}

// hold keeps a request open that only waits, until the returned function is called.
func (r *openRequest) hold(t telemetry.Delivery) (release func()) {
	transport.Hold(r.c.Response())
	resume := r.Telemetry.Hold(r.c, t)
	return func() {
		resume()
		transport.Release(r.c.Response())
	}
}

// awaitWithin is AwaitWithin for a request that is held meanwhile.
func (r *openRequest) awaitWithin(t telemetry.Delivery, wait time.Duration, look session.Look) (found bool, err error) {
	defer r.hold(t)()
	return r.AwaitWithin(wait, look)
}

// pollAfter returns when to send the next request, in milliseconds, after a response that has waited for a time or not
// at all. If more can follow at once, the client need not wait.
func (r *openRequest) pollAfter(more bool, wait time.Duration) int64 {
	var pause time.Duration
	switch {
	case r.Draining():
		pause = r.live.Jitter(0, session.MaxDrainPause)
	case more:
	case wait > 0:
		pause = r.live.Jitter(0, maxPollPause)
	default:
		settings := r.newest.Load().settings(r.namespace)
		longest := float64(pollInterval)
		if settings.PingInterval > 0 { // under load, by as much as pings
			longest *= float64(settings.stretched(r.load.Stretch())) / float64(settings.PingInterval)
		}
		longest = min(longest, float64(maxInterval))
		pause = r.live.Jitter(time.Duration(0.8*longest), time.Duration(longest))
	}
	return pause.Milliseconds()
}
