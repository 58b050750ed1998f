package feed

import (
	"context"
	"fmt"

	"github.com/lastseen/lastseen/store"
)

// DependOn has the watcher follow the contacts of some users. When they change, Next returns a batch, perhaps an
// empty one, until ContactsChanged is called. After a reset, the contacts of all these users count as changed.
func (w *Watcher) DependOn(owners ...string) {
	w.f.mu.Lock()
	defer w.f.mu.Unlock()
	for _, owner := range owners {
		if w.f.owners[owner] == nil {
			w.f.owners[owner] = map[*Watcher]struct{}{}
		}
		w.f.owners[owner][w] = struct{}{}
		w.owners[owner] = struct{}{}
	}
}

// Ignore undoes DependOn.
func (w *Watcher) Ignore(owners ...string) {
	w.f.mu.Lock()
	defer w.f.mu.Unlock()
	for _, owner := range owners {
		w.ignore(owner)
	}
}

func (w *Watcher) ignore(owner string) {
	if delete(w.f.owners[owner], w); len(w.f.owners[owner]) == 0 {
		delete(w.f.owners, owner)
	}
	delete(w.owners, owner)
	delete(w.changed, owner)
}

// ContactsChanged returns the users whose contacts changed since the last call. Earlier batches may be from before or
// after these changes.
func (w *Watcher) ContactsChanged() (owners map[string]struct{}) {
	w.f.mu.Lock()
	defer w.f.mu.Unlock()
	owners, w.changed = w.changed, nil
	return owners
}

// Refresh waits until everything that is in the feed now is in memory, so that Poll returns it.
func (w *Watcher) Refresh(ctx context.Context) error {
	if err := w.f.waitForRead(ctx); err != nil {
		return err
	}
	w.f.mu.Lock()
	defer w.f.mu.Unlock()
	if w.f.failing {
		return fmt.Errorf("%w: the changes feed cannot be read", store.ErrUnavailable)
	}
	return nil
}

// contactsChanged notifies the watchers that depend on the contacts of a user. The caller holds the follower's lock, as
// for noticeAll and noticeContacts.
func (f *follower) contactsChanged(owner string) {
	for w := range f.owners[owner] {
		w.noticeContacts(owner)
		w.notify()
	}
}

// noticeAll marks all contacts as changed: a snapshot can be newer than memory, and entries can be forgotten.
func (w *Watcher) noticeAll() {
	w.restarts = w.f.restarts
	for owner := range w.owners {
		w.noticeContacts(owner)
	}
}

// noticeContacts marks the contacts of a user, on which the watcher depends, as changed.
func (w *Watcher) noticeContacts(owner string) {
	if w.changed == nil {
		w.changed = set{}
	}
	w.changed[owner] = struct{}{}
}
