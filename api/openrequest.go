package api

import (
	"context"
	"errors"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/api/guard"
	"github.com/lastseen/lastseen/api/live/transport"
	"github.com/lastseen/lastseen/api/telemetry"
)

// openRequest is a request that can stay open, to wait for something. From time to time it is authorized again. One
// goroutine uses it.
type openRequest struct {
	*server
	c         echo.Context
	namespace string
	caller    *auth.Caller
	permitted func(*auth.Caller) error // returns an error unless a caller can use it; it depends on nothing stored

	// The context ends with that of the request, and when the caller has to be authorized again: after a reload.
	ctx     context.Context //nolint:containedctx // one goroutine uses it, that of the request
	cancel  func()
	checkAt time.Time // when the caller has to be authorized again at the latest

	woken chan struct{} // has one element if something has happened
}

// newOpenRequest returns a request of a caller who was authorized. Call open before await.
func newOpenRequest(s *server, c echo.Context, namespace string) openRequest {
	return openRequest{server: s, c: c, namespace: namespace, caller: guard.CallerOf(c), woken: make(chan struct{}, 1)}
}

// wake has await look again. It returns at once.
func (r *openRequest) wake() {
	select {
	case r.woken <- struct{}{}:
	default:
	}
}

// await looks for what to respond until it is found, or until a time if that is not zero. In between it waits for wake,
// but not longer than look says. Its errors are those of look and patience.
func (r *openRequest) await(until time.Time, look lookup) error {
	for {
		if gone := r.c.Request().Context().Err(); gone != nil {
			return gone
		}
		left, err := r.patience(until)
		if err != nil {
			return err
		}
		found, again, err := r.look(look, left)
		if found || err != nil {
			return err
		}
		r.sleep(min(left, again))
	}
}

// lookup looks for a response. If there is none, it says when to look again at the latest.
type lookup func(context.Context) (found bool, again time.Duration, err error)

// look looks, but not for longer than the caller is authorized. If that ends it, there is nothing yet.
func (r *openRequest) look(look lookup, left time.Duration) (found bool, again time.Duration, err error) {
	ctx, cancel := context.WithTimeout(r.ctx, left)
	defer cancel()
	if found, again, err = look(ctx); err != nil && ctx.Err() != nil {
		return false, 0, nil
	}
	return found, again, err
}

// awaitWithin is await for a request that is held meanwhile. It returns false if there is nothing to respond in a time.
func (r *openRequest) awaitWithin(t telemetry.Delivery, wait time.Duration, look lookup) (found bool, err error) {
	defer r.hold(t)()
	if err = r.await(r.Now().Add(wait), look); isPause(err) {
		return false, nil
	}
	return err == nil, err
}

// sleep waits for a time, but not longer than until something has happened.
func (r *openRequest) sleep(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.woken:
	case <-r.ctx.Done():
	}
}

// Errors of [openRequest.patience] that are no failures.
var (
	errDue      = errors.New("the time to wait has passed")
	errDraining = errors.New("the server is stopping")
)

// isPause reports whether an error means that a request ended its waiting, and can respond as usual.
func isPause(err error) bool { return errors.Is(err, errDue) || errors.Is(err, errDraining) }

// begin begins a round, and sets the time of the next authorization.
func (r *openRequest) begin(now time.Time) {
	r.ctx, r.cancel = r.Reloads.Wait(r.c.Request().Context())

	pause := min(max(minRecheck, r.newest.Load().settings(r.namespace).PingInterval), maxRecheck)
	pause = r.live.Jitter(pause*4/5, pause)
	if r.caller != nil && !r.caller.Expires.IsZero() {
		pause = min(pause, max(minRecheck, r.caller.Expires.Sub(now)))
	}
	r.checkAt = now.Add(pause)
}

// open begins the first round of a request that was authorized.
func (r *openRequest) open() {
	r.begin(r.Now())
	if r.newest.Load() != r.server { // a reload since the request was authorized, which the context may not have seen
		r.checkAt = r.Now()
	}
}

// The times between two authorizations of a request that stays open: the ping interval within these bounds.
const (
	minRecheck = time.Second
	maxRecheck = time.Minute
)

// patience returns how long a request can wait now: until a time, if it is not zero, but not longer than the caller is
// authorized. It returns errDue at that time, errDraining if the server is stopping, and the error of a caller that is
// not authorized any longer. It begins the next round if the caller still is.
func (r *openRequest) patience(until time.Time) (time.Duration, error) {
	now := r.Now()
	if r.Draining() {
		return 0, errDraining
	}
	if r.ctx.Err() != nil || !now.Before(r.checkAt) {
		r.cancel()
		r.begin(now) // before the check, so that a reload during the check is not missed
		if err := r.authorizeAgain(r.c, r.permitted); err != nil {
			return 0, err
		}
	}
	authorized := r.checkAt.Sub(now)
	if until.IsZero() {
		return authorized, nil
	}
	if !now.Before(until) {
		return 0, errDue
	}
	return min(until.Sub(now), authorized), nil
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

// pollAfter returns when to send the next request, in milliseconds, after a response that has waited for a time or not
// at all. If more can follow at once, the client need not wait.
func (r *openRequest) pollAfter(more bool, wait time.Duration) int64 {
	var pause time.Duration
	switch {
	case r.Draining():
		pause = r.live.Jitter(0, maxDrainPause)
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
