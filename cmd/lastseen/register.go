package main

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/lastseen/lastseen/store"
)

const (
	registerTimeout = 2 * time.Second  // of the first attempt, which start-up waits for
	registerRetry   = time.Second      // before the second attempt, then twice as long each time
	registerEvery   = 10 * time.Second // between attempts at most, and between checks after one that succeeded
)

// registrar makes the configured namespaces exist, so that they are listed before their first ping. It goes on checking
// that they do: Redis may have been emptied or restarted without its data.
type registrar struct {
	store   store.Store
	names   func() []string
	changed <-chan struct{} // tells that names may return others
	logger  *slog.Logger
	pause   func(context.Context, time.Duration) // returns early when the context ends

	failures int    // attempts since the last one that succeeded
	refusal  string // what was logged about namespaces that cannot be served, until it changes
}

// first tries once, but not for long.
func (r *registrar) first(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, registerTimeout)
	defer cancel()
	r.try(ctx)
}

// run tries again and again, and at once after every change, until the context ends.
func (r *registrar) run(ctx context.Context) {
	for ctx.Err() == nil {
		r.rest(ctx)
		if ctx.Err() == nil {
			r.try(ctx)
		}
	}
}

// rest returns when it is time for the next attempt.
func (r *registrar) rest(ctx context.Context) {
	wait := registerEvery
	if r.failures > 0 {
		wait = min(registerRetry<<min(r.failures-1, 10), registerEvery)
	}
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		select {
		case <-r.changed:
			cancel()
		case <-ctx.Done():
		}
	})
	r.pause(ctx, wait)
	cancel()
	watching.Wait()
}

// try registers all namespaces. What goes wrong is logged once, until it is over.
func (r *registrar) try(ctx context.Context) {
	names := r.names()
	if len(names) == 0 {
		r.failures, r.refusal = 0, ""
		return
	}
	err := r.store.Register(ctx, names)
	switch {
	case err == nil:
		r.succeed("")
	case errors.Is(err, store.ErrMismatch) || errors.Is(err, store.ErrWrongType):
		r.succeed(err.Error())
	case errors.Is(ctx.Err(), context.Canceled): // the service stops
	default:
		if r.failures++; r.failures == 1 {
			r.logger.Warn("cannot register the configured namespaces yet; trying again", "error", err)
		}
	}
}

// succeed notes that the store answered, and logs a change in what it refuses.
func (r *registrar) succeed(refusal string) {
	switch {
	case refusal != "" && refusal != r.refusal:
		r.logger.Error("some configured namespaces cannot be served", "error", refusal)
	case refusal == "" && r.refusal != "":
		r.logger.Info("all configured namespaces can be served again")
	case r.failures > 0:
		r.logger.Info("the configured namespaces are registered")
	}
	r.failures, r.refusal = 0, refusal
}
