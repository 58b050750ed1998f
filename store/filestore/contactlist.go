package filestore

import (
	"encoding/binary"
	"slices"
	"sort"
	"strings"

	"github.com/tidwall/btree"
)

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
	all = slices.DeleteFunc(slices.Compact(all), func(contact string) bool {
		_, found := slices.BinarySearch(remove, contact)
		return found
	})
	return newContactList(all)
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

// contactTable holds the contacts of one namespace: by their owner, lists that are not empty. Owners need not have a
// state.
type contactTable struct {
	lists btree.Map[string, contactList]
}

// of returns the contacts of an owner.
func (t *contactTable) of(owner string) contactList {
	if t == nil {
		return ""
	}
	list, _ := t.lists.Get(owner)
	return list
}

func (t *contactTable) empty() bool { return t == nil || t.lists.Len() == 0 }

// set stores the contacts of an owner. It returns how many bytes more they take in a data file.
func (t *contactTable) set(owner string, list contactList) (bytes int64) {
	var old contactList
	if list == "" {
		old, _ = t.lists.Delete(owner)
	} else {
		old, _ = t.lists.Set(strings.Clone(owner), list)
	}
	return contactBytes(owner, list) - contactBytes(owner, old)
}

// contactBytes returns about how many bytes a list takes in a data file.
func contactBytes(owner string, list contactList) int64 {
	if list == "" {
		return 0
	}
	return int64(len(owner)+4) + int64(len(list)) - 3*int64(list.len())
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
		t.lists.Scan(func(owner string, list contactList) bool {
			run.changeContacts(namespace, owner, list.all(), nil)
			more = written()
			return more
		})
	}
	return more
}
