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
	return &users{
		hash:  func(user string) uint64 { return maphash.String(seed, user) },
		known: map[uint64]entry{},
	}
}

// get returns a user's entry, if they are known.
func (u *users) get(user string) (entry, bool) {
	if e, ok := u.known[u.hash(user)]; ok && string(u.names.at(e.name)) == user {
		return e, true
	}
	e, ok := u.twins[user]
	return e, ok
}

// set stores a user's score and returns the entry, and the one before if they were known. It keeps a copy of
// the ID: what came in may be part of a larger buffer.
func (u *users) set(user string, c score) (now, old entry, known bool) {
	old, known = u.get(user)
	now = entry{c, old.name}
	if !known {
		now.name = u.names.add(user)
	}
	hash := u.hash(user)
	first, taken := u.known[hash]
	_, twin := u.twins[user]
	if twin || taken && first.name != now.name {
		if u.twins == nil {
			u.twins = map[string]entry{}
		}
		u.twins[strings.Clone(user)] = now
	} else {
		u.known[hash] = now
	}
	return now, old, known
}

// remove forgets a user.
func (u *users) remove(user string) {
	e, ok := u.get(user)
	if !ok {
		return
	}
	if _, twin := u.twins[user]; twin {
		delete(u.twins, user)
	} else {
		delete(u.known, u.hash(user))
	}
	u.names.remove(e.name)
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
