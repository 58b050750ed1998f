package memstore

import (
	"sort"
	"strings"

	"github.com/tidwall/btree"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// availabilityTable holds the availability of the users of one namespace, and their hidden times. A namespace in which
// no user has set an availability, and no device has been idle, has no table.
//
// The trees availabilities and hidden have everything that is in the data file, also of users who were trimmed. The map
// has what others see, of users who have any of it: reads look there alone.
type availabilityTable struct {
	details        map[string]*store.Details // never changed in place
	availabilities btree.Map[string, *lastseen.AvailabilityState]
	ends           *btree.BTreeG[userTime] // of availabilities with an end
	callEnds       *btree.BTreeG[userTime] // until when users are in a call; in memory only, as the map
	hidden         btree.Map[string, *Hidden]
	bytes          int64  // about how many bytes the table takes in a data file
	purged         string // the last user that nextHidden returned; "" for the first ones
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

// Hidden is the hidden time of a user, and the user's private availability. The zero value is that of a user without
// one.
type Hidden struct {
	lastseen.HiddenTime
	Until lastseen.Instant // of the user's availability; 0 for no end
	Note  string
}

// availability returns the user's private availability, which may have ended; nothing once the user ended it.
func (h Hidden) availability() lastseen.AvailabilityState {
	if h.End == 0 || h.Ended {
		return lastseen.AvailabilityState{}
	}
	return lastseen.AvailabilityState{Availability: lastseen.Invisible, Note: h.Note, Until: h.Until}
}

func newAvailabilityTable() *availabilityTable {
	return &availabilityTable{details: map[string]*store.Details{}, ends: newUserTimes(), callEnds: newUserTimes()}
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

// find returns the details of a user, also of one without a state; nil if there are none.
func (p *availabilityTable) find(user string) *store.Details {
	if p == nil {
		return nil
	}
	return p.details[user]
}

// detailsOf returns the details of a user; zero if the user has none.
func (p *availabilityTable) detailsOf(user string) store.Details {
	if d := p.find(user); d != nil {
		return *d
	}
	return store.Details{}
}

// describe stores the details of a user, whose ID must not be a part of a larger buffer.
func (p *availabilityTable) describe(user string, d store.Details) {
	if d == (store.Details{}) {
		delete(p.details, user)
	} else {
		p.details[user] = &d
	}
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

// set stores a user's availability, in copies of the texts: they may be parts of a larger buffer.
func (p *availabilityTable) set(user string, s lastseen.AvailabilityState) {
	d := p.detailsOf(user)
	if old, ok := p.availabilities.Get(user); ok {
		p.bytes -= availabilityBytes(user, *old)
		p.ends.Delete(userTime{old.Until, user})
	}
	user = strings.Clone(user)
	s.Note = strings.Clone(s.Note)
	d.Availability = s
	p.describe(user, d)
	if s == (lastseen.AvailabilityState{}) {
		p.availabilities.Delete(user)
		return
	}
	p.availabilities.Set(user, &s)
	p.bytes += availabilityBytes(user, s)
	if s.Until != 0 {
		p.ends.Set(userTime{s.Until, user})
	}
}

// setInCall stores until when a user is in a call; 0 for not.
func (p *availabilityTable) setInCall(user string, until lastseen.Instant) {
	d := p.detailsOf(user)
	if d.InCallUntil == until {
		return
	}
	p.callEnds.Delete(userTime{d.InCallUntil, user})
	user = strings.Clone(user)
	if until != 0 {
		p.callEnds.Set(userTime{until, user})
	}
	d.InCallUntil = until
	p.describe(user, d)
}

// setIdle stores since when a user is idle; 0 for not.
func (p *availabilityTable) setIdle(user string, since lastseen.Instant) {
	if d := p.detailsOf(user); d.IdleSince != since {
		d.IdleSince = since
		p.describe(strings.Clone(user), d)
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
