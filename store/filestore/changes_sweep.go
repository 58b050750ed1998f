package filestore

import (
	"context"
	"fmt"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// SweepChanges implements [store.Store]. No other process can sweep, so Elsewhere is always false.
func (s *Store) SweepChanges(ctx context.Context, sweeps []*store.ChangesSweep) {
	for _, w := range sweeps {
		*w = store.ChangesSweep{Namespace: w.Namespace, Thresholds: w.Thresholds, Now: w.Now}
		w.Err = s.change(ctx, func(x *index) error { return x.sweep(w) })
	}
}

func (x *index) sweep(w *store.ChangesSweep) error {
	f := x.feed(w.Namespace)
	if f == nil {
		return store.ErrNotRecorded
	}
	now := x.feeds.clock()
	if w.Now > now.Add(store.MaxAhead) {
		return fmt.Errorf("%w: it shows %s, and the sweep's time is %s", store.ErrClockMoved, now, w.Now)
	}
	begin, others := now, f.thresholds != w.Thresholds
	switch {
	case f.ahead(now) || others && now >= f.watermark.Add(store.SweepTakeoverOthers):
		w.Begun = true
	case !others && w.Now > f.watermark:
		n, _ := x.namespaces.Get(w.Namespace)
		w.Begun = !f.sweep(n, w, now, x.feeds.monotonic())
		begin = max(now, w.Now) // after those who were too many
	}
	if w.Begun {
		f.begin(w.Thresholds, begin)
	}
	f.drop(x.feeds.monotonic())
	w.Watermark = f.watermark
	return nil
}

// sweep moves the watermark towards the time of a sweep by one step. It returns false if more users decay than could
// be kept, or too many of them in one millisecond. n is nil if the namespace does not exist.
func (f *feed) sweep(n *namespace, w *store.ChangesSweep, now lastseen.Instant, monotonic time.Duration) bool {
	if n == nil {
		f.watermark = w.Now
		return true
	}
	found := n.decays(f.thresholds, f.watermark, w.Now)
	batch, until, fits := found.step(w.Now)
	w.More = fits && until < w.Now
	if w.More && found.total() > store.MaxChanges {
		fits, w.More = false, false
	}
	if !fits {
		return false
	}
	for _, d := range batch {
		is := store.Publish(f.thresholds, d.State, until)
		if is.Status != d.to {
			continue // a user past both thresholds is once in the feed, as grey
		}
		f.append(d.User, f.published(d.State), is, now, monotonic)
		w.Decays++
	}
	if len(batch) > 0 {
		w.Lag = max(0, time.Duration(now-batch[0].at)*time.Millisecond)
	}
	f.watermark = until
	return true
}

// decay is a user whose status decays at an instant.
type decay struct {
	store.Record
	at lastseen.Instant
	to lastseen.Status
}

// decays finds the users whose status decays in a time, in the order of these instants.
type decays struct {
	n       *namespace
	streams [2]decaying
}

// decaying is the part of decays for one threshold.
type decaying struct {
	after  lastseen.Instant // milliseconds from the last ping to the decay
	to     lastseen.Status
	users  lastseen.Range
	cursor *cursor
	next   decay
	more   bool // there is a next one
}

// decays returns the decays after an instant, up to another one.
func (n *namespace) decays(t lastseen.Thresholds, from, to lastseen.Instant) *decays {
	d := &decays{n: n}
	for i, status := range []lastseen.Status{lastseen.Yellow, lastseen.Grey} {
		after := []time.Duration{t.Green, t.Yellow}[i]
		users := lastseen.Range{From: max(from.Add(-after)+1, lastseen.MinInstant), To: to.Add(-after)}
		s := decaying{after: lastseen.Instant(after.Milliseconds()), to: status, users: users}
		s.cursor = n.cursor(store.ListQuery{Order: store.Oldest}, users, false)
		s.advance()
		d.streams[i] = s
	}
	return d
}

func (s *decaying) advance() {
	s.next.Record, s.more, _ = s.cursor.Next() // a cursor over memory cannot fail
	s.next.at, s.next.to = s.next.At+s.after, s.to
}

// peek returns the stream that has the next decay; nil if there is none.
func (d *decays) peek() *decaying {
	first, second := &d.streams[0], &d.streams[1]
	if !first.more || second.more && second.next.at < first.next.at {
		first = second
	}
	if !first.more {
		return nil
	}
	return first
}

// step returns the decays of one step, and the last instant that it covers: about [store.MaxSweep] of them, but all
// that have the same instant. It returns false if there are more than [store.MaxSweepInstant] of those.
func (d *decays) step(to lastseen.Instant) (batch []decay, until lastseen.Instant, fits bool) {
	for s := d.peek(); s != nil; s = d.peek() {
		if len(batch) >= store.MaxSweep {
			until = s.next.at - 1
			if batch[0].at <= until {
				for batch[len(batch)-1].at > until {
					batch = batch[:len(batch)-1]
				}
				return batch, until, true
			}
			if len(batch) == store.MaxSweepInstant {
				return nil, 0, false
			}
		}
		batch = append(batch, s.next)
		s.advance()
	}
	return batch, to, true
}

// total returns the number of decays, including those of earlier steps from the same instant on.
func (d *decays) total() (total int64) {
	for _, s := range d.streams {
		if s.users.From <= s.users.To {
			total += d.n.count(s.users)
		}
	}
	return total
}
