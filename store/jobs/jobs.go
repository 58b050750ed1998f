// Package jobs holds the work that servers do in the background: each job in its own file, such as retention.go.
//
// Most jobs do something for each namespace of a store, once a minute, on one server at a time. They share a runner,
// which keeps the lease, spreads the namespaces over the minute and waits when the store is away. It measures time by
// a monotonic clock.
package jobs

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lastseen/lastseen/store"
)

const (
	roundEvery     = time.Minute           // from the start of one round to the start of the next, for most jobs
	shortestPause  = 10 * time.Millisecond // between visits; shorter ones are left out
	manyNamespaces = 5000                  // from this number on, several namespaces are visited at once
	workers        = 8                     // the number of them
	awayPause      = 5 * time.Second       // before checking again whether the store is ready

	listPage  = 100              // namespaces read in one call
	listPause = time.Millisecond // between these calls, for the sake of requests

	leaseTime  = 3 * time.Minute // longer than roundEvery and a call, so that the lease outlives a pause
	leaseRenew = 30 * time.Second
)

// runner runs a job on one server at a time: the one that holds the job's lease. When that server stops or dies, the
// lease ends and another server continues.
type runner struct {
	store     store.Store
	lease     string // its name
	every     time.Duration
	failure   string // what to log when the job fails
	logger    *slog.Logger
	pause     func(context.Context, time.Duration) // returns early when the context ends
	monotonic func() time.Duration                 // time since the start
	workers   int                                  // how many namespaces are visited at once, when there are many

	begun time.Duration // when the current round began

	mu      sync.Mutex
	holding bool          // the lease was granted
	asked   time.Duration // when it was last requested
}

// newRunner returns a runner on the machine's monotonic clock.
func newRunner(s store.Store, lease, failure string, logger *slog.Logger) *runner {
	start := time.Now()
	return &runner{
		store: s, lease: lease, every: roundEvery, failure: failure, logger: logger, workers: workers,
		pause:     func(ctx context.Context, d time.Duration) { store.Pause(ctx, d) },
		monotonic: func() time.Duration { return time.Since(start) },
	}
}

// run calls round at every interval until the context ends. Then it gives up the lease, so that the next server does
// not have to wait for its end.
func (r *runner) run(ctx context.Context, round func(context.Context) error) {
	defer r.release(ctx)
	for ctx.Err() == nil {
		r.begun = r.monotonic()
		if err := round(ctx); err != nil {
			r.warn(ctx, "", err)
		}
		if rest := r.begun + r.every - r.monotonic(); rest > 0 && ctx.Err() == nil {
			r.pause(ctx, rest)
		}
	}
}

func (r *runner) list(ctx context.Context, wanted func(store.NamespaceInfo) bool) (all []store.NamespaceInfo, _ error) {
	for after := ""; ; {
		page, err := r.store.Namespaces(ctx, after, listPage)
		if err != nil {
			return nil, err
		}
		for _, n := range page {
			if wanted(n) {
				all = append(all, n)
			}
		}
		if len(page) < listPage {
			return all, nil
		}
		after = page[len(page)-1].Name
		r.pause(ctx, listPause)
	}
}

// visitor does a job's work for one namespace.
type visitor func(context.Context, store.NamespaceInfo) error

// visitAll visits each namespace once, evenly spread over the rest of the round, and reports whether it visited all. It
// returns early when the lease is lost or the store is away.
func (r *runner) visitAll(ctx context.Context, namespaces []store.NamespaceInfo, work visitor) (all bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var running errgroup.Group
	running.SetLimit(r.workers)
	defer func() { _ = running.Wait() }()
	start := r.monotonic()
	rest := max(0, r.begun+r.every-start)
	for k, n := range namespaces {
		due := start + rest*time.Duration(k)/time.Duration(len(namespaces))
		if early := due - r.monotonic(); early >= shortestPause {
			r.pause(ctx, early)
		}
		if ctx.Err() != nil || !r.hasLease(ctx) {
			return false
		}
		if len(namespaces) < manyNamespaces || r.workers == 1 {
			r.visit(ctx, cancel, n, work)
			continue
		}
		running.Go(func() error {
			r.visit(ctx, cancel, n, work)
			return nil
		})
	}
	_ = running.Wait()
	return ctx.Err() == nil
}

// visit visits one namespace. It ends the round if the whole store is away, but not if only this namespace fails or the
// store stalls for a moment.
func (r *runner) visit(ctx context.Context, endRound func(), n store.NamespaceInfo, work visitor) {
	err := work(ctx, n)
	if err != nil {
		r.warn(ctx, n.Name, err)
	}
	if !errors.Is(err, store.ErrUnavailable) || r.store.Ready(ctx) == nil {
		return
	}
	r.pause(ctx, awayPause)
	if r.store.Ready(ctx) != nil {
		endRound()
	}
}

func (r *runner) warn(ctx context.Context, namespace string, err error) {
	if ctx.Err() == nil {
		r.logger.Warn(r.failure+"; trying again later", "namespace", namespace, "error", err)
	}
}

// hasLease reports whether this server holds the lease. It requests or renews the lease when that is due.
func (r *runner) hasLease(ctx context.Context) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.monotonic()
	if r.holding && now < r.asked+leaseRenew {
		return true
	}
	granted, err := r.store.Lease(ctx, r.lease, leaseTime)
	if err != nil {
		r.warn(ctx, "", err)
	}
	r.holding, r.asked = granted && err == nil, now
	return r.holding
}

// release gives up the lease.
func (r *runner) release(ctx context.Context) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.holding || r.monotonic() >= r.asked+leaseTime {
		return
	}
	store.Release(ctx, r.store, r.lease)
	r.holding = false
}
