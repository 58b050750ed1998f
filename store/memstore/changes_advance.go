package memstore

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/tidwall/btree"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// AdvanceChanges implements [store.Store]. No other process can advance, so Elsewhere is always false.
func (s *Store) AdvanceChanges(ctx context.Context, advances []*store.ChangesAdvance) {
	for _, w := range advances {
		*w = store.ChangesAdvance{Namespace: w.Namespace, Thresholds: w.Thresholds, Now: w.Now}
		w.Err = s.change(ctx, func(x *index) error { return x.advance(w) })
	}
}

func (x *index) advance(w *store.ChangesAdvance) error {
	f := x.feed(w.Namespace)
	if f == nil {
		return store.ErrNotRecorded
	}
	now := x.feeds.clock()
	if w.Now > now.Add(store.MaxAhead) {
		return fmt.Errorf("%w: it shows %s, and the advance's time is %s", store.ErrClockMoved, now, w.Now)
	}
	begin, others := now, f.thresholds != w.Thresholds
	switch {
	case f.ahead(now) || others && now >= f.watermark.Add(store.AdvanceTakeoverOthers):
		w.Begun = true
	case !others && w.Now > f.watermark:
		n, _ := x.namespaces.Get(w.Namespace)
		w.Begun = !f.advance(n, w, now, x.feeds.monotonic())
		begin = max(now, w.Now) // after those who were too many
	}
	if w.Begun {
		f.begin(w.Thresholds, begin)
	}
	f.drop(x.feeds.monotonic())
	w.Watermark = f.watermark
	return nil
}

// advance moves the watermark towards the time of an advance by one step. It returns false if more users turn yellow or
// grey than could be kept, or too many of them in one millisecond.
func (f *feed) advance(n *namespace, w *store.ChangesAdvance, at lastseen.Instant, monotonic time.Duration) bool {
	found := n.transitions(f.thresholds, f.watermark, w.Now)
	batch, until, fits := found.step(w.Now)
	w.More = fits && until < w.Now
	if w.More && found.total() > store.MaxChanges {
		fits, w.More = false, false
	}
	if !fits {
		return false
	}
	last := lastOf(batch)
	for i, d := range batch {
		if last != nil && last[d.user] != i {
			continue // with ends, a user is once in the feed
		}
		now := n.seen(d.user)
		is := store.Publish(f.thresholds, now.State, now.Details, until)
		if !d.ends && is.Status != d.to {
			continue // a user past both thresholds is once in the feed, as grey
		}
		was := f.published(now)
		if d.ends && was.Same(is) {
			continue // the call of a grey user ends
		}
		f.append(d.user, was, is, at, monotonic)
		w.Transitions++
	}
	if len(batch) > 0 {
		w.Lag = max(0, at.Sub(batch[0].at))
	}
	f.watermark = until
	return true
}

// lastOf returns the index of the last transition of each user; nil if nothing ends that is in details, as usual.
func lastOf(batch []transition) map[string]int {
	if !slices.ContainsFunc(batch, func(d transition) bool { return d.ends }) {
		return nil
	}
	last := make(map[string]int, len(batch))
	for i, d := range batch {
		last[d.user] = i
	}
	return last
}

// transition is a user whose status changes at an instant, or whose availability or call ends.
type transition struct {
	user string
	at   lastseen.Instant
	to   lastseen.Status
	ends bool
}

// transitions finds the users whose status changes in a period, or whose availability or call ends, in the order of
// these instants.
type transitions struct {
	n       *namespace
	users   [2]lastseen.Range // who turn yellow or grey, for each threshold
	ends    lastseen.Range
	streams [4]stream
}

// stream returns one kind of transitions in order.
type stream struct {
	pull func() (transition, bool)
	next transition
	more bool // there is a next one
}

func (s *stream) advance() { s.next, s.more = s.pull() }

// transitions finds the transitions after an instant, up to another one.
func (n *namespace) transitions(t lastseen.Thresholds, from, to lastseen.Instant) *transitions {
	d := &transitions{n: n, ends: lastseen.Range{From: from + 1, To: to}}
	for i, status := range []lastseen.Status{lastseen.Yellow, lastseen.Grey} {
		after := []time.Duration{t.Green, t.Yellow}[i]
		d.users[i] = lastseen.Range{From: max(from.Add(-after)+1, lastseen.MinInstant), To: to.Add(-after)}
		cursor := n.cursor(store.ListQuery{Order: store.Oldest}, d.users[i], false)
		d.streams[i].pull = func() (transition, bool) {
			r, more, _ := cursor.Next() // a cursor over memory cannot fail
			return transition{user: r.User, at: r.At.Add(after), to: status}, more
		}
		d.streams[i].advance()
	}
	if p := n.users.availability; p != nil {
		for i, ends := range []*btree.BTreeG[userTime]{p.ends, p.callEnds} {
			d.streams[2+i].pull = endsIn(ends, d.ends)
			d.streams[2+i].advance()
		}
	}
	return d
}

// peek returns the stream that has the next transition; nil if there is none.
func (d *transitions) peek() (first *stream) {
	for i := range d.streams {
		if s := &d.streams[i]; s.more && (first == nil || s.next.at < first.next.at) {
			first = s
		}
	}
	return first
}

// step returns the transitions of one step, and the last instant that it covers: about [store.MaxAdvance] of them, but
// all that have the same instant. It returns false if there are more than [store.MaxAdvanceInstant] of those.
func (d *transitions) step(to lastseen.Instant) (batch []transition, until lastseen.Instant, fits bool) {
	for s := d.peek(); s != nil; s = d.peek() {
		if len(batch) >= store.MaxAdvance {
			until = s.next.at - 1
			if batch[0].at <= until {
				for batch[len(batch)-1].at > until {
					batch = batch[:len(batch)-1]
				}
				return batch, until, true
			}
			if len(batch) == store.MaxAdvanceInstant {
				return nil, 0, false
			}
		}
		batch = append(batch, s.next)
		s.advance()
	}
	return batch, to, true
}

// total returns the number of transitions, including those of earlier steps from the same instant on.
func (d *transitions) total() (total int64) {
	for _, users := range d.users {
		if users.From <= users.To {
			total += d.n.count(users)
		}
	}
	if p := d.n.users.availability; p != nil {
		total += countEnds(p.ends, d.ends) + countEnds(p.callEnds, d.ends)
	}
	return total
}
