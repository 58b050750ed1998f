package filestore

import (
	"encoding/binary"
	"slices"
	"sort"

	"github.com/lastseen/lastseen/store"
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
	return newContactList(store.Without(slices.Compact(all), remove))
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
