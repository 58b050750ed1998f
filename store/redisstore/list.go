package redisstore

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore/redisclient"
	"github.com/lastseen/lastseen/store/redisstore/scripts"
)

// List implements [store.Store].
func (s *Store) List(ctx context.Context, namespace string, q store.ListQuery) ([]store.Record, error) {
	ctx, cancel, ns, err := s.open(ctx, namespace)
	if err != nil {
		return nil, err
	}
	defer cancel()
	open := s.sources
	if ns.shared {
		open = s.sharedSources
	}
	sources, err := open(ctx, ns, q)
	if err != nil {
		return nil, err
	}
	return store.Merge(q.Order, q.Limit, sources...)
}

// listing is one shard of a namespace in one call of List.
type listing struct {
	s       *Store
	ctx     context.Context //nolint:containedctx // it lives within one call of List
	ns      namespace
	key     string
	query   store.ListQuery
	size    int            // records per page
	records []store.Record // read, and not returned yet
	ended   bool           // the last page was read
}

// next returns the next record, reading pages as needed. A page may be empty.
func (l *listing) next(read func() error) (store.Record, bool, error) {
	for len(l.records) == 0 {
		if l.ended {
			return store.Record{}, false, nil
		}
		if err := read(); err != nil {
			return store.Record{}, false, err
		}
	}
	record := l.records[0]
	l.records = l.records[1:]
	return record, true, nil
}

// source reads one range of one shard, page by page, in the order of the query.
type source struct {
	listing // query.After is the last record read
	span    lastseen.Range
}

// sources opens every range in every shard and reads the first pages, in one round trip.
func (s *Store) sources(ctx context.Context, ns namespace, q store.ListQuery) ([]store.Source, error) {
	var calls []redisclient.Call
	var all []store.Source
	for _, key := range ns.all() {
		shard := s.listing(ctx, ns, key, q)
		c := redisclient.Call{Script: scripts.Page, Key: key, Args: []any{shard.size}}
		for _, span := range q.Ranges {
			if args, ok := ns.pageArgs(q, span); ok {
				c.Args = append(c.Args, args...)
				all = append(all, &source{shard, span})
			}
		}
		if len(c.Args) > 1 {
			calls = append(calls, c)
		}
	}
	cmds, err := s.client.RunAll(ctx, calls)
	if err != nil {
		return nil, err
	}
	next := 0
	for _, cmd := range cmds {
		replies, err := redisclient.Slice(cmd.Val(), -1)
		if err != nil {
			return nil, err
		}
		for _, reply := range replies {
			r := all[next].(*source)
			records, err := r.recordsOf(reply, r.span)
			if err != nil {
				return nil, err
			}
			r.add(records)
			next++
		}
	}
	return all, nil
}

// listing returns a listing that has read nothing. Users spread evenly over shards, so a share of the limit with some
// slack nearly always suffices; what is missing is read when needed.
func (s *Store) listing(ctx context.Context, ns namespace, key string, q store.ListQuery) listing {
	size := q.Limit
	if ns.shards > 1 {
		share := float64(q.Limit) / float64(ns.shards)
		size = min(q.Limit, int(share+3*math.Sqrt(share))+1)
	}
	return listing{s: s, ctx: ctx, ns: ns, key: key, query: q, size: size}
}

// pageArgs returns the arguments of page.lua to continue in a range; false if nothing is left in it.
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

// direction returns where a list goes in the scores. Newest first goes down among users present, and up among those who
// left.
func direction(order store.Order, r lastseen.Range) string {
	if (order == store.Newest) != r.Left {
		return "down"
	}
	return "up"
}

// Next implements [store.Source].
func (r *source) Next() (store.Record, bool, error) { return r.next(r.read) }

func (r *source) read() error {
	args, ok := r.ns.pageArgs(r.query, r.span)
	if !ok {
		r.ended = true
		return nil
	}
	records, err := r.page(r.span, args...)
	if err == nil {
		r.add(records)
	}
	return err
}

func (r *source) add(records []store.Record) {
	r.records, r.ended = records, len(records) < r.size
	if len(records) > 0 {
		r.query.After = &records[len(records)-1]
	}
}

func (l *listing) page(span lastseen.Range, args ...any) ([]store.Record, error) {
	cmd, err := l.s.client.Run(l.ctx, scripts.Page, l.key, append([]any{l.size}, args...)...)
	if err != nil {
		return nil, err
	}
	replies, err := redisclient.Slice(cmd.Val(), 1)
	if err != nil {
		return nil, err
	}
	return l.recordsOf(replies[0], span)
}

// recordsOf reads {member, score, …} from a script's reply, and puts them in the order of the list.
func (l *listing) recordsOf(reply any, span lastseen.Range) ([]store.Record, error) {
	flat, err := redisclient.Slice(reply, -1)
	if err != nil {
		return nil, err
	}
	records := make([]store.Record, 0, len(flat)/2)
	for i := 0; i+1 < len(flat); i += 2 {
		user, ok := flat[i].(string)
		if !ok {
			return nil, fmt.Errorf("unexpected script reply: a member of type %T", flat[i])
		}
		state, err := l.ns.stateOfReply(flat[i+1])
		if err != nil {
			return nil, err
		}
		records = append(records, store.Record{User: user, State: state})
	}
	if direction(l.query.Order, span) == "down" {
		slices.Reverse(records)
	}
	return records, nil
}

// What follows lists shared sets, which other programs write, too. There any member may have any score, and a
// millisecond several of them: see docs/decisions/redis-keys.md.

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

// scanPosition is where a scan of a namespace continues: in one shard, as a process of Redis numbers its members.
type scanPosition struct {
	shard   int
	cursor  string // of ZSCAN
	process string // its run ID; "" to begin the shard
}

func (p scanPosition) text() store.Position {
	return store.Position(strconv.Itoa(p.shard) + "/" + p.cursor + "/" + p.process)
}

// parseScanPosition is the reverse of text. Positions are untrusted: the begin of the scan stands for one that is not
// valid.
func parseScanPosition(text store.Position, shards int) scanPosition {
	parts := strings.Split(string(text), "/")
	if len(parts) == 3 && isNumber(parts[0], uint64(shards)-1) && isNumber(parts[1], 1<<64-1) && len(parts[2]) <= 64 {
		shard, _ := strconv.Atoi(parts[0])
		return scanPosition{shard, parts[1], parts[2]}
	}
	return scanPosition{cursor: "0"}
}

// ScanUsers implements [store.Store]: it scans the shards one after the other, one step in each call.
func (s *Store) ScanUsers(
	ctx context.Context, namespace string, after store.Position, limit int,
) (users []string, next store.Position, err error) {
	ctx, cancel, ns, err := s.open(ctx, namespace)
	if err != nil {
		return nil, "", err
	}
	defer cancel()
	at := parseScanPosition(after, ns.shards)
	limit = min(max(limit, 1), maxChunk)
	cmd, err := s.client.Run(ctx, scripts.Scan, ns.shard(at.shard), at.process, at.cursor, limit)
	if err != nil {
		return nil, "", err
	}
	reply, err := cmd.StringSlice()
	if err != nil || len(reply) < 2 {
		return nil, "", fmt.Errorf("unexpected script reply %v", cmd.Val())
	}
	at.process, at.cursor, users = reply[0], reply[1], reply[2:]
	if at.cursor == "0" {
		at = scanPosition{shard: at.shard + 1, cursor: "0"}
	}
	if at.shard < ns.shards {
		next = at.text()
	}
	return users, next, nil
}
