package memstore

import (
	"sort"
	"strings"

	"github.com/tidwall/btree"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/memstore/packed"
)

// availabilityTable holds the availability of the users of one namespace, and their hidden times. A namespace in which
// no user has set an availability, and no device has been idle, has no table.
//
// The trees have everything that is in the data file. They are by the ID of the user, because a user who was trimmed
// has no reference. The map has what others see of the users who have a state, by the reference to their ID: reads need
// only look there, and only for users who are marked in [users].
type availabilityTable struct {
	details        map[packed.Ref]*store.Details // of users who have a state
	availabilities btree.Map[string, *lastseen.AvailabilityState]
	ends           *btree.BTreeG[userTime] // of availabilities with an end
	hidden         btree.Map[string, *Hidden]
	listed         int    // users in availabilities who have a state
	bytes          int64  // about how many bytes the table takes in a data file
	purged         string // the last user that nextHidden returned; "" for the first ones

	// In memory only; also of users without a state.
	inCalls  map[string]lastseen.Instant // until when users are in a call
	callEnds *btree.BTreeG[userTime]     // of the same
}

// userTime is a time at which a user's availability ends, or the user's call, or the last use of the user's contacts.
type userTime struct {
	at   lastseen.Instant
	user string
}

func (a userTime) before(b userTime) bool { return a.at < b.at || a.at == b.at && a.user < b.user }

func newUserTimes() *btree.BTreeG[userTime] {
	return btree.NewBTreeGOptions(userTime.before, btree.Options{NoLocks: true})
}

// Hidden is [store.KeptHidden].
type Hidden = store.KeptHidden

// privateAvailability returns the availability that the user alone sees, which may have ended; nothing once the user
// ended it.
func privateAvailability(h Hidden) lastseen.AvailabilityState {
	if h.End == 0 || h.Ended {
		return lastseen.AvailabilityState{}
	}
	return lastseen.AvailabilityState{Availability: lastseen.Invisible, Note: h.Note, Until: h.Until}
}

func newAvailabilityTable() *availabilityTable {
	return &availabilityTable{
		details: map[packed.Ref]*store.Details{}, ends: newUserTimes(),
		inCalls: map[string]lastseen.Instant{}, callEnds: newUserTimes(),
	}
}

func availabilityBytes(user string, s lastseen.AvailabilityState) int64 {
	return int64(len(user)+len(s.Availability)+len(s.Note)) + 4 + timeBytes(s.Until)
}

func hiddenBytes(user string, h Hidden) int64 {
	return int64(len(user)+len(h.Note)) + 4 + timeBytes(h.End) + timeBytes(h.Until)
}

func timeBytes(at lastseen.Instant) int64 {
	if at == 0 {
		return 1
	}
	return 6 // until the year 2039
}

// availabilityOf returns what others see of a user's availability. It may have ended.
func (p *availabilityTable) availabilityOf(user string) lastseen.AvailabilityState {
	if p == nil || p.availabilities.Len() == 0 {
		return lastseen.AvailabilityState{}
	}
	if s, ok := p.availabilities.Get(user); ok {
		return *s
	}
	return lastseen.AvailabilityState{}
}

// hiddenOf returns the hidden time of a user.
func (p *availabilityTable) hiddenOf(user string) Hidden {
	if p != nil {
		if h, ok := p.hidden.Get(user); ok {
			return *h
		}
	}
	return Hidden{}
}

// set stores a user's availability, in copies of the texts: they may be parts of a larger buffer. See users.describe.
func (p *availabilityTable) set(user string, s lastseen.AvailabilityState) {
	if old, ok := p.availabilities.Get(user); ok {
		p.bytes -= availabilityBytes(user, *old)
		p.ends.Delete(userTime{old.Until, user})
	}
	if s == (lastseen.AvailabilityState{}) {
		p.availabilities.Delete(user)
		return
	}
	user = strings.Clone(user)
	s.Note = strings.Clone(s.Note)
	p.availabilities.Set(user, &s)
	p.bytes += availabilityBytes(user, s)
	if s.Until != 0 {
		p.ends.Set(userTime{s.Until, user})
	}
}

// hide stores the hidden time of a user.
func (p *availabilityTable) hide(user string, h Hidden) {
	if old, ok := p.hidden.Get(user); ok {
		p.bytes -= hiddenBytes(user, *old)
	}
	if h == (Hidden{}) {
		p.hidden.Delete(user)
		return
	}
	h.Note = strings.Clone(h.Note)
	p.hidden.Set(strings.Clone(user), &h)
	p.bytes += hiddenBytes(user, h)
}

// size returns about how many bytes the table takes in a data file.
func (p *availabilityTable) size() int64 {
	if p == nil {
		return 0
	}
	return p.bytes
}

// others returns what others see of a user besides the state, but for idleness.
func (p *availabilityTable) others(user string) store.Details {
	return store.Details{Availability: p.availabilityOf(user), InCallUntil: p.inCallOf(user)}
}

// firstUntil returns the first times up to one.
func firstUntil(all *btree.BTreeG[userTime], at lastseen.Instant, limit int) (first []userTime) {
	all.Scan(func(t userTime) bool {
		if t.at > at || len(first) == limit {
			return false
		}
		first = append(first, t)
		return true
	})
	return first
}

// endsIn returns the ends in a time, one at a time.
func endsIn(all *btree.BTreeG[userTime], r lastseen.Range) func() (transition, bool) {
	iter := all.Iter()
	more := iter.Seek(userTime{at: r.From})
	return func() (transition, bool) {
		if !more {
			return transition{}, false
		}
		e := iter.Item()
		more = iter.Next()
		return transition{user: e.user, at: e.at, ends: true}, e.at <= r.To
	}
}

// countEnds returns the number of ends in a time.
func countEnds(all *btree.BTreeG[userTime], r lastseen.Range) int64 {
	before := func(at lastseen.Instant) int {
		return sort.Search(all.Len(), func(i int) bool {
			e, _ := all.GetAt(i)
			return e.at >= at
		})
	}
	return int64(before(r.To+1) - before(r.From))
}

// nextHidden returns users who have a hidden time: those after the ones of the last call, and after the last one the
// first ones again.
func (p *availabilityTable) nextHidden(limit int) (users []string) {
	p.hidden.Ascend(p.purged, func(user string, _ *Hidden) bool {
		if user != p.purged {
			users = append(users, user)
		}
		return len(users) < limit
	})
	p.purged = ""
	if len(users) == limit {
		p.purged = users[limit-1]
	}
	return users
}

// hasAny reports whether a user has an availability that others see and that has not ended.
func (p *availabilityTable) hasAny(now lastseen.Instant) bool {
	if p == nil || p.availabilities.Len() == 0 {
		return false
	}
	last, _ := p.ends.Max()
	return p.availabilities.Len() > p.ends.Len() || last.at > now
}

// empty reports whether there is nothing to keep if the namespace has no users.
func (p *availabilityTable) empty() bool {
	return p == nil || p.availabilities.Len() == 0 && p.hidden.Len() == 0
}

// freeze returns what of the table is in the data file, to be read without a lock.
func (p *availabilityTable) freeze() *availabilityTable {
	if p.empty() {
		return nil
	}
	return &availabilityTable{availabilities: *p.availabilities.Copy(), hidden: *p.hidden.Copy()}
}

// scan adds the availability of a namespace to a log; see frozen.scan.
func (p *availabilityTable) scan(log Log, namespace string, written func() bool) {
	if p == nil {
		return
	}
	p.availabilities.Scan(func(user string, s *lastseen.AvailabilityState) bool {
		log.SetAvailability(namespace, user, *s)
		return written()
	})
	p.hidden.Scan(func(user string, h *Hidden) bool {
		log.Hide(namespace, user, *h)
		return written()
	})
}
