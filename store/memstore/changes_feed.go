package memstore

import (
	"iter"
	"math/rand/v2"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/memstore/packed"
)

// feed is the changes feed of a namespace: one shard, whose entries are in a ring.
type feed struct {
	thresholds lastseen.Thresholds
	watermark  lastseen.Instant
	until      time.Duration // when it expires, by the monotonic clock
	epoch      epoch         // since the feed began
	ring
}

// begin starts the feed, or restarts it. Positions from before a restart are no longer valid.
func (f *feed) begin(t lastseen.Thresholds, now lastseen.Instant) {
	f.thresholds, f.watermark, f.ring = t, now, ring{}
	f.epoch = newEpoch()
}

// ahead reports whether the feed must restart because the clock was set back and the watermark is too far ahead of it.
// Otherwise the feed would stand still until the clock has caught up.
func (f *feed) ahead(now lastseen.Instant) bool {
	return f.watermark > now.Add(min(store.MaxAhead, f.thresholds.Green/2))
}

func (f *feed) published(s seen) store.Published {
	return store.Publish(f.thresholds, s.State, s.Details, f.watermark)
}

// wrote appends an entry if a write changed what is published about a user.
func (f *feed) wrote(user string, old, now seen, by *transaction) {
	at := by.madeAt()
	if f.ahead(at) {
		f.begin(f.thresholds, at)
		return
	}
	was, is := f.published(old), f.published(now)
	switch {
	case old.Known() && !now.Known():
		if by.trims && was.Status == lastseen.Grey {
			return // the status is another one only if the feed restarted after the cutoff was computed
		}
	case was.Same(is):
		return
	}
	f.append(user, was, is, at, by.index.feeds.monotonic())
}

// changedContacts appends that the contacts of a user changed.
func (f *feed) changedContacts(user string, by *transaction) {
	e := event{recorded: by.madeAt(), is: lookContacts}
	f.ring.append(user, e, detailed{}, by.index.feeds.monotonic())
}

func (f *feed) append(user string, was, is store.Published, now lastseen.Instant, monotonic time.Duration) {
	f.ring.append(user, event{
		score: packed.ScoreOf(is.State), recorded: now, is: lookOf(is), was: lookOf(was),
	}, detailed{is.Details, was.Details}, monotonic)
}

// position returns the position before the entry of a number.
func (f *feed) position(number uint64) store.Position {
	return store.Position(f.epoch.position(number))
}

// find returns the number of the entry after a position; false if it is not known which one that is.
func (f *feed) find(after []store.Position) (number uint64, known bool) {
	if len(after) != 1 {
		return 0, false
	}
	number, ours := f.epoch.number(string(after[0]))
	return number, ours && f.first <= number && number <= f.next
}

// epoch is random: the first part of positions, which those from before a restart do not have.
type epoch string

func newEpoch() epoch { return epoch(strconv.FormatUint(rand.Uint64(), 36) + "-") }

// position returns the position that stands for a number.
func (e epoch) position(number uint64) string { return string(e) + strconv.FormatUint(number, 10) }

// number is the reverse of position. Positions are untrusted: it returns 0 and false for one of another epoch.
func (e epoch) number(position string) (number uint64, ours bool) {
	digits, ours := strings.CutPrefix(position, string(e))
	number, err := strconv.ParseUint(digits, 10, 64)
	if !ours || err != nil {
		return 0, false
	}
	return number, true
}

// read fills in the result of a read.
func (f *feed) read(r *store.ChangesRead) {
	from, known := f.next, true
	if r.After != nil {
		from, known = f.find(r.After)
	}
	r.Watermark, r.Reset = f.watermark, !known
	if r.Reset {
		from = f.next
	}
	limit := min(uint64(max(r.Limit, 1)), store.MaxChangesRead, f.next-from)
	if limit > 0 {
		r.Changes = make([]store.Change, 0, limit)
	}
	for number, e := range f.from(from) {
		if uint64(len(r.Changes)) == limit {
			break
		}
		c := e.change()
		c.Position = f.position(number + 1)
		r.Changes = append(r.Changes, c)
	}
	r.More = len(r.Changes) > 0 && len(r.Changes) == min(max(r.Limit, 1), store.MaxChangesRead)
	r.Positions = []store.Position{f.position(from + limit)}
}

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
	score    packed.Score // 0 for a user who was forgotten
	recorded lastseen.Instant
	name     uint32 // where the user is in names
	length   uint16 // of the user
	is, was  look
}

// look is a status, and whether the user left.
type look uint8

const (
	lookLeft     look = 1 << 7 // besides the index of the status
	lookContacts look = 1 << 6 // of an entry that says that the user's contacts changed
)

func lookOf(p store.Published) look {
	l := look(slices.Index(lastseen.Statuses(), p.Status))
	if p.Left {
		l |= lookLeft
	}
	return l
}

func (l look) left() bool              { return l&lookLeft != 0 }
func (l look) status() lastseen.Status { return lastseen.Statuses()[l&^lookLeft] }

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
	if e.event.is == lookContacts {
		return store.Change{User: string(e.user), Contacts: true, Recorded: e.recorded}
	}
	return store.Change{
		User:      string(e.user),
		Published: store.Published{State: e.score.State(), Status: e.event.is.status(), Details: e.detailed.is},
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
