package redisstore

import (
	"context"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore/redisclient"
	"github.com/lastseen/lastseen/store/redisstore/scripts"
)

// lookupCmd is a chunk of a batch of lookups, in one command.
type lookupCmd struct {
	*store.Batch[string]
	*chunk
	namespace
	reply     *redis.FloatSliceCmd
	described *detailsQuery // nil in a namespace without side keys
}

// LookupBatches implements [store.Batcher]: all in one round trip, and in another one if a shard has details since this
// process last learned of it. They are read after the states: a user's details can be newer than the state.
func (s *Store) LookupBatches(ctx context.Context, batches []*store.Batch[string]) {
	name := func(i int) string { return batches[i].Namespace }
	ctx, cancel, all := s.openEach(ctx, s.client.Timeout, len(batches), name, s.verify)
	defer cancel()
	pipe := s.client.Reader(ctx).Pipeline()
	var cmds []lookupCmd
	var queries []*detailsQuery
	for i, b := range batches {
		if b.Err = all[i].err; b.Err != nil || len(b.Items) == 0 {
			continue
		}
		b.States = make([]lastseen.State, len(b.Items))
		for _, c := range all[i].split(len(b.Items), maxChunk, func(i int) string { return b.Items[i] }) {
			cmd := s.queryLookup(ctx, pipe, all[i], b, c)
			if cmds = append(cmds, cmd); cmd.described != nil {
				queries = append(queries, cmd.described)
			}
		}
	}
	_, _ = pipe.Exec(ctx) // each command keeps its error
	s.readLeftOut(ctx, queries)
	for _, c := range cmds {
		if c.readStates(); c.described != nil && c.Err == nil {
			c.Err = s.readDetails(c.described, func(i int, d store.Details) {
				c.Details = append(c.Details, store.ItemDetails{At: i, Details: d})
			})
		}
	}
	for _, b := range batches {
		if b.Err != nil {
			b.States, b.Details = nil, nil
		}
		// Those of several shards are not in the order of the items.
		slices.SortFunc(b.Details, func(a, b store.ItemDetails) int { return a.At - b.At })
	}
}

// queryLookup adds the commands for a chunk to a pipeline.
func (s *Store) queryLookup(
	ctx context.Context, pipe redis.Pipeliner, of *resolvedNamespace, b *store.Batch[string], c *chunk,
) lookupCmd {
	cmd := lookupCmd{Batch: b, chunk: c, namespace: of.namespace}
	cmd.reply = redis.NewFloatSliceCmd(ctx, c.command("zmscore", c.key, func(at int) any { return &b.Items[at] })...)
	_ = pipe.Process(ctx, cmd.reply) // only queues it
	if of.hasSideKeys() {
		cmd.described = s.queryDetails(ctx, pipe, of.namespace, c, func(i int) *string { return &b.Items[i] })
	}
	return cmd
}

func (c lookupCmd) readStates() {
	if err := c.reply.Err(); err != nil {
		c.States, c.Err = nil, redisclient.Translate(err)
	}
	if c.Err != nil {
		return
	}
	for i, score := range c.reply.Val() { // 0 for unknown users
		c.States[c.index[i]] = c.state(score)
	}
}

// Count implements [store.Store]. It counts the ranges of one shard at one moment, and all shards in one round trip.
func (s *Store) Count(ctx context.Context, namespace string, ranges []lastseen.Range) ([]int64, error) {
	counts := make([]int64, len(ranges))
	if len(ranges) == 0 {
		return counts, nil
	}
	ctx, cancel, ns, err := s.open(ctx, namespace)
	if err != nil {
		return nil, err
	}
	defer cancel()
	var args []any
	for _, r := range ranges {
		low, high := ns.bounds(r)
		args = append(args, low, high)
	}
	var calls []redisclient.Call
	for _, key := range ns.all() {
		calls = append(calls, redisclient.Call{Script: scripts.Count, Key: key, Args: args})
	}
	shards, err := s.client.RunInts(ctx, len(counts), calls...)
	if err != nil {
		return nil, err
	}
	for _, shard := range shards {
		for i, n := range shard {
			counts[i] += n
		}
	}
	return counts, nil
}

// Newest implements [store.Store].
func (s *Store) Newest(ctx context.Context, name string) (lastseen.Instant, error) {
	ctx, cancel, ns, err := s.open(ctx, name)
	if err != nil {
		return 0, err
	}
	defer cancel()
	newest, errs := s.newest(ctx, []namespace{ns})
	return newest[0], errs[0]
}

// maxNewest bounds the keys whose newest members are read in one round trip.
const maxNewest = 1000

// newest returns the newest time in each namespace, or an error for it.
func (s *Store) newest(ctx context.Context, all []namespace) ([]lastseen.Instant, []error) {
	newest, errs := make([]lastseen.Instant, len(all)), make([]error, len(all))
	pipe := s.client.Reader(ctx).Pipeline()
	replies := make([][]*redis.ZSliceCmd, len(all))
	for i, n := range all {
		if pipe.Len() > 0 && pipe.Len()/2+n.shards > maxNewest {
			_, _ = pipe.Exec(ctx) // each command keeps its error
		}
		for _, key := range n.all() {
			present, left := n.newestIn(key)
			replies[i] = append(replies[i],
				pipe.ZRangeArgsWithScores(ctx, present), pipe.ZRangeArgsWithScores(ctx, left))
		}
	}
	_, _ = pipe.Exec(ctx)
	for i, n := range all {
		score, err := largest(replies[i])
		newest[i], errs[i] = n.state(score).At, err
	}
	return newest, errs
}

// largest returns the largest absolute value of the scores in replies, or the first error. If the replies have no
// scores, it returns 0.
func largest(cmds []*redis.ZSliceCmd) (size float64, err error) {
	for _, cmd := range cmds {
		for _, z := range cmd.Val() {
			size = max(size, math.Abs(z.Score))
		}
	}
	return size, redisclient.Translate(redisclient.FirstError(cmds))
}

// newestIn returns the queries for the newest member among users present, and among those who left. Down the scores,
// Start is the high end.
func (e encoding) newestIn(key string) (present, left redis.ZRangeArgs) {
	low, high := e.bounds(lastseen.Range{From: lastseen.MinInstant, To: lastseen.MaxInstant})
	present = redis.ZRangeArgs{Key: key, ByScore: true, Rev: true, Start: high, Stop: low, Count: 1}
	low, high = e.bounds(lastseen.Range{From: lastseen.MinInstant, To: lastseen.MaxInstant, Left: true})
	return present, redis.ZRangeArgs{Key: key, ByScore: true, Start: low, Stop: high, Count: 1}
}

// What follows reads what others see of users besides states, and the availability of users: see
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
	users := q.command("hmget", q.sideKey(q.chunk.key, 'd'), func(at int) any { return q.user(at) })
	q.cmd = redis.NewSliceCmd(ctx, users...)
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
