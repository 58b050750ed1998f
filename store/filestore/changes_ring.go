package filestore

import (
	"iter"
	"sort"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// ring keeps the newest entries of a feed in segments. It grows without copying what is there, which would hold up
// writes, and its segments have next to no pointers for the garbage collector. Entries are numbered from 0 on.
type ring struct {
	segments    []*segment
	first, next uint64 // numbers of the oldest entry that is kept, and of the next one that will be appended
}

// segment is a run of entries. The oldest segment is dropped as a whole.
type segment struct {
	first   uint64 // number of its first entry
	events  []event
	names   []byte           // the users of all entries, one after the other
	details map[int]detailed // of the entries whose users had details, before or after; nil for none
	begun   time.Duration    // when its first entry was appended, by the monotonic clock
	ended   time.Duration    // when its last one was
}

// detailed is what else an entry has.
type detailed struct{ is, was store.Details }

const (
	segmentLen = 1024
	// segmentSpan is for how long entries are added to one segment, and so about how much longer than
	// [store.ChangesKept] an entry can be kept.
	segmentSpan = store.ChangesKept / 10
)

// event is an entry without its number.
type event struct {
	score    score // 0 for a user who was forgotten
	recorded lastseen.Instant
	name     uint32 // where the user is in names
	length   uint16 // of the user
	is, was  look
}

// look is a status, and whether the user left.
type look uint8

const (
	lookYellow look = 1 + iota // green is 0
	lookGrey
	lookLeft look = 1 << 7
)

func lookOf(p store.Published) (l look) {
	switch p.Status {
	case lastseen.Yellow:
		l = lookYellow
	case lastseen.Grey:
		l = lookGrey
	}
	if p.Left {
		l |= lookLeft
	}
	return l
}

func (l look) left() bool { return l&lookLeft != 0 }

func (l look) status() lastseen.Status {
	switch l &^ lookLeft {
	case lookYellow:
		return lastseen.Yellow
	case lookGrey:
		return lastseen.Grey
	default:
		return lastseen.Green
	}
}

// append adds an entry, with a copy of the user's ID, and drops those that are too old or too many.
func (r *ring) append(user string, e event, d detailed, now time.Duration) {
	var last *segment
	if len(r.segments) > 0 {
		last = r.segments[len(r.segments)-1]
	}
	if last == nil || len(last.events) == segmentLen || now-last.begun > segmentSpan {
		last = &segment{first: r.next, begun: now}
		r.segments = append(r.segments, last)
	}
	e.name, e.length = uint32(len(last.names)), uint16(len(user))
	last.names = append(last.names, user...)
	if d != (detailed{}) {
		if last.details == nil {
			last.details = map[int]detailed{}
		}
		last.details[len(last.events)] = d
	}
	last.events = append(last.events, e)
	last.ended = now
	r.next++
	r.drop(now)
}

// drop drops the segments whose entries are all too old, and the oldest ones while there are too many entries.
func (r *ring) drop(now time.Duration) {
	for len(r.segments) > 0 {
		oldest := r.segments[0]
		if r.next-r.first <= store.MaxChanges && now-oldest.ended <= store.ChangesKept {
			return
		}
		r.first = oldest.first + uint64(len(oldest.events))
		r.segments[0] = nil // the array is still used
		r.segments = r.segments[1:]
	}
}

// recorded is an entry that was read.
type recorded struct {
	event
	user []byte
	detailed
}

func (e recorded) change() store.Change {
	return store.Change{
		User:      string(e.user),
		Published: store.Published{State: e.score.state(), Status: e.event.is.status(), Details: e.detailed.is},
		WasStatus: e.event.was.status(), WasLeft: e.event.was.left(), Was: e.detailed.was, Recorded: e.recorded,
	}
}

// from returns the entries that are kept, from a number on, with their numbers.
func (r *ring) from(number uint64) iter.Seq2[uint64, recorded] {
	return func(yield func(uint64, recorded) bool) {
		begin := sort.Search(len(r.segments), func(i int) bool {
			return r.segments[i].first+uint64(len(r.segments[i].events)) > number
		})
		for _, s := range r.segments[begin:] {
			skip := max(number, s.first) - s.first
			for i, e := range s.events[skip:] {
				user := s.names[e.name : e.name+uint32(e.length)]
				if !yield(s.first+skip+uint64(i), recorded{e, user, s.details[int(skip)+i]}) {
					return
				}
			}
		}
	}
}
