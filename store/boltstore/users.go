package boltstore

import (
	"bytes"
	"hash/maphash"
	"iter"
	"strings"
)

// users finds the users of one namespace by their IDs. Like [names] it is free of pointers, but for a few.
type users struct {
	hash  func(user string) uint64
	names names
	known map[uint64]entry // by the hash of the ID
	twins map[string]entry // those with whose hash another user is known
}

// entry is a user and when they were last seen.
type entry struct {
	score score
	name  place
}

func newUsers() *users {
	seed := maphash.MakeSeed() // so that nobody can choose IDs with the same hash
	u := &users{
		hash:  func(user string) uint64 { return maphash.String(seed, user) },
		known: map[uint64]entry{},
	}
	u.names.add("") // at noName
	return u
}

// find returns the hash of an ID, and the user's entry if they are known, as a twin or not.
func (u *users) find(user string) (hash uint64, e entry, known, twin bool) {
	hash = u.hash(user)
	if e, ok := u.known[hash]; ok && string(u.names.at(e.name)) == user {
		return hash, e, true, false
	}
	e, twin = u.twins[user]
	return hash, e, twin, twin
}

// get returns a user's entry, if they are known.
func (u *users) get(user string) (entry, bool) {
	_, e, known, _ := u.find(user)
	return e, known
}

// set stores a user's score and returns the entry, and the one before if they were known. It keeps a copy of
// the ID: what came in may be part of a larger buffer.
func (u *users) set(user string, c score) (now, old entry, known bool) {
	hash, old, known, twin := u.find(user)
	now = entry{c, old.name}
	if !known {
		now.name = u.names.add(user)
		_, twin = u.known[hash]
	}
	if !twin {
		u.known[hash] = now
		return now, old, known
	}
	if u.twins == nil {
		u.twins = map[string]entry{}
	}
	u.twins[strings.Clone(user)] = now
	return now, old, known
}

// remove forgets a user and returns the entry before, if they were known. Its name can be read until somebody
// else is set.
func (u *users) remove(user string) (old entry, known bool) {
	hash, old, known, twin := u.find(user)
	switch {
	case !known:
		return old, false
	case twin:
		delete(u.twins, user)
	default:
		delete(u.known, hash)
	}
	u.names.remove(old.name)
	return old, true
}

// len returns how many users there are.
func (u *users) len() int { return len(u.known) + len(u.twins) }

// all goes through the users, in no order.
func (u *users) all() iter.Seq[entry] {
	return func(yield func(entry) bool) {
		for _, e := range u.known {
			if !yield(e) {
				return
			}
		}
		for _, e := range u.twins {
			if !yield(e) {
				return
			}
		}
	}
}

// name returns a copy of the ID of an entry.
func (u *users) name(e entry) string { return string(u.names.at(e.name)) }

// before orders entries by score and then by ID, bytewise. Going down among people present, and up among people
// who left, is newest first.
func (u *users) before(a, b entry) bool {
	if a.score != b.score {
		return a.score < b.score
	}
	return a.name != b.name && bytes.Compare(u.names.at(a.name), u.names.at(b.name)) < 0
}
