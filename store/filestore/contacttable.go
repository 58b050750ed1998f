package filestore

import (
	"strings"

	"github.com/tidwall/btree"

	"github.com/lastseen/lastseen"
)

// contactTable holds the contacts of one namespace by their owner. Owners need not have a state.
type contactTable struct {
	lists btree.Map[string, ownedContacts] // none is empty
	uses  *btree.BTreeG[contactUse]        // the owners by their last use; nil in a table that was frozen
}

// ownedContacts are the contacts of an owner. The zero value is that of a user without any.
type ownedContacts struct {
	list contactList
	used lastseen.Instant // the last use that is known, see [store.Contacts]; 0 for none
}

// contactUse is the last use that is known of an owner.
type contactUse struct {
	at    lastseen.Instant
	owner string
}

func (a contactUse) before(b contactUse) bool {
	return a.at < b.at || a.at == b.at && a.owner < b.owner
}

func newContactTable() *contactTable {
	return &contactTable{uses: btree.NewBTreeGOptions(contactUse.before, btree.Options{NoLocks: true})}
}

// of returns the contacts of an owner.
func (t *contactTable) of(owner string) ownedContacts {
	if t == nil {
		return ownedContacts{}
	}
	kept, _ := t.lists.Get(owner)
	return kept
}

func (t *contactTable) empty() bool { return t == nil || t.lists.Len() == 0 }

// set stores the contacts of an owner. It returns how many bytes more they take in a data file.
func (t *contactTable) set(owner string, kept ownedContacts) (bytes int64) {
	old, known := t.lists.Get(owner)
	if known {
		last, _ := t.uses.Delete(contactUse{old.used, owner})
		owner = last.owner // the copy below
	}
	if kept.list == "" {
		t.lists.Delete(owner)
	} else {
		if !known {
			owner = strings.Clone(owner)
		}
		t.lists.Set(owner, kept)
		t.uses.Set(contactUse{kept.used, owner})
	}
	return contactBytes(owner, kept) - contactBytes(owner, old)
}

// oldest returns the first owners whose last known use was before a time, at most limit.
func (t *contactTable) oldest(before lastseen.Instant, limit int) (owners []string) {
	t.uses.Scan(func(u contactUse) bool {
		if u.at >= before || len(owners) == limit {
			return false
		}
		owners = append(owners, u.owner)
		return true
	})
	return owners
}

// newest returns the newest last use; 0 if there is none.
func (t *contactTable) newest() lastseen.Instant {
	last, _ := t.uses.Max()
	return last.at
}

// contactBytes returns about how many bytes contacts take in a data file.
func contactBytes(owner string, kept ownedContacts) int64 {
	if kept.list == "" {
		return 0
	}
	return int64(len(owner)+4) + timeBytes(kept.used) + int64(len(kept.list)) - 3*int64(kept.list.len())
}

// freeze returns the table as it is now, to be read without a lock.
func (t *contactTable) freeze() *contactTable {
	if t.empty() {
		return nil
	}
	return &contactTable{lists: *t.lists.Copy()}
}

// scan adds the contacts of a namespace to a snapshot, and calls written after each change, until it returns false.
func (t *contactTable) scan(run *changes, namespace string, written func() bool) (more bool) {
	more = true
	if t != nil {
		t.lists.Scan(func(owner string, kept ownedContacts) bool {
			run.changeContacts(namespace, owner, kept.used, kept.list.all(), nil)
			more = written()
			return more
		})
	}
	return more
}
