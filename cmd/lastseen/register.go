package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/lastseen/lastseen/store"
)

const (
	registerTimeout  = 2 * time.Second // of the first attempt, which start-up waits for
	registerRetry    = time.Second     // before the second attempt, then twice as long each time
	registerMaxRetry = time.Minute
)

// registrar makes the configured namespaces exist, so that they are listed before their first ping.
type registrar struct {
	store   store.Store
	names   func() []string
	changed <-chan struct{} // tells that names may return others
	logger  *slog.Logger
	pause   func(context.Context, time.Duration) // returns early when the context ends

	done bool // nothing is left to try
}

// first tries once, but not for long.
func (r *registrar) first(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, registerTimeout)
	defer cancel()
	r.try(ctx)
}

// run tries again until it succeeds, and after every change, until the context ends.
func (r *registrar) run(ctx context.Context) {
	for {
		for wait := registerRetry; !r.done && ctx.Err() == nil; wait = min(2*wait, registerMaxRetry) {
			r.pause(ctx, wait)
			r.try(ctx)
		}
		select {
		case <-r.changed:
			r.try(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// try registers all namespaces. One that is stored otherwise than configured stays so: trying again would
// not help.
func (r *registrar) try(ctx context.Context) {
	names := r.names()
	if len(names) == 0 {
		r.done = true
		return
	}
	err := r.store.Register(ctx, names)
	switch {
	case err == nil:
		r.done = true
	case errors.Is(err, store.ErrMismatch) || errors.Is(err, store.ErrWrongType):
		r.done = true
		r.logger.Error("some configured namespaces cannot be served", "error", err)
	case errors.Is(ctx.Err(), context.Canceled):
		r.done = false // the service stops
	default:
		r.done = false
		r.logger.Warn("cannot register the configured namespaces yet; trying again", "error", err)
	}
}
