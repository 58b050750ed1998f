package redisstore

import (
	"context"
	"slices"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// This file serves sorted sets that other programs write, too. In those any member may have any
// score: names that are no user ID, scores that are no time, and several scores in one millisecond.
// Names are left out of lists; of counts they are not, since counting would have to read them.

// sighted logs the first sighting of something strange in a namespace.
func (s *Store) sighted(ns namespace, what, message string, args ...any) {
	type sighting struct{ namespace, what string }
	if _, before := s.sightings.LoadOrStore(sighting{ns.name, what}, struct{}{}); !before {
		s.logger.Warn(message, append([]any{"namespace", ns.name, "key", ns.key}, args...)...)
	}
}

// foreignSource reads one range of one shard, in the order of the query: by millisecond, and within
// one by name. It reads a page of the range, and where a millisecond does not end within it, that
// millisecond page by page.
type foreignSource struct {
	s      *Store
	ctx    context.Context //nolint:containedctx // a source lives within one call of List
	ns     namespace
	key    string
	order  store.Order
	chunk  int
	rest   lastseen.Range // what is still to be read, the millisecond being read excluded
	group  *lastseen.Range
	after  []any // the last name read in the group, if any was: that may be the empty one
	buffer []store.Record
}

// foreignSources opens every range in every shard. Unlike those of [Store.sources] they are not read
// at one moment; whoever moves meanwhile may be in two of them, and the merge lists them once.
func (s *Store) foreignSources(ctx context.Context, ns namespace, q store.ListQuery) ([]store.Source, error) {
	var all []store.Source
	for _, key := range ns.all() {
		for _, span := range q.Ranges {
			rest, tied, ok := q.Resume(span)
			if !ok {
				continue
			}
			source := &foreignSource{
				s: s, ctx: ctx, ns: ns, key: key, order: q.Order, chunk: chunkSize(q.Limit, ns.shards), rest: rest,
			}
			if tied {
				source.enter(q.After.At)
				source.after = []any{q.After.User}
			}
			all = append(all, source)
		}
	}
	return all, nil
}

// Next implements [store.Source].
func (r *foreignSource) Next() (store.Record, bool, error) {
	for len(r.buffer) == 0 {
		if r.group == nil && r.rest.From > r.rest.To {
			return store.Record{}, false, nil
		}
		if err := r.read(); err != nil {
			return store.Record{}, false, err
		}
	}
	record := r.buffer[0]
	r.buffer = r.buffer[1:]
	return record, true, nil
}

func (r *foreignSource) read() error {
	if r.group != nil {
		return r.readGroup()
	}
	return r.readRange()
}

// enter makes one millisecond the next to be read, and what comes after it the rest.
func (r *foreignSource) enter(at lastseen.Instant) {
	r.group, r.after = &lastseen.Range{From: at, To: at, Left: r.rest.Left}, nil
	r.pass(at)
}

// pass takes the milliseconds up to and including one off the rest.
func (r *foreignSource) pass(at lastseen.Instant) {
	if r.order == store.Newest {
		r.rest.To = at - 1
	} else {
		r.rest.From = at + 1
	}
}

// readGroup reads the next names of the millisecond.
func (r *foreignSource) readGroup() error {
	low, high := r.ns.bounds(*r.group)
	args := append([]any{r.chunk, direction(r.order, r.rest), low, high}, r.after...)
	cmds, err := r.s.runScript(r.ctx, scripts.group, []call{{key: r.key, args: args}})
	if err != nil {
		return err
	}
	users, err := cmds[0].StringSlice()
	if err != nil {
		return err
	}
	if descends(r.order, r.rest) {
		slices.Reverse(users)
	}
	state := lastseen.State{At: r.group.From, Left: r.group.Left}
	for _, user := range users {
		r.take(store.Record{User: user, State: state})
	}
	if len(users) < r.chunk {
		r.group = nil
	} else {
		r.after = []any{users[len(users)-1]}
	}
	return nil
}

// readRange reads the next members of the rest.
func (r *foreignSource) readRange() error {
	low, high := r.ns.bounds(r.rest)
	args := []any{r.chunk, direction(r.order, r.rest), low, high, ""}
	cmds, err := r.s.runScript(r.ctx, scripts.page, []call{{key: r.key, args: args}})
	if err != nil {
		return err
	}
	pages, err := sliceOf(cmds[0].Val(), 1)
	if err != nil {
		return err
	}
	records, err := r.ns.records(pages[0])
	if err != nil {
		return err
	}
	if len(records) < r.chunk {
		r.rest.From, r.rest.To = 1, 0 // nothing is left
	} else if records = r.whole(records); len(records) == 0 {
		return nil
	}
	slices.SortFunc(records, r.order.Compare)
	for _, record := range records {
		r.take(record)
	}
	return nil
}

// whole returns the records without those of the millisecond that the page may end within. When
// there are no others, that millisecond is entered.
func (r *foreignSource) whole(records []store.Record) []store.Record {
	if !descends(r.order, r.rest) {
		slices.Reverse(records)
	}
	cut := records[0].At // the page's end comes first now
	whole := slices.DeleteFunc(records, func(record store.Record) bool { return record.At == cut })
	if len(whole) == 0 {
		r.enter(cut)
	} else {
		r.pass(whole[0].At)
	}
	return whole
}

// take buffers a record, unless its name is none that a user can have.
func (r *foreignSource) take(record store.Record) {
	if err := lastseen.CheckUser(record.User); err != nil {
		r.s.sighted(r.ns, "user", "some members are no user ID; they are not listed, but counted", "member", record.User, "error", err)
		return
	}
	r.buffer = append(r.buffer, record)
}
