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

// Retention deletes users that were not seen for longer than their namespace's retention, contacts whose owners used
// nothing for longer than the retention of contacts, and namespaces that are empty and not configured. The store's
// clock decides what is deleted, and only while it is steady. All users of a namespace, or all contacts, are deleted
// only if every pass for a while would have done so.
type Retention struct {
	*runner
	rules           RetentionRules
	clock           driftGuard
	backoffs        backoffs // because of their users
	contactBackoffs backoffs // because of their contacts

	deleted         atomic.Int64
	deletedContacts atomic.Int64
	ended           atomic.Int64 // when a round last visited all namespaces, a lastseen.Instant; 0 without the lease
}

// RetentionRules are the settings of retention, which can change at any time.
type RetentionRules struct {
	// Users returns after which time without being seen the users of a namespace are deleted, and Contacts after which
	// time without a use the contacts of an owner are; 0 to keep them forever.
	Users, Contacts func(namespace string) time.Duration
	// Configured reports whether a namespace exists even when it is empty.
	Configured func(namespace string) bool
}

// RetentionStats describes what the job did on this server.
type RetentionStats struct {
	Deleted         int64            // users, since the start
	DeletedContacts int64            // since the start
	LastRound       lastseen.Instant // when a round over all namespaces last ended; 0 if never, or without the lease
}

// Stats returns the current statistics.
func (r *Retention) Stats() RetentionStats {
	return RetentionStats{
		Deleted: r.deleted.Load(), DeletedContacts: r.deletedContacts.Load(),
		LastRound: lastseen.Instant(r.ended.Load()),
	}
}

// NewRetention returns the job for a store.
//
// At first the job deletes nothing for a while: if the clock is wrong at the start, only users seen since then are not
// past their retention.
func NewRetention(s store.Store, rules RetentionRules, logger *slog.Logger) *Retention {
	const kept = " in some namespaces: they are kept until every pass for a while agrees"
	return &Retention{
		runner: newRunner(s, "janitor", "cannot delete users or contacts past their retention", logger),
		rules:  rules, clock: driftGuard{logger: logger, steadyAt: steadyFor},
		backoffs:        newBackoffs("retention would delete everyone" + kept),
		contactBackoffs: newBackoffs("contacts-retention would delete all contacts" + kept),
	}
}

// Run deletes until the context ends.
func (r *Retention) Run(ctx context.Context) { r.run(ctx, r.round) }

// round trims each namespace with something to delete, if this server holds the lease.
func (r *Retention) round(ctx context.Context) error {
	now, _, err := r.now(ctx)
	if err != nil { // without the lease, too: a later holder has to know the clock
		return err
	}
	if !r.hasLease(ctx) {
		r.forgetHeld()
		r.ended.Store(0)
		return nil
	}
	begun := r.monotonic()
	namespaces, err := r.list(ctx, func(n store.NamespaceInfo) bool {
		return n.Newest == 0 && !r.rules.Configured(n.Name) || n.Newest != 0 && r.rules.Users(n.Name) > 0 ||
			r.rules.Contacts(n.Name) > 0
	})
	if err != nil {
		return err
	}
	if r.visitAll(ctx, namespaces, r.trimNamespace) {
		r.ended.Store(int64(now.Add(r.monotonic() - begun)))
	}
	r.backoffs.endRound(r.logger)
	r.contactBackoffs.endRound(r.logger)
	return nil
}

func (r *Retention) forgetHeld() {
	r.backoffs.forget()
	r.contactBackoffs.forget()
}

// trimNamespace deletes what is past its retention in a namespace, and then the namespace if it is empty. If contacts
// cannot be deleted, users are deleted all the same.
func (r *Retention) trimNamespace(ctx context.Context, n store.NamespaceInfo) error {
	err := r.trimContacts(ctx, n.Name)
	switch {
	case n.Newest == 0:
		return errors.Join(err, r.remove(ctx, n.Name))
	case r.rules.Users(n.Name) > 0:
		return errors.Join(err, r.trimUsers(ctx, n))
	}
	return err
}

// trimUsers deletes users.
func (r *Retention) trimUsers(ctx context.Context, n store.NamespaceInfo) error {
	total := 0
	defer func() {
		if total > 0 {
			r.logger.Info("deleted users past their retention", "namespace", n.Name, "users", total)
		}
	}()
	return r.trim(ctx, n.Name, r.rules.Users, &r.backoffs, func(q store.TrimQuery) (more, everyone bool, err error) {
		result, err := r.store.Trim(ctx, n.Name, q)
		total += result.Deleted
		r.deleted.Add(int64(result.Deleted))
		more = result.Deleted == store.MaxTrim
		return more, result.Held || q.All && more, err
	})
}

// trimContacts deletes contacts. A namespace that cannot have contacts has none to delete.
func (r *Retention) trimContacts(ctx context.Context, namespace string) error {
	if r.rules.Contacts(namespace) == 0 {
		return nil
	}
	var total store.ContactsTrimResult
	defer func() {
		if total.Contacts > 0 {
			r.logger.Info("deleted contacts past their retention",
				"namespace", namespace, "owners", total.Owners, "contacts", total.Contacts)
		}
	}()
	err := r.trim(ctx, namespace, r.rules.Contacts, &r.contactBackoffs, func(q store.TrimQuery) (bool, bool, error) {
		result, err := r.store.TrimContacts(ctx, namespace, q)
		total.Owners += result.Owners
		total.Contacts += result.Contacts
		r.deletedContacts.Add(int64(result.Contacts))
		// Without an owner, the next round goes on.
		return result.More && result.Owners > 0, result.Held || q.All && result.More, err
	})
	if errors.Is(err, store.ErrNoContacts) {
		return nil
	}
	return err
}

// trim deletes in small calls, until none is left to delete or another server has the lease. It deletes nothing while
// the clock is not steady. A call reports whether there is more, and whether it would delete all in the namespace or
// has begun to.
func (r *Retention) trim(
	ctx context.Context, namespace string, keep func(namespace string) time.Duration, waits *backoffs,
	call func(store.TrimQuery) (more, everyone bool, err error),
) error {
	for ctx.Err() == nil && r.hasLease(ctx) {
		now, steady, err := r.now(ctx)
		if err != nil || !steady {
			return err
		}
		q := store.TrimQuery{Age: keep(namespace), Now: now} // read last, since it may have changed in the meantime
		if q.Age == 0 {
			return nil
		}
		at := r.monotonic()
		q.All = waits.longEnough(namespace, at)
		more, everyone, err := call(q)
		switch {
		case errors.Is(err, store.ErrClockMoved):
			r.clock.move(err, r.monotonic())
			r.forgetHeld()
			return nil
		case err != nil:
			return err
		}
		waits.note(namespace, everyone, at)
		if !more {
			return nil
		}
		r.pause(ctx, trimPause)
	}
	return nil
}

// remove removes a namespace if it is still empty and not configured. A namespace that this server cannot serve only
// looks empty.
func (r *Retention) remove(ctx context.Context, namespace string) error {
	if r.rules.Configured(namespace) {
		return nil
	}
	_, err := r.store.RemoveEmpty(ctx, namespace)
	if errors.Is(err, store.ErrMismatch) || errors.Is(err, store.ErrWrongType) {
		return nil
	}
	return err
}

// now returns the time by the store's clock, and whether that clock is steady. If it is not, all backoffs end:
// earlier rounds went by another time.
func (r *Retention) now(ctx context.Context) (now lastseen.Instant, steady bool, err error) {
	before := r.monotonic()
	if now, err = r.store.Now(ctx); err != nil {
		return 0, false, err
	}
	if steady = r.clock.observe(now, before, r.monotonic()); !steady {
		r.forgetHeld()
	}
	return now, steady, nil
}
