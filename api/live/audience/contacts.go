package audience

import (
	"context"
	"fmt"
	"maps"
	"math"
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

// readSlot waits until not too many watchers read, but not for long: requests would pile up while the store is slow. It
// returns how to give the slot back.
func (o Options) readSlot(ctx context.Context) (release func(), err error) {
	wait := time.NewTimer(contactsSlot)
	defer wait.Stop()
	select {
	case o.reads <- struct{}{}:
		return func() { <-o.reads }, nil
	case <-wait.C:
		return nil, fmt.Errorf("%w: too many watchers read contacts", store.ErrUnavailable)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// readContacts reads the contacts that are due, and notes those that change meanwhile. After an error they still are.
func (w *Watcher) readContacts(ctx context.Context) error {
	w.notice()
	if len(w.due) == 0 {
		return nil
	}
	release, err := w.o.readSlot(ctx)
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

// readSeen reads whether the viewer sees users, and follows those whom the viewer sees: nothing is read of others.
func (w *Watcher) readSeen(ctx context.Context, due map[string]struct{}) error {
	users := slices.DeleteFunc(w.names(), func(name string) bool {
		_, is := due[name]
		return !is
	})
	seen, err := w.query.Viewer.Sees(ctx, w.o.Store, w.query.Namespace, users)
	if err != nil {
		return err
	}
	again := false // what the feed had of them before can be of a time in which the viewer did not see them
	for k, name := range users {
		again = again || seen[k] && w.users[name].seen && name != w.query.Viewer.User
	}
	if err := w.follow(ctx, users, seen, w.since, nil, false); err != nil || !again {
		return err
	}
	if err := w.inner.Refresh(ctx); err != nil {
		return err
	}
	b, err := w.inner.Poll(ctx, math.MaxInt)
	if err == nil {
		w.take(b)
	}
	return err
}

// follow notes for each user whether the viewer sees them, follows those, and no longer follows those to remove. Users
// who were shown to a client that continues do so after its positions; others begin, of those who are followed already
// all or none. What the feed has of them is read after their contacts: before, it could be of a time when the viewer
// did not see them.
func (w *Watcher) follow(
	ctx context.Context, users []string, seen []bool, since []store.Position, remove []string, all bool,
) error {
	kept, c := feed.Change{After: since}, feed.Change{Remove: slices.Clone(remove)}
	for k, name := range users {
		u := w.users[name]
		switch {
		case !seen[k] && u.seen:
			c.Remove = append(c.Remove, name)
		case !seen[k] || u.seen && !all:
		case since != nil && u.sent != nil:
			kept.Add = append(kept.Add, name)
			u.pending = u.pending && u.news != nil // the client still has what it was sent
		default:
			c.Add = append(c.Add, name)
		}
	}
	if len(kept.Add) > 0 {
		if err := w.inner.Refresh(ctx); err != nil {
			return err
		}
	}
	for _, change := range []feed.Change{kept, c} {
		if err := w.changeFeed(ctx, change); err != nil {
			return err
		}
	}
	for k, name := range users {
		if u := w.users[name]; !seen[k] && (u.seen || u.sent != nil) {
			w.hide(u)
		}
	}
	return nil
}

// changeFeed changes whom the watcher follows in the feed.
func (w *Watcher) changeFeed(ctx context.Context, c feed.Change) error {
	if len(c.Add)+len(c.Remove) == 0 {
		return nil
	}
	b, err := w.inner.Change(ctx, c)
	if err != nil {
		return err
	}
	for _, name := range c.Add {
		w.users[name].seen = true
	}
	w.take(b)
	return nil
}

// listOwn returns the contacts of the owner. It charges each page after the first.
func (w *Watcher) listOwn(ctx context.Context, charge func() error) (contacts []string, err error) {
	err = eachPage(ctx, w.o.Store, w.query.Namespace, w.owner, charge, func(page []string) error {
		contacts = append(contacts, page...)
		return nil
	})
	return contacts, err
}

// readOwn reads the contacts of the owner, and watches those who were added, whose contacts are due as well, and no
// longer those who were removed.
func (w *Watcher) readOwn(ctx context.Context, due map[string]struct{}) error {
	contacts, err := w.listOwn(ctx, func() error { return nil })
	if err != nil {
		return err
	}
	before := w.names()
	added, removed := store.Without(contacts, before), store.Without(before, contacts)
	if len(added)+len(removed) == 0 {
		return nil
	}
	if w.broken = w.count(max(len(contacts), len(before))); w.broken != nil {
		return w.broken
	}
	if err := w.changeFeed(ctx, feed.Change{Remove: removed}); err != nil {
		return err
	}
	w.inner.Ignore(removed...)
	w.remove(removed)
	w.begin(added, due)
	if !w.query.Everyone { // the client learns who they are
		for _, name := range added {
			w.put(w.users[name], nil, true)
		}
	}
	return w.count(len(contacts))
}

// count counts so many users at the hub, and contacts to the caller, as users who are named are; one counts already,
// for the watcher itself. Fewer than before is no error.
func (w *Watcher) count(users int) error {
	if w.owner != "" {
		if err := w.query.Count(max(0, users-1)); err != nil {
			return err
		}
	}
	if err := w.o.Feeds.Reserve(users - w.reserved); err != nil {
		return err
	}
	w.reserved = users
	return nil
}

// Change changes which users are watched: see [feed.Watcher.Change]. It is called after the first batch. If it fails in
// the middle, the watcher ends.
func (w *Watcher) Change(ctx context.Context, c feed.Change) (b feed.Batch, err error) {
	if w.query.Everyone {
		return b, feed.ErrEveryone
	}
	added, removed := store.Without(c.Add, nil), store.Without(c.Remove, c.Add)
	unknown := store.Without(added, w.names())
	if len(store.Without(w.names(), removed))+len(unknown) > store.MaxWatched {
		return b, feed.ErrTooManyUsers // before contacts are read
	}
	defer func() { _ = w.count(len(w.order)) }() // gives back what was counted in vain
	if err := w.count(len(w.order) + len(unknown)); err != nil {
		return b, err
	}
	if len(added) == 0 {
		err = w.changeFeed(ctx, feed.Change{Remove: removed})
		if err == nil {
			w.forget(removed)
		}
	} else {
		w.dependOn(unknown) // before their contacts are read
		if b.Users, err = w.change(ctx, added, unknown, removed, c.After); err != nil {
			w.forget(unknown)
		}
	}
	if b.AsOf = w.asOf; err == nil && w.begun {
		b.Positions = []store.Position{w.seal()}
	}
	return b, err
}

// forget stops watching users for good.
func (w *Watcher) forget(names []string) {
	w.inner.Ignore(names...)
	w.drop(names)
}

// change is Change for users to add. It returns those who are to be sent.
func (w *Watcher) change(
	ctx context.Context, added, unknown, removed []string, after []store.Position,
) (users []feed.Update, err error) {
	if err := w.readContacts(ctx); err != nil { // so that the positions fit all
		return nil, err
	}
	seen, err := w.query.Viewer.Sees(ctx, w.o.Store, w.query.Namespace, added)
	if err != nil {
		return nil, err
	}
	w.add(unknown)
	list := members{users: map[string]*member{}}
	list.add(added)
	since, err := w.continueAfter(ctx, after, &list)
	if err != nil {
		return nil, err
	}
	if w.broken = w.follow(ctx, added, seen, since, removed, true); w.broken == nil {
		w.forget(removed)
		// Contacts that change meanwhile are read again, because the feed already has what happened after that.
		w.broken = w.settle(ctx, math.MaxInt)
	}
	if w.broken != nil {
		return nil, w.broken
	}
	for _, name := range added {
		if u := w.users[name]; u.pending || since == nil {
			if update, ok := u.send(); ok || since == nil {
				users = append(users, update)
			}
		}
	}
	return append(users, w.flush()...), nil
}
