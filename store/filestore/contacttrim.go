package filestore

import (
	"context"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// This file deletes the contacts of owners who use nothing any longer.

// TrimContacts implements [store.Store].
func (s *Store) TrimContacts(
	ctx context.Context, namespace string, q store.TrimQuery,
) (store.ContactsTrimResult, error) {
	var result store.ContactsTrimResult
	var moved error
	err := s.writer.do(ctx, write{alone: true, op: opFunc(func(t *transaction) {
		n, ok := t.index.namespaces.Get(namespace)
		if !ok || n.users.contacts.empty() {
			return
		}
		now := s.readClock()
		if moved = q.CheckClock(now); moved == nil {
			trim := contactsTrim{t: t, n: n, namespace: namespace, now: now, cutoff: now.Add(-q.Age)}
			result = trim.run(q.All)
		}
	})})
	if err != nil { // the write can outlast the call: its result is not read
		return store.ContactsTrimResult{}, err
	}
	return result, moved
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
		c.t.forgetContacts(key)
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
	old := table.oldest(c.cutoff, store.MaxTrim)
	for _, owner := range old {
		key := lastseen.UserKey{Namespace: c.namespace, User: owner}
		kept := c.t.contactsOf(key)
		if used := c.lastUse(owner, kept); used >= c.cutoff {
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
	h := c.n.users.people.hiddenOf(owner)
	if h.Ended && h.End > c.now.Add(store.MaxAhead) {
		return used // a clock was wrong: see [lastseen.HiddenTime]
	}
	return max(used, min(h.End, c.now))
}

// newestUse returns the newest last use of contacts in a namespace; 0 for none. A use that happens now is not noted as
// earlier: a clock that is behind must not make contacts look old.
func (t *transaction) newestUse(namespace string) lastseen.Instant {
	if n, ok := t.index.namespaces.Get(namespace); ok && n.users.contacts != nil {
		return n.users.contacts.newest()
	}
	return 0
}

// noteUse notes that a user used something, if the user has contacts.
func (t *transaction) noteUse(key lastseen.UserKey, at lastseen.Instant) {
	kept := t.contactsOf(key)
	if kept.list != "" && kept.used < at {
		t.setContacts(key, kept, ownedContacts{kept.list, at})
	}
}
