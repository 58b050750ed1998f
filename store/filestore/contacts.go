package filestore

import (
	"context"
	"encoding/binary"
	"strings"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// The changes to contacts:
//
//	change = 'u' owner used count added… count removed…  these contacts were added to the list of the owner, and then
//	                                                     these removed, each in bytewise order; the last use that is
//	                                                     known of the owner is now this
//	       | 'c' owner count added… count removed…       the same without a last use, which stays as it is: no version
//	                                                     writes it any longer
//	owner, added, removed = length as uvarint, bytes;  count = uvarint, at most store.MaxContacts
//	used = varint, 0 for unknown
//
// They state a result for each contact in them, so replaying a run twice has the same result as replaying it once. The
// list as a whole would make each small change to a long list a long one.

// changeContacts adds a change to the contacts of an owner, and the last use.
func (c *changes) changeContacts(namespace, owner string, used lastseen.Instant, add, remove []string) {
	c.in(namespace)
	c.users++
	c.buf = appendString(append(c.buf, changeContacts), owner)
	c.buf = binary.AppendVarint(c.buf, int64(used))
	for _, contacts := range [][]string{add, remove} {
		c.buf = binary.AppendUvarint(c.buf, uint64(len(contacts)))
		for _, contact := range contacts {
			c.buf = appendString(c.buf, contact)
		}
	}
}

// replayContacts replays a change to the contacts of an owner; with used, one that has the last use.
func (u *users) replayContacts(owner string, used bool, rest *cutter) {
	kept := u.contacts.of(owner)
	if used {
		kept.used = rest.instant()
	}
	add, remove := rest.contacts(), rest.contacts()
	kept.list = kept.list.change(add, remove)
	if rest.failed || owner == "" || kept.used < 0 || kept.used > lastseen.MaxInstant {
		rest.fail()
		return
	}
	u.setContacts(owner, kept)
}

// contacts reads contacts in bytewise order.
func (c *cutter) contacts() []string {
	count := c.uvarint()
	if count > store.MaxContacts {
		c.fail()
		return nil
	}
	contacts := make([]string, count)
	for i := range contacts {
		contacts[i] = c.string()
		if i > 0 && contacts[i] <= contacts[i-1] {
			c.fail()
			return nil
		}
	}
	return contacts
}

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

// contactsOf returns the contacts of an owner.
func (x *index) contactsOf(key lastseen.UserKey) ownedContacts {
	if n, ok := x.namespaces.Get(key.Namespace); ok {
		return n.users.contacts.of(key.User)
	}
	return ownedContacts{}
}

// setContacts stores the contacts of an owner.
func (x *index) setContacts(key lastseen.UserKey, kept ownedContacts) {
	if n, ok := x.namespaces.Get(key.Namespace); ok {
		bytes := n.users.bytes
		n.users.setContacts(key.User, kept)
		x.live += n.users.bytes - bytes
	}
}

func (t *transaction) contactsOf(key lastseen.UserKey) ownedContacts {
	if kept, ok := t.contacts[key]; ok {
		return kept
	}
	return t.index.contactsOf(key)
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
	t.log.changeContacts(key.Namespace, key.User, now.used, add, remove)
	if t.staged == nil {
		t.index.setContacts(key, now)
		return
	}
	if t.contacts == nil {
		t.contacts = map[lastseen.UserKey]ownedContacts{}
	}
	t.contacts[key] = now
}

// forgetContacts deletes the contacts of an owner.
func (t *transaction) forgetContacts(key lastseen.UserKey) {
	t.setContacts(key, t.contactsOf(key), ownedContacts{})
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
	var failed error
	var known contactList
	name, owner = strings.Clone(name), strings.Clone(owner)
	err := s.readIn(ctx, name, func(n *namespace) { known = n.users.contacts.of(owner).list })
	if err != nil {
		return err
	}
	changed := change(known) // here, and not while all other writes wait
	err = s.writer.do(ctx, write{durable: true, op: opFunc(func(t *transaction) {
		key := lastseen.UserKey{Namespace: name, User: owner}
		old, list := t.contactsOf(key), changed
		if old.list != known {
			list = change(old.list)
		}
		now := ownedContacts{list: list, used: max(old.used, t.newestUse(name), s.readClock())}
		switch {
		case old.list == "" && now.list == "":
			return
		case now.list.len() > store.MaxContacts:
			failed = store.ErrTooManyContacts
			return
		case now.list != "":
			if failed = t.ensure(name); failed != nil {
				return
			}
		}
		s.writer.log.need(version3)
		t.setContacts(key, old, now)
	})})
	if err != nil { // in this order: the write can outlast the call
		return err
	}
	return failed
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
