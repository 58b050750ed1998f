package redisstore

import (
	"hash/maphash"
	"sync/atomic"

	"github.com/lastseen/lastseen/store"
)

// marksKept is the number of places for marks, 1 MiB of them. A server that writes 10,000 users per second, with a
// replica that is half a second behind, marks 4 % of them.
const marksKept = 1 << 17

// namespaceMarksKept is the number of places for marks of namespaces, 32 KiB of them. They are not among those of
// users: a server that writes very many of these would mark the lists of namespaces that nobody writes.
const namespaceMarksKept = 1 << 12

// marks remember until which moment a replica cannot know what this process wrote. Users share places: two who have
// the same one count as written both, which costs a read from the primary. So marks take no more memory however many
// users are written, and are never deleted.
type marks struct {
	seed       maphash.Seed
	users      [marksKept]atomic.Int64
	namespaces [namespaceMarksKept]atomic.Int64 // for wholeMark and listMark
}

func newMarks() *marks { return &marks{seed: maphash.MakeSeed()} }

// What else than users is marked. User IDs are not empty and contain no control characters.
const (
	wholeMark = "\x00" // all users of a namespace, and its lists
	listMark  = ""     // the lists of a namespace
)

func (m *marks) place(namespace, user string) *atomic.Int64 {
	var h maphash.Hash
	h.SetSeed(m.seed)
	_, _ = h.WriteString(namespace) // never fails: see [maphash.Hash]
	_ = h.WriteByte(0)
	_, _ = h.WriteString(user)
	if user == wholeMark || user == listMark {
		return &m.namespaces[h.Sum64()%namespaceMarksKept]
	}
	return &m.users[h.Sum64()%marksKept]
}

// set marks a user as written at a moment.
func (m *marks) set(namespace, user string, at store.Moment) {
	place := m.place(namespace, user)
	for {
		before := place.Load()
		if before >= int64(at) || place.CompareAndSwap(before, int64(at)) {
			return
		}
	}
}

// get returns the moment after which a replica knows everything that this process wrote about a user.
func (m *marks) get(namespace, user string) store.Moment {
	return store.Moment(m.place(namespace, user).Load())
}
