package redisstore

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// source reads one range of one shard, a chunk at a time, in the order of the query.
type source struct {
	s      *Store
	ns     namespace
	ctx    context.Context //nolint:containedctx // a source lives within one call of List
	key    string
	query  store.ListQuery // After is the last record read
	span   lastseen.Range
	chunk  int
	buffer []store.Record
	ended  bool // Redis has no more than what is in the buffer
}

// sources opens every range in every shard with the first chunk read: all ranges of a shard in one
// script, all shards in one round trip.
func (s *Store) sources(ctx context.Context, ns namespace, q store.ListQuery) ([]store.Source, error) {
	chunk := chunkSize(q.Limit, ns.shards)
	var calls []call
	var all []store.Source
	for _, key := range ns.all() {
		c := call{key: key, args: []any{chunk}}
		for _, span := range q.Ranges {
			if args, ok := ns.pageArgs(q, span); ok {
				c.args = append(c.args, args...)
				all = append(all, &source{s: s, ns: ns, ctx: ctx, key: key, query: q, span: span, chunk: chunk})
			}
		}
		if len(c.args) > 1 {
			calls = append(calls, c)
		}
	}
	cmds, err := s.runScript(ctx, scripts.page, calls)
	if err != nil {
		return nil, err
	}
	next := 0
	for _, cmd := range cmds {
		pages, err := sliceOf(cmd.Val(), -1)
		if err != nil {
			return nil, err
		}
		for _, page := range pages {
			if err := all[next].(*source).take(page); err != nil {
				return nil, err
			}
			next++
		}
	}
	return all, nil
}

// chunkSize is how many records to read from each of n shards for a page of limit. Users spread
// evenly, so a share with some slack nearly always suffices; what is missing is read when needed.
func chunkSize(limit, shards int) int {
	if shards == 1 {
		return limit
	}
	share := float64(limit) / float64(shards)
	return min(limit, int(share+3*math.Sqrt(share))+1)
}

// pageArgs returns what page.lua needs to know to read on in a range; false if nothing is left in it.
func (e encoding) pageArgs(q store.ListQuery, span lastseen.Range) ([]any, bool) {
	rest, tied, ok := q.Resume(span)
	if !ok {
		return nil, false
	}
	after := ""
	if tied {
		after = q.After.User
	}
	low, high := e.bounds(rest)
	return []any{direction(q.Order, rest), low, high, after}, true
}

// descends reports whether a list in the given order goes down the scores of a range: newest first does
// so among people present, and goes up among those mirrored at zero.
func descends(order store.Order, r lastseen.Range) bool { return (order == store.Newest) != r.Left }

// direction is what the scripts call it.
func direction(order store.Order, r lastseen.Range) string {
	if descends(order, r) {
		return "down"
	}
	return "up"
}

// Next implements [store.Source].
func (r *source) Next() (store.Record, bool, error) {
	if len(r.buffer) == 0 && !r.ended {
		if err := r.refill(); err != nil {
			return store.Record{}, false, err
		}
	}
	if len(r.buffer) == 0 {
		return store.Record{}, false, nil
	}
	record := r.buffer[0]
	r.buffer = r.buffer[1:]
	return record, true, nil
}

func (r *source) refill() error {
	args, ok := r.ns.pageArgs(r.query, r.span)
	if !ok {
		r.ended = true
		return nil
	}
	cmds, err := r.s.runScript(r.ctx, scripts.page, []call{{key: r.key, args: append([]any{r.chunk}, args...)}})
	if err != nil {
		return err
	}
	pages, err := sliceOf(cmds[0].Val(), 1)
	if err != nil {
		return err
	}
	return r.take(pages[0])
}

// take buffers one page of the script's reply.
func (r *source) take(page any) error {
	records, err := r.ns.records(page)
	if err != nil {
		return err
	}
	if descends(r.query.Order, r.span) {
		slices.Reverse(records)
	}
	r.buffer, r.ended = records, len(records) < r.chunk
	if len(records) > 0 {
		r.query.After = &records[len(records)-1]
	}
	return nil
}

// records reads {member, score, …} out of a script's reply.
func (e encoding) records(page any) ([]store.Record, error) {
	flat, err := sliceOf(page, -1)
	if err != nil {
		return nil, err
	}
	records := make([]store.Record, 0, len(flat)/2)
	for i := 0; i+1 < len(flat); i += 2 {
		user, ok := flat[i].(string)
		if !ok {
			return nil, fmt.Errorf("member of type %T in a script's reply", flat[i])
		}
		state, err := e.stateOfReply(flat[i+1])
		if err != nil {
			return nil, err
		}
		records = append(records, store.Record{User: user, State: state})
	}
	return records, nil
}
