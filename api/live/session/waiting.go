package session

import (
	"context"
	"errors"
	"time"

	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/store"
)

// Waiting is a request that can stay open, to wait for something. From time to time it is authorized again. One
// goroutine uses it.
type Waiting struct {
	o      WaitingOptions
	hub    *Hub
	server *Server // that authorized it last

	// The context ends with that of the request, and when the caller has to be authorized again: after a reload.
	ctx     context.Context //nolint:containedctx // one goroutine uses it, that of the request
	cancel  func()
	checkAt time.Time // when the caller has to be authorized again at the latest

	woken store.Waker // when something has happened
}

// WaitingOptions are about a request that waits.
type WaitingOptions struct {
	Context   context.Context //nolint:containedctx // that of the request
	Namespace string
	Caller    *auth.Caller
	Authorize func() error // returns an error unless the caller can still use it, by the newest configuration
}

// NewWaiting returns a request of a caller who was authorized for a server. Call Open before Await.
func (h *Hub) NewWaiting(s *Server, o WaitingOptions) *Waiting {
	return &Waiting{o: o, hub: h, server: s, woken: store.NewWaker()}
}

// Wake has Await look again. It returns at once.
func (w *Waiting) Wake() { w.woken.Wake() }

// Look looks for a response. If there is none, it says when to look again at the latest.
type Look func(context.Context) (found bool, again time.Duration, err error)

// AwaitWithin is Await for a time. It returns false if nothing was found until then, or if the server stops.
func (w *Waiting) AwaitWithin(wait time.Duration, look Look) (found bool, err error) {
	err = w.Await(w.hub.Now().Add(wait), look)
	if errors.Is(err, errDue) || errors.Is(err, errDraining) {
		return false, nil
	}
	return err == nil, err
}

// Await looks for what to respond until it is found, or until a time if that is not zero. In between it waits for Wake,
// but not longer than look says. Its errors are those of look and patience.
func (w *Waiting) Await(until time.Time, look Look) error {
	for {
		if gone := w.o.Context.Err(); gone != nil {
			return gone
		}
		left, err := w.patience(until)
		if err != nil {
			return err
		}
		found, again, err := w.look(look, left)
		if found || err != nil {
			return err
		}
		w.woken.Wait(w.ctx, min(left, again))
	}
}

// look looks, but not for longer than the caller is authorized. If that ends it, there is nothing yet.
func (w *Waiting) look(look Look, left time.Duration) (found bool, again time.Duration, err error) {
	ctx, cancel := context.WithTimeout(w.ctx, left)
	defer cancel()
	if found, again, err = look(ctx); err != nil && ctx.Err() != nil {
		return false, 0, nil
	}
	return found, again, err
}

// Errors of [Waiting.patience] that are no failures.
var (
	errDue      = errors.New("the time to wait has passed")
	errDraining = errors.New("the server is stopping")
)

// The times between two authorizations: the ping interval within these bounds.
const (
	minRecheck = time.Second
	maxRecheck = time.Minute
)

// begin begins a round, and sets the time of the next authorization.
func (w *Waiting) begin(now time.Time) {
	w.ctx, w.cancel = w.hub.Reloads.Wait(w.o.Context)

	server, caller := w.hub.newest.Load(), w.o.Caller
	pause := min(max(minRecheck, server.PingInterval(w.o.Namespace)), maxRecheck)
	pause = server.Jitter(pause*4/5, pause)
	if caller != nil && !caller.Expires.IsZero() {
		pause = min(pause, max(minRecheck, caller.Expires.Sub(now)))
	}
	w.checkAt = now.Add(pause)
}

// Open begins the first round of a request that was authorized. The caller calls Close.
func (w *Waiting) Open() {
	w.begin(w.hub.Now())
	if w.hub.newest.Load() != w.server { // a reload since, which the context may not have seen
		w.checkAt = w.hub.Now()
	}
}

// Close ends the last round.
func (w *Waiting) Close() { w.cancel() }

// patience returns how long a request can wait now: until a time, if it is not zero, but not longer than the caller is
// authorized. It returns errDue at that time, errDraining if the server is stopping, and the error of a caller that is
// not authorized any longer. It begins the next round if the caller still is.
func (w *Waiting) patience(until time.Time) (time.Duration, error) {
	now := w.hub.Now()
	if w.hub.Draining() {
		return 0, errDraining
	}
	if w.ctx.Err() != nil || !now.Before(w.checkAt) {
		w.cancel()
		w.begin(now) // before the check, so that a reload during the check is not missed
		if err := w.o.Authorize(); err != nil {
			return 0, err
		}
	}
	authorized := w.checkAt.Sub(now)
	if until.IsZero() {
		return authorized, nil
	}
	if !now.Before(until) {
		return 0, errDue
	}
	return min(until.Sub(now), authorized), nil
}
