package feed

import (
	"context"
	"fmt"

	"github.com/lastseen/lastseen/store"
)

// DependOn has the watcher learn from now on when the contacts of some users change: Next and Take return then, perhaps
// with a batch that says nothing else, until ContactsChanged was called. After a reset, all count as
// changed.
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

// ContactsChanged returns whose contacts changed since the last call. What the batches before have is from before that,
// or from after it.
func (w *Watcher) ContactsChanged() (owners map[string]struct{}) {
	w.f.mu.Lock()
	defer w.f.mu.Unlock()
	owners, w.changed = w.changed, nil
	return owners
}

// Refresh waits until what the feed has now is in memory, for Poll to return.
func (w *Watcher) Refresh(ctx context.Context) error {
	if err := w.f.newlyRead(ctx); err != nil {
		return err
	}
	w.f.mu.Lock()
	defer w.f.mu.Unlock()
	if w.f.failing {
		return fmt.Errorf("%w: the changes feed cannot be read", store.ErrUnavailable)
	}
	return nil
}

// contactsChanged tells the watchers that depend on the contacts of a user. The caller holds the follower's lock, as
// for noticeAll and noticeContacts.
func (f *follower) contactsChanged(owner string) {
	for w := range f.owners[owner] {
		w.noticeContacts(owner)
		wake(w.wake)
	}
}

// noticeAll has all contacts count as changed: a snapshot can be newer than memory, and entries can be forgotten.
func (w *Watcher) noticeAll() {
	w.restarts = w.f.restarts
	for owner := range w.owners {
		w.noticeContacts(owner)
	}
}

// restarted returns how often the follower has forgotten entries.
func (f *follower) restarted() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.restarts
}

// noticeContacts notes that the contacts of a user changed on whom the watcher depends.
func (w *Watcher) noticeContacts(owner string) {
	if w.changed == nil {
		w.changed = set{}
	}
	w.changed[owner] = struct{}{}
}
