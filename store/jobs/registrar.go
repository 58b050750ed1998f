package jobs

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/lastseen/lastseen/store"
)

const (
	registerTimeout = 2 * time.Second  // for the first attempt, which the start of the server waits for
	registerRetry   = time.Second      // before the second attempt, then twice as long each time
	registerEvery   = 10 * time.Second // between attempts at most, and between checks after one that succeeded
)

// Registrar makes the configured namespaces exist, so that they are listed before their first ping. It keeps checking,
// on every server: Redis may have been emptied, or restarted without its data.
type Registrar struct {
	store   store.Namespaces
	names   func() []string
	changed <-chan struct{}
	logger  *slog.Logger
	after   func(time.Duration) <-chan time.Time

	retry   time.Duration // the wait after the last attempt, if it failed
	refusal string        // what was last logged about namespaces that cannot be served
}

// NewRegistrar returns the job for a store. names returns the configured namespaces, and changed receives a value when
// they may have changed.
func NewRegistrar(s store.Namespaces, names func() []string, changed <-chan struct{}, logger *slog.Logger) *Registrar {
	return &Registrar{store: s, names: names, changed: changed, logger: logger, after: time.After}
}

// Once makes one short attempt.
func (r *Registrar) Once(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, registerTimeout)
	defer cancel()
	r.try(ctx)
}

// Run tries again and again, and at once after every change, until the context ends.
func (r *Registrar) Run(ctx context.Context) {
	for {
		select {
		case <-r.after(cmp.Or(r.retry, registerEvery)):
		case <-r.changed:
		case <-ctx.Done():
			return
		}
		r.try(ctx)
	}
}

// try registers all namespaces. It logs a failure once, until an attempt succeeds.
func (r *Registrar) try(ctx context.Context) {
	names := r.names()
	if len(names) == 0 {
		r.retry, r.refusal = 0, ""
		return
	}
	err := r.store.Register(ctx, names)
	switch {
	case err == nil:
		r.succeed("")
	case errors.Is(err, store.ErrMismatch) || errors.Is(err, store.ErrWrongType):
		r.succeed(err.Error())
	case errors.Is(ctx.Err(), context.Canceled): // the server stops
	default:
		if r.retry == 0 {
			r.logger.Warn("cannot register the configured namespaces yet; trying again", "error", err)
		}
		r.retry = min(max(registerRetry, 2*r.retry), registerEvery)
	}
}

// succeed notes that the store responded, and logs a change in what it refuses.
func (r *Registrar) succeed(refusal string) {
	switch {
	case refusal != "" && refusal != r.refusal:
		r.logger.Error("some configured namespaces cannot be served", "error", refusal)
	case refusal == "" && r.refusal != "":
		r.logger.Info("all configured namespaces can be served again")
	case r.retry > 0:
		r.logger.Info("the configured namespaces are registered")
	}
	r.retry, r.refusal = 0, refusal
}
