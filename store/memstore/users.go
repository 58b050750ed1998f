package memstore

import (
	"bytes"
	"hash/maphash"
	"maps"
	"slices"
	"strings"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store/memstore/packed"
)

// users finds the users of one namespace by their IDs. Like [names] it contains next to no pointers.
type users struct {
	hash         func(user string) uint64
	names        packed.Names
	bytes        int64              // about how many bytes all users take in a data file
	known        map[uint64]entry   // by the hash of the ID; a reference can have the mark hasDetails
	collisions   map[string]entry   // users whose hash is that of another user in known
	devices      *deviceTable       // nil if no user has had a device
	availability *availabilityTable // nil if no user has set an availability, and no device has been idle
	contacts     *contactTable      // nil if no user has had contacts
	unlisted     bool               // the namespace does not exist; only the availability in it is kept
	scans        epoch              // of the positions of scans
}

// entry is a user and when they were last seen.
type entry struct {
	score packed.Score
	name  packed.Ref
}

func userBytes(length int) int64 { return int64(length) + 9 }

func newUsers() *users {
	seed := maphash.MakeSeed() // random, so that clients cannot choose IDs with the same hash
	u := &users{
		hash:  func(user string) uint64 { return maphash.String(seed, user) },
		known: map[uint64]entry{}, collisions: map[string]entry{}, names: packed.NewNames(),
		scans: newEpoch(),
	}
	return u
}

// find returns the hash of an ID, and the user's entry if it is known, in collisions or not. The entry can be marked as
// hasDetails.
func (u *users) find(user string) (hash uint64, e entry, known, collides bool) {
	hash = u.hash(user)
	if e, ok := u.known[hash]; ok && string(u.names.At(e.name&^hasDetails)) == user {
		return hash, e, true, false
	}
	e, collides = u.collisions[user]
	return hash, e, collides, collides
}

func (u *users) get(user string) (entry, bool) {
	_, e, known, _ := u.find(user)
	e.name &^= hasDetails
	return e, known
}

// set stores a user's score and returns the new entry, and the old one if the user was known. It keeps a copy of the
// ID, which may be part of a larger buffer.
func (u *users) set(user string, c packed.Score) (now, old entry, known bool) {
	hash, old, known, collides := u.find(user)
	now = entry{c, old.name}
	if !known {
		now.name = u.names.Add(user)
		u.bytes += userBytes(len(user))
		_, collides = u.known[hash]
	}
	if collides {
		u.collisions[strings.Clone(user)] = now
	} else {
		u.known[hash] = now
	}
	if !known && u.availability != nil {
		u.describe(user, u.availability.others(user))
	}
	return now.plain(), old.plain(), known
}

// remove deletes a user and returns the old entry, if the user was known. Its name can be read until the next set.
func (u *users) remove(user string) (old entry, known bool) {
	hash, old, known, collides := u.find(user)
	switch {
	case !known:
		return old, false
	case collides:
		delete(u.collisions, user)
	default:
		delete(u.known, hash)
	}
	if old.name&hasDetails != 0 {
		old = old.plain()
		u.undescribe(old.name)
	}
	if u.devices != nil {
		u.bytes += u.devices.set(old.name, lastseen.Devices{}, nil)
	}
	u.names.Remove(old.name)
	u.bytes -= userBytes(len(user))
	return old, true
}

func (u *users) len() int { return len(u.known) + len(u.collisions) }

// all returns the users, in no order.
func (u *users) all() []entry {
	all := slices.AppendSeq(make([]entry, 0, u.len()), maps.Values(u.known))
	all = slices.AppendSeq(all, maps.Values(u.collisions))
	for i, e := range all {
		all[i] = e.plain()
	}
	return all
}

// large reports whether more than the first chunks of memory are in use.
func (u *users) large() bool {
	return u.names.Chunks() > 1 || u.devices != nil && u.devices.texts.Chunks() > 1
}

func (u *users) name(e entry) string { return string(u.names.At(e.name)) }

// before orders entries by score and then by ID, bytewise. Newest first is descending among users who are present, and
// ascending among users who left.
func (u *users) before(a, b entry) bool {
	if a.score != b.score {
		return a.score < b.score
	}
	return a.name != b.name && bytes.Compare(u.names.At(a.name), u.names.At(b.name)) < 0
}
