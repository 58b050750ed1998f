package jobs

import (
	"context"
	"errors"

	"github.com/lastseen/lastseen/store"
)

// This file is the part of retention that deletes contacts.

// sweepContacts deletes contacts in small calls, until none are deleted or another server has the lease.
func (r *Retention) sweepContacts(ctx context.Context, namespace string) error {
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
	for ctx.Err() == nil && r.hasLease(ctx) {
		result, err := r.trimContacts(ctx, namespace)
		total.Owners += result.Owners
		total.Contacts += result.Contacts
		r.deletedContacts.Add(int64(result.Contacts))
		if err != nil || !result.More || result.Owners == 0 { // the next round goes on
			return err
		}
		r.pause(ctx, trimPause)
	}
	return nil
}

// trimContacts deletes contacts with one call. It deletes none while the clock is not steady. A namespace that cannot
// have contacts has none to delete.
func (r *Retention) trimContacts(ctx context.Context, namespace string) (store.ContactsTrimResult, error) {
	now, steady, err := r.now(ctx)
	if err != nil || !steady {
		return store.ContactsTrimResult{}, err
	}
	keep := r.rules.Contacts(namespace) // read last, since it may have changed in the meantime
	if keep == 0 {
		return store.ContactsTrimResult{}, nil
	}
	at := r.monotonic()
	all := r.heldContacts.longEnough(namespace, at)
	result, err := r.store.TrimContacts(ctx, namespace, store.TrimQuery{Age: keep, Now: now, All: all})
	switch {
	case errors.Is(err, store.ErrNoContacts):
		return store.ContactsTrimResult{}, nil
	case errors.Is(err, store.ErrClockMoved):
		r.clock.move(err, r.monotonic())
		r.forgetHeld()
		return store.ContactsTrimResult{}, nil
	case err == nil:
		r.heldContacts.note(namespace, result.Held || all && result.More, at)
	}
	return result, err
}
