package redisstore

import (
	"github.com/redis/go-redis/v9"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// This file marks what this process wrote, so that it is read from the primary until replicas have it. Readers see in
// the header Lastseen-Age whether the primary was read. So what an invisible user does must not be marked, and becoming
// invisible has the marks of a leave: see docs/decisions/replicas.md.

// wrote marks what this process wrote about users. It is called when the write has ended, and before the caller knows.
func (r *replicas) wrote(namespace string, users ...string) {
	if r == nil {
		return
	}
	at := r.beats.moment()
	for _, user := range users {
		r.marks.set(namespace, user, at)
	}
}

// wroteChunk marks the users of a chunk of pings, leaves or sightings of devices, by the reply to it, except users
// whose items were all hidden. If the outcome is unknown, any item may have been hidden: then users are marked only in
// namespaces in which nobody is hidden. user returns the user at a place of the batch.
func (r *replicas) wroteChunk(c *candidate, sent *chunk, reply *redis.Cmd, user func(at int) string) {
	if r == nil {
		return
	}
	hidden, known := hiddenItems(reply)
	if !known && c.bits.hidden.set {
		return
	}
	at := r.beats.moment()
	for i, place := range sent.index {
		if !hidden[int64(i+1)] {
			r.marks.set(c.name, user(place), at)
		}
	}
}

// hiddenItems returns the numbers of the items that a script left out because they are hidden, by its reply; false if
// that is unknown.
func hiddenItems(reply *redis.Cmd) (hidden map[int64]bool, known bool) {
	parts, err := sliceOf(reply.Val(), -1)
	if reply.Err() != nil || err != nil {
		return nil, false
	}
	if len(parts) <= hidesPart {
		return nil, true
	}
	numbers, err := sliceOf(parts[hidesPart], -1)
	hidden = make(map[int64]bool, len(numbers))
	for _, number := range numbers {
		if n, ok := number.(int64); ok {
			hidden[n] = true
		}
	}
	return hidden, err == nil
}

// wroteSaid marks what a user said, by the reply of say.lua; nil if the outcome is unknown. Becoming invisible marks
// the user, as a leave does. It marks nothing if the user was invisible before, or may have been.
func (r *replicas) wroteSaid(namespace, user string, said lastseen.Said, reply []any) {
	switch {
	case said.Availability != lastseen.Invisible || reply != nil && reply[4] == int64(2):
		r.wrote(namespace, user, listMark)
	case reply != nil && reply[4] == int64(1):
		r.wrote(namespace, user)
	}
}

// wroteInCalls marks the users of a chunk whose calls readers can see, and the lists if there is such a user: there has
// 1 for each of them. Other users are not marked, because some may be invisible. After an error nothing is marked,
// because the copy is made again.
func (r *replicas) wroteInCalls(namespace string, sent *chunk, there []int64, in []store.InCall) {
	for i, is := range there {
		if is == 1 {
			r.wrote(namespace, in[sent.index[i]].User, listMark)
		}
	}
}

// listsSince returns the moment after which a replica knows what lists and counts of a namespace must have.
func (r *replicas) listsSince(namespace string) store.Moment {
	return max(r.marks.get(namespace, wholeMark), r.marks.get(namespace, listMark))
}
