package redisstore

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore/redisclient"
)

// This file reads what others see of users besides states, and the availability of users: see
// docs/decisions/availability.md.

// Describe implements [store.Store].
func (s *Store) Describe(
	ctx context.Context, name string, users []string,
) ([]lastseen.State, map[string]store.Details, error) {
	b := &store.Batch[string]{Namespace: name, Items: users}
	s.LookupBatches(ctx, []*store.Batch[string]{b})
	var details map[string]store.Details
	for _, d := range b.Details {
		details = addDetails(details, users[d.At], d.Details)
	}
	return b.States, details, b.Err
}

// ReadDetails implements [store.Store].
func (s *Store) ReadDetails(
	ctx context.Context, namespace string, records []store.Record,
) (map[string]store.Details, error) {
	ctx, cancel, c, err := s.openWith(ctx, 2*s.client.Timeout, namespace, s.verify)
	if err != nil {
		return nil, err
	}
	defer cancel()
	if !c.hasSideKeys() || len(records) == 0 {
		return nil, nil
	}
	var all map[string]store.Details
	user := func(i int) *string { return &records[i].User }
	found := func(i int, d store.Details) { all = addDetails(all, records[i].User, d) }
	pipe := s.client.Reader(ctx).Pipeline()
	var queries []*detailsQuery
	for _, chunk := range c.split(len(records), maxChunk, func(i int) string { return records[i].User }) {
		queries = append(queries, s.queryDetails(ctx, pipe, c.namespace, chunk, user))
	}
	_, _ = pipe.Exec(ctx) // each command keeps its error
	s.readLeftOut(ctx, queries)
	for _, q := range queries {
		if err := s.readDetails(q, found); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// detailsQuery reads which side keys a shard has, and the details of a chunk of users unless it is known to have none.
type detailsQuery struct {
	namespace
	*chunk
	user func(int) *string // at a place of the batch; as a pointer, since a string would be copied
	has  *redis.StringCmd
	cmd  *redis.SliceCmd // nil for a shard that is known to have no details
}

// queryDetails adds the commands of a query to a pipeline.
func (s *Store) queryDetails(
	ctx context.Context, pipe redis.Pipeliner, n namespace, c *chunk, user func(int) *string,
) *detailsQuery {
	q := &detailsQuery{namespace: n, chunk: c, user: user, has: pipe.HGet(ctx, n.sidesKey(c.key), sidesField)}
	if known := s.sides.of(c.key).stored; known == "" || known.has("d") {
		q.read(ctx, pipe)
	}
	return q
}

// read adds the command that reads the details to a pipeline.
func (q *detailsQuery) read(ctx context.Context, pipe redis.Pipeliner) {
	args := append(make([]any, 0, 2+len(q.index)), "hmget", q.sideKey(q.chunk.key, 'd'))
	for _, at := range q.index {
		args = append(args, q.user(at))
	}
	q.cmd = redis.NewSliceCmd(ctx, args...)
	_ = pipe.Process(ctx, q.cmd) // only queues it
}

// readLeftOut reads the details that queries left out, but that may exist. It learns which side keys the shards have.
func (s *Store) readLeftOut(ctx context.Context, queries []*detailsQuery) {
	pipe := s.client.Reader(ctx).Pipeline()
	for _, q := range queries {
		text, found, err := textOf(q.has)
		if err != nil {
			continue
		}
		if found && s.sides.of(q.chunk.key).stored != sides(text) {
			s.sides.learn(q.chunk.key, sides(text))
		}
		if q.cmd == nil && (!found || sides(text).has("d")) {
			q.read(ctx, pipe)
		}
	}
	if pipe.Len() > 0 {
		_, _ = pipe.Exec(ctx) // each command keeps its error
	}
}

// readDetails reads the reply to a query. It calls found with the place of each user who has details.
func (s *Store) readDetails(q *detailsQuery, found func(int, store.Details)) error {
	if err := q.has.Err(); err != nil && !errors.Is(err, redis.Nil) {
		return redisclient.Translate(err)
	}
	if q.cmd == nil {
		return nil
	}
	values, err := q.cmd.Result()
	if err != nil {
		return redisclient.Translate(err)
	}
	for i, value := range values {
		text, some := value.(string)
		if !some {
			continue
		}
		if d, ok := parseDetails(text); ok {
			found(q.index[i], d)
		} else {
			s.warnOfDetails(q.namespace, *q.user(q.index[i]))
		}
	}
	return nil
}

// addDetails adds details to a map, which is nil while it is empty.
func addDetails(all map[string]store.Details, user string, d store.Details) map[string]store.Details {
	if all == nil {
		all = map[string]store.Details{}
	}
	all[user] = d
	return all
}

// warnOfDetails logs a user whose details cannot be read, because another program wrote them.
func (s *Store) warnOfDetails(ns namespace, user string) {
	s.warnOnce(ns, "details", "a user's availability cannot be read: it counts as none", "user", user)
}

// parsePrivate reads an invisible user's availability: see set_availability.lua.
func parsePrivate(text string) (rest lastseen.AvailabilityState, ok bool) {
	end, note, hides := strings.Cut(text, " ")
	until, err := strconv.ParseInt(end, 10, 64)
	rest = lastseen.AvailabilityState{Note: note, Until: lastseen.Instant(until)}
	if hides { // otherwise the user has ended the hidden time
		rest.Availability = lastseen.Invisible
	}
	if err != nil || !validEnd(rest.Until) || lastseen.CheckNote(note) != nil {
		return lastseen.AvailabilityState{}, false
	}
	return rest, true
}

// parseDetails reads the details of a user: see details.lua.
func parseDetails(text string) (d store.Details, ok bool) {
	times, rest, _ := strings.Cut(text, " ")
	availability, rest, _ := strings.Cut(rest, " ")
	end, note, complete := strings.Cut(rest, " ")
	if !complete {
		return d, false
	}
	since, inCall, isInCall := strings.Cut(times, "/")
	if !isInCall {
		inCall = "0"
	}
	idle, noIdle := strconv.ParseInt(since, 10, 64)
	call, noCall := strconv.ParseInt(inCall, 10, 64)
	until, noUntil := strconv.ParseInt(end, 10, 64)
	d = store.Details{
		Availability: lastseen.AvailabilityState{Note: note, Until: lastseen.Instant(until)},
		IdleSince:    lastseen.Instant(idle), InCallUntil: lastseen.Instant(call),
	}
	switch a := lastseen.Availability(availability); a {
	case lastseen.Away, lastseen.Busy:
		d.Availability.Availability = a
	case "-":
	default:
		return store.Details{}, false
	}
	valid := validEnd(d.Availability.Until) && validEnd(d.IdleSince) && validEnd(d.InCallUntil)
	if errors.Join(noIdle, noCall, noUntil) != nil || !valid || lastseen.CheckNote(d.Availability.Note) != nil {
		return store.Details{}, false
	}
	return d, true
}

// validEnd reports whether a time is one that we write, or 0.
func validEnd(at lastseen.Instant) bool { return at >= 0 && at <= lastseen.MaxInstant }
