package filestore

import (
	"context"
	"encoding/binary"
	"strings"

	"github.com/lastseen/lastseen/store"
)

// The change to contacts:
//
//	change = 'c' owner count added… count removed…  these contacts were added to the list of the owner, and then these
//	                                                removed, each in bytewise order
//	owner, added, removed = length as uvarint, bytes;  count = uvarint, at most store.MaxContacts
//
// It states a result for each contact in it, so replaying a run twice has the same result as replaying it once. The
// list as a whole would make each small change to a long list a long one.

// changeContacts adds a change to the contacts of an owner.
func (c *changes) changeContacts(namespace, owner string, add, remove []string) {
	c.in(namespace)
	c.users++
	c.buf = appendString(append(c.buf, changeContacts), owner)
	for _, contacts := range [][]string{add, remove} {
		c.buf = binary.AppendUvarint(c.buf, uint64(len(contacts)))
		for _, contact := range contacts {
			c.buf = appendString(c.buf, contact)
		}
	}
}

func (u *users) replayContacts(owner string, rest *cutter) {
	add, remove := rest.contacts(), rest.contacts()
	list := u.contacts.of(owner).change(add, remove)
	if rest.failed || owner == "" {
		rest.fail()
		return
	}
	u.setContacts(owner, list)
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
func (u *users) setContacts(owner string, list contactList) {
	if u.contacts == nil {
		if list == "" {
			return
		}
		u.contacts = &contactTable{}
	}
	u.bytes += u.contacts.set(owner, list)
}

// contactsOf returns the contacts of an owner.
func (x *index) contactsOf(namespace, owner string) contactList {
	if n, ok := x.namespaces.Get(namespace); ok {
		return n.users.contacts.of(owner)
	}
	return ""
}

// setContacts stores the contacts of an owner.
func (x *index) setContacts(namespace, owner string, list contactList) {
	if n, ok := x.namespaces.Get(namespace); ok {
		bytes := n.users.bytes
		n.users.setContacts(owner, list)
		x.live += n.users.bytes - bytes
	}
}

func (t *transaction) contactsOf(namespace, owner string) contactList {
	if list, ok := t.contacts[userKey{namespace, owner}]; ok {
		return list
	}
	return t.index.contactsOf(namespace, owner)
}

// setContacts changes the contacts of an owner from one list to another.
func (t *transaction) setContacts(namespace, owner string, old, list contactList) {
	if old == list {
		return
	}
	add, remove := old.difference(list)
	t.log.changeContacts(namespace, owner, add, remove)
	if t.staged == nil {
		t.index.setContacts(namespace, owner, list)
		return
	}
	if t.contacts == nil {
		t.contacts = map[userKey]contactList{}
	}
	t.contacts[userKey{namespace, owner}] = list
}

// forgetContacts deletes the contacts of an owner.
func (t *transaction) forgetContacts(namespace, owner string) {
	t.setContacts(namespace, owner, t.contactsOf(namespace, owner), "")
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
	name, owner = strings.Clone(name), strings.Clone(owner)
	err := s.writer.do(ctx, write{durable: true, op: opFunc(func(t *transaction) {
		old := t.contactsOf(name, owner)
		list := change(old)
		switch {
		case list == old:
			return
		case list.len() > store.MaxContacts:
			failed = store.ErrTooManyContacts
			return
		case list != "":
			if failed = t.ensure(name); failed != nil {
				return
			}
		}
		s.writer.log.need(version3)
		t.setContacts(name, owner, old, list)
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
		list := n.users.contacts.of(owner)
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
			are[i] = n.users.contacts.of(p.Owner).has(p.Contact)
		}
	})
	return are, err
}
