package memstore

import (
	"context"
	"strings"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// setContacts stores the contacts of an owner.
func (u *users) setContacts(owner string, kept ownedContacts) {
	if u.contacts == nil {
		if kept.list == "" {
			return
		}
		u.contacts = newContactTable()
	}
	u.bytes += u.contacts.set(owner, kept)
}

func (t *transaction) contactsOf(key lastseen.UserKey) ownedContacts {
	if kept, ok := t.contacts[key]; ok {
		return kept
	}
	return t.index.usersOf(key.Namespace).contacts.of(key.User)
}

// setContacts changes the contacts of an owner, or the last use, from what they were.
func (t *transaction) setContacts(key lastseen.UserKey, old, now ownedContacts) {
	if now.list == "" {
		now.used = 0
	}
	if old == now {
		return
	}
	add, remove := old.list.difference(now.list)
	t.log.ChangeContacts(key.Namespace, key.User, now.used, add, remove)
	if t.staged == nil {
		t.makeContacts(key, now)
		return
	}
	t.contacts[key] = now
}

// makeContacts makes a change of contacts to the index, and appends it to the feed of the namespace, if there is one.
func (t *transaction) makeContacts(key lastseen.UserKey, now ownedContacts) {
	old := t.index.usersOf(key.Namespace).contacts.of(key.User)
	t.index.change(key.Namespace, func(u *users) { u.setContacts(key.User, now) })
	n, _ := t.index.namespaces.Get(key.Namespace)
	if n != nil && n.feed != nil && old.list != now.list {
		n.feed.changedContacts(key.User, t)
	}
}

// SetContacts implements [store.Store].
func (s *Store) SetContacts(ctx context.Context, name, owner string, contacts []string) error {
	contacts, _ = store.ContactChanges(contacts, nil)
	list := newContactList(contacts)
	return s.writeContacts(ctx, name, owner, func(contactList) contactList { return list })
}

// ChangeContacts implements [store.Store].
func (s *Store) ChangeContacts(ctx context.Context, name, owner string, add, remove []string) error {
	add, remove = store.ContactChanges(add, remove)
	return s.writeContacts(ctx, name, owner, func(old contactList) contactList { return old.change(add, remove) })
}

// writeContacts changes the contacts of an owner. The write can outlast the call, so the result of change must not
// depend on what the caller passed in.
func (s *Store) writeContacts(
	ctx context.Context, name, owner string, change func(old contactList) contactList,
) error {
	var known contactList
	name, owner = strings.Clone(name), strings.Clone(owner)
	err := s.readIn(ctx, name, func(n *namespace) { known = n.users.contacts.of(owner).list })
	if err != nil {
		return err
	}
	changed := change(known) // here, and not while all other writes wait
	_, err = write(ctx, s, Write{Durable: true}, func(t *transaction) (none struct{}, err error) {
		key := lastseen.UserKey{Namespace: name, User: owner}
		old, list := t.contactsOf(key), changed
		if old.list != known {
			list = change(old.list)
		}
		// A use that happens now is not noted as earlier: a clock that is behind must not make contacts look old.
		newest := t.index.usersOf(name).contacts.newest()
		now := ownedContacts{list: list, used: max(old.used, newest, s.tables.readClock())}
		switch {
		case old.list == "" && now.list == "":
			return none, nil
		case now.list.len() > store.MaxContacts:
			return none, store.ErrTooManyContacts
		case now.list != "":
			if err := t.ensure(name); err != nil {
				return none, err
			}
		}
		t.setContacts(key, old, now)
		return none, nil
	})
	return err
}

// ListContacts implements [store.Store].
func (s *Store) ListContacts(
	ctx context.Context, name, owner, after string, limit int,
) (page []string, err error) {
	err = s.readIn(ctx, name, func(n *namespace) {
		list := n.users.contacts.of(owner).list
		first := list.after(after)
		page = list.slice(first, min(list.len(), first+limit))
	})
	return page, err
}

// AreContacts implements [store.Store].
func (s *Store) AreContacts(ctx context.Context, name string, pairs []store.ContactPair) ([]bool, error) {
	are := make([]bool, len(pairs))
	err := s.readIn(ctx, name, func(n *namespace) {
		for i, p := range pairs {
			are[i] = n.users.contacts.of(p.Owner).list.has(p.Contact)
		}
	})
	return are, err
}

// TrimContacts implements [store.Store].
func (s *Store) TrimContacts(
	ctx context.Context, namespace string, q store.TrimQuery,
) (store.ContactsTrimResult, error) {
	return write(ctx, s, Write{Alone: true}, func(t *transaction) (result store.ContactsTrimResult, err error) {
		n, ok := t.index.namespaces.Get(namespace)
		if !ok || n.users.contacts.empty() {
			return result, nil
		}
		now := s.tables.readClock()
		if err := q.CheckClock(now); err != nil {
			return result, err
		}
		trim := contactsTrim{t: t, n: n, namespace: namespace, now: now, cutoff: now.Add(-q.Age)}
		return trim.run(q.All), nil
	})
}

// contactsTrim is a call of TrimContacts about a namespace with contacts.
type contactsTrim struct {
	t         *transaction
	n         *namespace
	namespace string
	now       lastseen.Instant
	cutoff    lastseen.Instant // contacts are deleted if their owner's last use was before it
	stays     bool             // contacts of one owner are left, at least
}

// run deletes contacts. With all, it does so even if none would be left.
func (c *contactsTrim) run(all bool) (result store.ContactsTrimResult) {
	stale, more := c.stale()
	if len(stale) > 0 && !all && !c.stays {
		return store.ContactsTrimResult{Held: true}
	}
	result.More = more
	for _, key := range stale {
		count := c.t.contactsOf(key).list.len()
		if result.Contacts+count > store.MaxContacts {
			result.More = true
			break
		}
		c.t.setContacts(key, c.t.contactsOf(key), ownedContacts{})
		result.Owners++
		result.Contacts += count
	}
	return result
}

// stale returns the owners whose contacts can be deleted, and whether there may be more of them. It raises the last use
// that is known of others.
func (c *contactsTrim) stale() (stale []lastseen.UserKey, more bool) {
	table := c.n.users.contacts
	c.stays = table.newest() >= c.cutoff
	old := firstUntil(table.uses, c.cutoff-1, store.MaxTrim)
	for _, use := range old {
		key := lastseen.UserKey{Namespace: c.namespace, User: use.user}
		kept := c.t.contactsOf(key)
		if used := c.lastUse(use.user, kept); used >= c.cutoff {
			c.stays = true
			c.t.setContacts(key, kept, ownedContacts{kept.list, used})
			continue
		}
		stale = append(stale, key)
	}
	return stale, len(old) == store.MaxTrim
}

// lastUse returns the last use of an owner; if none is known the present, or the newest use if that is later.
func (c *contactsTrim) lastUse(owner string, kept ownedContacts) lastseen.Instant {
	if kept.used == 0 {
		return max(c.now, c.n.users.contacts.newest())
	}
	used := max(kept.used, c.n.get(owner).At)
	h := c.n.users.availability.hiddenOf(owner)
	if h.Ended && h.End > c.now.Add(store.MaxAhead) {
		return used // a clock was wrong: see [lastseen.HiddenTime]
	}
	return max(used, min(h.End, c.now))
}

// noteUse notes that a user used something, if the user has contacts.
func (t *transaction) noteUse(key lastseen.UserKey, at lastseen.Instant) {
	kept := t.contactsOf(key)
	if kept.list != "" && kept.used < at {
		t.setContacts(key, kept, ownedContacts{kept.list, at})
	}
}
