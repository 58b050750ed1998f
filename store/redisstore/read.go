package redisstore

import (
	"context"
	"math"
	"slices"

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
	ctx, cancel, err := s.client.Begin(ctx, s.client.Timeout)
	if err != nil {
		fail(batches, err)
		return
	}
	defer cancel()
	all := make([]*resolvedNamespace, len(batches))
	for i, b := range batches {
		all[i] = &resolvedNamespace{namespace: s.keys.namespace(b.Namespace)}
	}
	s.verify(ctx, all)
	pipe := s.client.Reader(ctx).Pipeline()
	var cmds []lookupCmd
	for i, b := range batches {
		if b.Err = all[i].err; b.Err != nil || len(b.Items) == 0 {
			continue
		}
		b.States = make([]lastseen.State, len(b.Items))
		for _, c := range all[i].split(len(b.Items), maxChunk, func(i int) string { return b.Items[i] }) {
			cmds = append(cmds, s.queryLookup(ctx, pipe, all[i], b, c))
		}
	}
	_, _ = pipe.Exec(ctx) // each command keeps its error
	s.readAgain(ctx, cmds)
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
	cmd.reply = redis.NewFloatSliceCmd(ctx, lookupArgs(b, c)...)
	_ = pipe.Process(ctx, cmd.reply) // only queues it
	if of.hasSideKeys() {
		cmd.described = s.queryDetails(ctx, pipe, of.namespace, c, func(i int) *string { return &b.Items[i] })
	}
	return cmd
}

// readAgain reads the details that lookups left out by mistake.
func (s *Store) readAgain(ctx context.Context, cmds []lookupCmd) {
	var queries []*detailsQuery
	for _, c := range cmds {
		if c.described != nil {
			queries = append(queries, c.described)
		}
	}
	s.readLeftOut(ctx, queries)
}

// lookupArgs returns the command for a chunk. Users are passed as pointers: as strings, each would be copied into an
// interface.
func lookupArgs(b *store.Batch[string], c *chunk) []any {
	args := append(make([]any, 0, 2+len(c.index)), "zmscore", c.key)
	for _, at := range c.index {
		args = append(args, &b.Items[at])
	}
	return args
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
func (s *registry) newest(ctx context.Context, all []namespace) ([]lastseen.Instant, []error) {
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
