package filestore

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// feed is the changes feed of a namespace: one shard, whose entries are in a ring.
type feed struct {
	thresholds lastseen.Thresholds
	watermark  lastseen.Instant
	until      time.Duration // when it expires, by the monotonic clock
	epoch      string        // random, drawn when the feed begins: the first part of its places
	ring
}

// begin starts the feed, or restarts it. Places from before a restart are no longer valid.
func (f *feed) begin(t lastseen.Thresholds, now lastseen.Instant) {
	f.thresholds, f.watermark, f.ring = t, now, ring{}
	f.epoch = strconv.FormatUint(rand.Uint64(), 36) + "-"
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
func (f *feed) wrote(user string, old, now seen, at occasion) {
	if f.ahead(at.now) {
		f.begin(f.thresholds, at.now)
		return
	}
	was, is := f.published(old), f.published(now)
	switch {
	case old.Known() && !now.Known():
		if at.trims && was.Status == lastseen.Grey {
			return // the status is another one only if the feed restarted after the cutoff was computed
		}
	case was.Same(is):
		return
	}
	f.append(user, was, is, at.now, at.monotonic())
}

// occasion is when and why the index changes.
type occasion struct {
	now       lastseen.Instant     // by the store's clock
	monotonic func() time.Duration // read only if there is something to append
	trims     bool                 // the change is one of Trim
}

func (f *feed) append(user string, was, is store.Published, now lastseen.Instant, monotonic time.Duration) {
	f.ring.append(user, event{
		score: scoreOf(is.State), recorded: now, is: lookOf(is), was: lookOf(was),
	}, detailed{is.Details, was.Details}, monotonic)
}

// place returns the place before the entry of a number.
func (f *feed) place(number uint64) store.Place {
	return store.Place(f.epoch + strconv.FormatUint(number, 10))
}

// find returns the number of the entry after a place; false if it is not known which one that is.
func (f *feed) find(after []store.Place) (number uint64, known bool) {
	if len(after) != 1 {
		return 0, false
	}
	digits, ours := strings.CutPrefix(string(after[0]), f.epoch)
	if !ours {
		return 0, false
	}
	number, err := strconv.ParseUint(digits, 10, 64)
	return number, err == nil && f.first <= number && number <= f.next
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
		c.Place = f.place(number + 1)
		r.Changes = append(r.Changes, c)
	}
	r.More = len(r.Changes) > 0 && len(r.Changes) == min(max(r.Limit, 1), store.MaxChangesRead)
	r.Places = []store.Place{f.place(from + limit)}
}
