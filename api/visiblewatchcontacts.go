package api

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/feed"
)

const (
	contactsRetry = time.Second     // after an error
	contactsEvery = time.Second / 4 // the least time between two readings of one watcher that waits
	contactsSlot  = 2 * time.Second // how long to wait for others who read
)

// maxContactReads is how many watchers of this process read contacts from the store at the same time.
const maxContactReads = 16

// readSlot waits until not too many watchers read, but not for long: requests would pile up while the store is slow. It
// returns how to give the slot back.
func (w *visibleWatcher) readSlot(ctx context.Context) (release func(), err error) {
	wait := time.NewTimer(contactsSlot)
	defer wait.Stop()
	select {
	case w.contactReads <- struct{}{}:
		return func() { <-w.contactReads }, nil
	case <-wait.C:
		return nil, fmt.Errorf("%w: too many watchers read contacts", store.ErrUnavailable)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// settleContacts reads contacts until none is due: what was read of the feed before can be of a time after that. It
// returns an error if they change all the time.
func (w *visibleWatcher) settleContacts(ctx context.Context) error {
	for range maxPolls {
		if err := w.readContacts(ctx); err != nil {
			return err
		}
		if w.notice(); len(w.due) == 0 {
			return nil
		}
	}
	return errContactsChange
}

var errContactsChange = fmt.Errorf("%w: contacts change all the time", store.ErrUnavailable)

// readContacts reads the contacts that are due, and notes those that change meanwhile. After an error they still are.
func (w *visibleWatcher) readContacts(ctx context.Context) error {
	w.notice()
	if len(w.due) == 0 {
		return nil
	}
	release, err := w.readSlot(ctx)
	if err != nil {
		return err
	}
	defer release()
	due := w.due
	w.due = map[string]struct{}{}
	if _, own := due[w.owner]; own {
		err = w.readOwn(ctx, due)
	}
	if err == nil {
		err = w.readSeen(ctx, due)
	}
	if err != nil {
		maps.Copy(w.due, due)
	}
	return err
}

// readSeen reads whether the viewer sees users, and follows those whom the viewer sees. Users who become visible are
// read from the store after their contacts: what was read of the feed before can be of a time when the viewer did not
// see them. So may be what it has of users who are visible again, after they changed their contacts more than once.
func (w *visibleWatcher) readSeen(ctx context.Context, due map[string]struct{}) error {
	users := slices.DeleteFunc(w.names(), func(name string) bool {
		_, is := due[name]
		return !is
	})
	seen, err := w.areSeen(ctx, users)
	if err != nil {
		return err
	}
	return w.follow(ctx, users, seen, nil, func(name string) bool { return name != w.viewer.user })
}

// follow notes for each user whether the viewer sees them, and follows those alone: nothing is read of others. It reads
// those again for whom again says so, and no longer follows those to remove. After an error nothing has changed.
func (w *visibleWatcher) follow(
	ctx context.Context, users []string, seen []bool, remove []string, again func(name string) bool,
) error {
	c := feed.Change{Remove: slices.Clone(remove)}
	for k, name := range users {
		u := w.users[name]
		switch {
		case seen[k] && (!u.seen || again(name)):
			c.Add = append(c.Add, name)
		case !seen[k] && u.seen:
			c.Remove = append(c.Remove, name)
		}
	}
	if len(c.Add)+len(c.Remove) > 0 {
		b, err := w.inner.Change(ctx, c)
		if err != nil {
			return err
		}
		w.take(b)
	}
	for k, name := range users {
		w.show(name, seen[k])
	}
	return nil
}

// areSeen reports for each user whether the viewer sees them.
func (w *visibleWatcher) areSeen(ctx context.Context, users []string) ([]bool, error) {
	if !w.viewer.restricted {
		return slices.Repeat([]bool{true}, len(users)), nil
	}
	return seenBy(ctx, w.Store.AreContacts, w.namespace, w.viewer.user, users)
}

// listOwn returns the contacts of the owner. It charges each page after the first.
func (w *visibleWatcher) listOwn(ctx context.Context, charge func() error) (contacts []string, err error) {
	if w.owner == "" {
		return nil, nil
	}
	err = eachPage(ctx, w.Store.ListContacts, w.namespace, w.owner, charge, func(page []string) error {
		contacts = append(contacts, page...)
		return nil
	})
	return contacts, err
}

// readOwn reads the contacts of the owner, and watches those who were added, whose contacts are due as well, and no
// longer those who were removed.
func (w *visibleWatcher) readOwn(ctx context.Context, due map[string]struct{}) error {
	contacts, err := w.listOwn(ctx, func() error { return nil })
	if err != nil {
		return err
	}
	before := w.names()
	added, removed := without(contacts, before), without(before, contacts)
	if len(added)+len(removed) == 0 {
		return nil
	}
	if err := w.count(max(len(contacts), len(before))); err != nil {
		return err
	}
	if _, err := w.inner.Change(ctx, feed.Change{Remove: removed}); err != nil {
		return err
	}
	w.inner.Ignore(removed...)
	w.remove(removed)
	w.begin(added, due)
	if !w.query.Everyone {
		w.tellMembers(added)
	}
	return w.count(len(contacts))
}

// without returns the names of one list that are not in another one, each once.
func without(names, others []string) []string {
	set := make(map[string]struct{}, len(others))
	for _, name := range others {
		set[name] = struct{}{}
	}
	rest := []string{}
	for _, name := range names {
		if _, ok := set[name]; !ok {
			set[name] = struct{}{}
			rest = append(rest, name)
		}
	}
	return rest
}

// count counts so many users at the hub. Contacts also count to the caller, as users who are named are; one counts
// already, for the watcher itself. Fewer than before is no error.
func (w *visibleWatcher) count(users int) error {
	if w.owner != "" {
		if err := w.contacts.set(max(0, users-1), w.caller); err != nil {
			return err
		}
	}
	if err := w.Feeds.Reserve(users - w.reserved); err != nil {
		return err
	}
	w.reserved = users
	return nil
}

// Change changes which users are watched: see [feed.Watcher.Change]. It is called after the first batch.
func (w *visibleWatcher) Change(ctx context.Context, c feed.Change) (b feed.Batch, err error) {
	if w.query.Everyone {
		return b, feed.ErrEveryone
	}
	added, removed := without(c.Add, nil), without(c.Remove, c.Add)
	if len(without(w.names(), removed))+len(without(added, w.names())) > store.MaxWatched {
		return b, feed.ErrTooManyUsers // before contacts are read
	}
	defer func() { _ = w.count(len(w.order)) }() // gives back what was counted in vain
	if len(added) == 0 {
		if b, err = w.inner.Change(ctx, feed.Change{Remove: removed}); err != nil {
			return feed.Batch{}, err
		}
		w.forget(removed)
		if b.Places = nil; w.begun {
			b.Places = []store.Place{w.place()}
		}
		return b, nil
	}
	unknown := without(added, w.names())
	if err := w.count(len(w.order) + len(unknown)); err != nil {
		return b, err
	}
	w.dependOn(unknown) // before their contacts are read
	if b, err = w.change(ctx, added, removed, c.After); err != nil {
		w.inner.Ignore(unknown...)
		return feed.Batch{}, err
	}
	return b, nil
}

// forget stops watching users for good.
func (w *visibleWatcher) forget(names []string) {
	w.inner.Ignore(without(names, without(names, w.names()))...)
	w.remove(names)
	w.drop()
}

// change is Change for users to add.
func (w *visibleWatcher) change(
	ctx context.Context, added, removed []string, after []store.Place,
) (b feed.Batch, err error) {
	if err := w.readContacts(ctx); err != nil { // so that the places fit all
		return b, err
	}
	seen, err := w.areSeen(ctx, added)
	if err != nil {
		return b, err
	}
	if err := w.exchange(ctx, added, removed, seen); err != nil {
		return b, err
	}
	b.Users = w.tellAdded(added, after)
	others, _ := w.tell(store.MaxWatched)
	b.Users, b.AsOf, b.Places = append(b.Users, others...), w.asOf, []store.Place{w.place()}
	return b, nil
}

// exchange begins to watch the users added, and stops watching those removed. The list seen says for each user added
// whether the viewer sees them. It reads contacts that change meanwhile again, because the feed already has what
// happened after that change; if it cannot, the watcher ends.
func (w *visibleWatcher) exchange(ctx context.Context, added, removed []string, seen []bool) error {
	unknown := without(added, w.names())
	w.add(unknown)
	if err := w.follow(ctx, added, seen, removed, func(string) bool { return true }); err != nil {
		w.forget(unknown)
		return err
	}
	w.forget(removed)
	w.broken = w.settleContacts(ctx)
	return w.broken
}
