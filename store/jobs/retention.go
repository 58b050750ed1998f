package jobs

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

const trimPause = 100 * time.Millisecond // between calls that delete, for the sake of requests

// Retention deletes users that were not seen for longer than their namespace's retention, and namespaces that are
// empty and not configured. The store's clock decides who is deleted, and only while it is steady. Everyone in a
// namespace is deleted only if every sweep for a while would have done so.
type Retention struct {
	*runner
	keep       func(namespace string) time.Duration
	configured func(namespace string) bool
	clock      steadyClock
	held       heldNamespaces

	deleted atomic.Int64
	ended   atomic.Int64 // when a round last visited all namespaces, a lastseen.Instant; 0 without the lease
}

// RetentionStats describes what the job did on this server.
type RetentionStats struct {
	Deleted   int64            // users, since the start
	LastRound lastseen.Instant // when a round over all namespaces last ended; 0 if never, or without the lease
}

// Stats returns the current statistics.
func (r *Retention) Stats() RetentionStats {
	return RetentionStats{Deleted: r.deleted.Load(), LastRound: lastseen.Instant(r.ended.Load())}
}

// NewRetention returns the job for a store. keep returns the current retention of a namespace, or 0 to keep users
// forever; configured reports whether a namespace exists even when it is empty.
//
// At first the job deletes no users for a while: if the clock is wrong at the start, only users seen since then are not
// past their retention.
func NewRetention(
	s store.Store, keep func(namespace string) time.Duration, configured func(namespace string) bool,
	logger *slog.Logger,
) *Retention {
	return &Retention{
		runner: newRunner(s, "janitor", "cannot delete users past their retention", logger),
		keep:   keep, configured: configured,
		clock: steadyClock{logger: logger, steadyAt: steadyFor},
		held:  heldNamespaces{byName: map[string]*hold{}},
	}
}

// Run deletes until the context ends.
func (r *Retention) Run(ctx context.Context) { r.run(ctx, r.round) }

// round sweeps each namespace with something to delete, if this server holds the lease.
func (r *Retention) round(ctx context.Context) error {
	now, _, err := r.now(ctx)
	if err != nil { // without the lease, too: a later holder has to know the clock
		return err
	}
	if !r.hasLease(ctx) {
		r.held.forget()
		r.ended.Store(0)
		return nil
	}
	begun := r.monotonic()
	namespaces, err := r.list(ctx, func(n store.NamespaceInfo) bool {
		return n.Newest == 0 && !r.configured(n.Name) || n.Newest != 0 && r.keep(n.Name) > 0
	})
	if err != nil {
		return err
	}
	if r.visitAll(ctx, namespaces, r.sweep) {
		r.ended.Store(int64(now.Add(r.monotonic() - begun)))
	}
	r.held.endRound(r.logger)
	return nil
}

// sweep removes a namespace that is empty. From any other one it deletes users in small calls, until none is left to
// delete or another server has the lease.
func (r *Retention) sweep(ctx context.Context, n store.NamespaceInfo) error {
	if n.Newest == 0 {
		return r.remove(ctx, n.Name)
	}
	total := 0
	defer func() {
		if total > 0 {
			r.logger.Info("deleted users past their retention", "namespace", n.Name, "users", total)
		}
	}()
	for ctx.Err() == nil && r.hasLease(ctx) {
		deleted, err := r.trim(ctx, n.Name)
		total += deleted
		r.deleted.Add(int64(deleted))
		if err != nil || deleted < store.MaxTrim {
			return err
		}
		r.pause(ctx, trimPause)
	}
	return nil
}

// remove removes a namespace if it is still empty and not configured. A namespace that this server cannot serve only
// looks empty.
func (r *Retention) remove(ctx context.Context, namespace string) error {
	if r.configured(namespace) {
		return nil
	}
	_, err := r.store.RemoveEmpty(ctx, namespace)
	if errors.Is(err, store.ErrMismatch) || errors.Is(err, store.ErrWrongType) {
		return nil
	}
	return err
}

// trim deletes users with one call and returns their number. It deletes none while the clock is not steady.
func (r *Retention) trim(ctx context.Context, namespace string) (int, error) {
	now, steady, err := r.now(ctx)
	if err != nil || !steady {
		return 0, err
	}
	keep := r.keep(namespace) // read last, since it may have changed in the meantime
	if keep == 0 {
		return 0, nil
	}
	at := r.monotonic()
	all := r.held.longEnough(namespace, at)
	result, err := r.store.Trim(ctx, namespace, store.TrimQuery{Age: keep, Now: now, All: all})
	if errors.Is(err, store.ErrClockMoved) {
		r.clock.move(err, r.monotonic())
		r.held.forget()
		return 0, nil
	}
	if err == nil {
		r.held.note(namespace, result.Held || all && result.Deleted == store.MaxTrim, at)
	}
	return result.Deleted, err
}

// now returns the time by the store's clock, and whether that clock is steady. If it is not, all waits of held
// namespaces end: earlier rounds went by another time.
func (r *Retention) now(ctx context.Context) (now lastseen.Instant, steady bool, err error) {
	before := r.monotonic()
	if now, err = r.store.Now(ctx); err != nil {
		return 0, false, err
	}
	if steady = r.clock.observe(now, before, r.monotonic()); !steady {
		r.held.forget()
	}
	return now, steady, nil
}
