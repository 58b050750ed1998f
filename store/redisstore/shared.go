package redisstore

import (
	"context"
	"slices"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore/scripts"
)

// This file lists shared sets, which other programs write, too. There any member may have any score, and a millisecond
// several of them: see docs/decisions/redis-keys.md.

// sharedSource reads one range of one shard, in the order of the query: by millisecond, and within one by name. It
// reads a page of the range, and if that ends within a millisecond, that millisecond page by page.
type sharedSource struct {
	listing
	rest        lastseen.Range  // what is still to be read, except the current millisecond
	millisecond *lastseen.Range // the one that is being read, if any
	after       []any           // the last name read in it; none at its start, since a name may be empty
}

// sharedSources opens every range in every shard. They are not read at one moment: a user who moves may be in two.
func (s *Store) sharedSources(ctx context.Context, ns namespace, q store.ListQuery) ([]store.Source, error) {
	var all []store.Source
	for _, key := range ns.all() {
		for _, span := range q.Ranges {
			rest, tied, ok := q.Resume(span)
			if !ok {
				continue
			}
			r := &sharedSource{listing: s.listing(ctx, ns, key, q), rest: rest}
			if tied {
				r.enter(q.After.At)
				r.after = []any{q.After.User}
			}
			all = append(all, r)
		}
	}
	return all, nil
}

// Next implements [store.Source].
func (r *sharedSource) Next() (store.Record, bool, error) { return r.next(r.read) }

func (r *sharedSource) read() error {
	switch {
	case r.millisecond != nil:
		return r.readMillisecond()
	case r.rest.From <= r.rest.To:
		return r.readRange()
	}
	r.ended = true
	return nil
}

// enter makes a millisecond the next to be read.
func (r *sharedSource) enter(at lastseen.Instant) {
	r.millisecond, r.after = &lastseen.Range{From: at, To: at, Left: r.rest.Left}, nil
	r.skipTo(at)
}

// skipTo removes the milliseconds up to and including one from the rest.
func (r *sharedSource) skipTo(at lastseen.Instant) {
	if r.query.Order == store.Newest {
		r.rest.To = at - 1
	} else {
		r.rest.From = at + 1
	}
}

func (r *sharedSource) readMillisecond() error {
	low, high := r.ns.bounds(*r.millisecond)
	args := append([]any{r.size, direction(r.query.Order, r.rest), low, high}, r.after...)
	cmd, err := r.s.client.Run(r.ctx, scripts.Millisecond, r.key, args...)
	if err != nil {
		return err
	}
	users, err := cmd.StringSlice()
	if err != nil {
		return err
	}
	if direction(r.query.Order, r.rest) == "down" {
		slices.Reverse(users)
	}
	state := lastseen.State{At: r.millisecond.From, Left: r.millisecond.Left}
	for _, user := range users {
		r.add(store.Record{User: user, State: state})
	}
	if len(users) < r.size {
		r.millisecond = nil
	} else {
		r.after = []any{users[len(users)-1]}
	}
	return nil
}

func (r *sharedSource) readRange() error {
	low, high := r.ns.bounds(r.rest)
	records, err := r.page(r.rest, direction(r.query.Order, r.rest), low, high, "")
	if err != nil {
		return err
	}
	if len(records) < r.size {
		r.rest.From, r.rest.To = 1, 0 // nothing is left
	} else {
		records = r.complete(records)
	}
	slices.SortFunc(records, r.query.Order.Compare)
	for _, record := range records {
		r.add(record)
	}
	return nil
}

// complete returns the records without those of the last millisecond, within which the page may end. If no others are
// left, it enters that millisecond.
func (r *sharedSource) complete(records []store.Record) []store.Record {
	last := records[len(records)-1].At
	records = slices.DeleteFunc(records, func(record store.Record) bool { return record.At == last })
	if len(records) == 0 {
		r.enter(last)
	} else {
		r.skipTo(records[len(records)-1].At)
	}
	return records
}

// add adds a record, unless its name is not a valid user ID.
func (r *sharedSource) add(record store.Record) {
	if err := lastseen.CheckStoredUser(record.User); err != nil {
		r.s.warnOnce(r.ns, "user", "some members are not valid user IDs; they are counted but not listed",
			"member", record.User, "error", err)
		return
	}
	r.records = append(r.records, record)
}
