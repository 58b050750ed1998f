package memstore

import (
	"encoding/binary"
	"slices"
	"sort"
	"strings"

	"github.com/tidwall/btree"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// contactTable holds the contacts of one namespace by their owner. Owners need not have a state.
type contactTable struct {
	lists btree.Map[string, ownedContacts] // none is empty
	uses  *btree.BTreeG[userTime]          // the owners by their last use; nil in a table that was frozen
}

// ownedContacts are the contacts of an owner. The zero value is that of a user without any.
type ownedContacts struct {
	list contactList
	used lastseen.Instant // the last use that is known, see [store.Contacts]; 0 for none
}

func newContactTable() *contactTable { return &contactTable{uses: newUserTimes()} }

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
		last, _ := t.uses.Delete(userTime{old.used, owner})
		owner = last.user // the copy below
	}
	if kept.list == "" {
		t.lists.Delete(owner)
	} else {
		if !known {
			owner = strings.Clone(owner)
		}
		t.lists.Set(owner, kept)
		t.uses.Set(userTime{kept.used, owner})
	}
	return contactBytes(owner, kept) - contactBytes(owner, old)
}

// newest returns the newest last use; 0 if there is none.
func (t *contactTable) newest() lastseen.Instant {
	if t == nil {
		return 0
	}
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

// scan adds the contacts of a namespace to a log; see frozen.scan.
func (t *contactTable) scan(log Log, namespace string, written func() bool) {
	if t == nil {
		return
	}
	t.lists.Scan(func(owner string, kept ownedContacts) bool {
		log.ChangeContacts(namespace, owner, kept.used, kept.list.all(), nil)
		return written()
	})
}

// contactList holds the contacts of one owner, in bytewise order. It is one text, without a pointer for each contact:
// the number of contacts, the offset at which each ends in what follows, all as four bytes, and the IDs one after the
// other. It is empty without contacts, and never changes.
type contactList string

// newContactList returns the list of contacts that are in order, each once.
func newContactList(contacts []string) contactList {
	if len(contacts) == 0 {
		return ""
	}
	size := 4 + 4*len(contacts)
	for _, contact := range contacts {
		size += len(contact)
	}
	b := binary.LittleEndian.AppendUint32(make([]byte, 0, size), uint32(len(contacts)))
	end := 0
	for _, contact := range contacts {
		end += len(contact)
		b = binary.LittleEndian.AppendUint32(b, uint32(end))
	}
	for _, contact := range contacts {
		b = append(b, contact...)
	}
	return contactList(b)
}

// number returns the number at an index: that of contacts, or the end of a contact.
func (l contactList) number(i int) int {
	at := 4 * i
	return int(l[at]) | int(l[at+1])<<8 | int(l[at+2])<<16 | int(l[at+3])<<24
}

func (l contactList) len() int {
	if l == "" {
		return 0
	}
	return l.number(0)
}

// at returns a contact. It shares the memory of the list.
func (l contactList) at(i int) string {
	ids, begin := 4+4*l.len(), 0
	if i > 0 {
		begin = l.number(i)
	}
	return string(l[ids+begin : ids+l.number(i+1)])
}

// after returns the index of the first contact that comes after an ID.
func (l contactList) after(id string) int {
	return sort.Search(l.len(), func(i int) bool { return l.at(i) > id })
}

func (l contactList) has(id string) bool {
	i := l.after(id)
	return i > 0 && l.at(i-1) == id
}

func (l contactList) all() []string { return l.slice(0, l.len()) }

// slice returns the contacts from one index up to another.
func (l contactList) slice(from, to int) []string {
	contacts := make([]string, 0, max(0, to-from))
	for i := from; i < to; i++ {
		contacts = append(contacts, l.at(i))
	}
	return contacts
}

// change returns the list with contacts added and then others removed, both in order and each once.
func (l contactList) change(add, remove []string) contactList {
	all := slices.Concat(l.all(), add)
	slices.Sort(all)
	return newContactList(store.Without(all, remove))
}

// difference returns what change has to add and remove to make another list.
func (l contactList) difference(next contactList) (add, remove []string) {
	i, k := 0, 0
	for i < l.len() || k < next.len() {
		switch {
		case k == next.len() || i < l.len() && l.at(i) < next.at(k):
			remove = append(remove, l.at(i))
			i++
		case i == l.len() || next.at(k) < l.at(i):
			add = append(add, next.at(k))
			k++
		default:
			i, k = i+1, k+1
		}
	}
	return add, remove
}
