package redisstore

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// Lookup implements [store.Store].
func (s *Store) Lookup(ctx context.Context, namespace string, users []string) ([]lastseen.State, error) {
	g := &store.Batch[string]{Namespace: namespace, Items: users}
	s.LookupBatches(ctx, []*store.Batch[string]{g})
	return g.States, g.Err
}

// question is a portion of a group of lookups, on its way to its shard.
type question struct {
	*store.Batch[string]
	portion
	encoding
	answer *redis.FloatSliceCmd
}

// LookupBatches implements [store.Batcher]: all in one round trip.
func (s *Store) LookupBatches(ctx context.Context, groups []*store.Batch[string]) {
	ctx, end := s.batch(ctx)
	defer end()
	all := make([]namespace, len(groups))
	for i, g := range groups {
		all[i] = s.keys.namespace(g.Namespace)
	}
	for i, err := range s.checkAll(ctx, all) {
		groups[i].Err = err
	}
	bounded, cancel, err := s.begin(ctx)
	if err != nil {
		for _, g := range groups {
			g.Err = err
		}
		return
	}
	defer cancel()
	pipe := s.client.Pipeline()
	var questions []question
	for i, g := range groups {
		if g.Err == nil && len(g.Items) > 0 {
			g.States = make([]lastseen.State, len(g.Items))
			questions = ask(bounded, pipe, questions, g, all[i])
		}
	}
	_, _ = pipe.Exec(bounded) // the error is also in the commands it befell
	for _, q := range questions {
		q.read()
	}
}

// ask puts the lookups of a group into a pipeline. Users go by their addresses: as strings, each would be
// copied into an interface.
func ask(ctx context.Context, pipe redis.Pipeliner, questions []question, g *store.Batch[string], ns namespace) []question {
	for _, p := range ns.split(len(g.Items), func(i int) string { return g.Items[i] }) {
		args := make([]any, 0, 2+len(p.index))
		args = append(args, "zmscore", p.key)
		for _, at := range p.index {
			args = append(args, &g.Items[at])
		}
		answer := redis.NewFloatSliceCmd(ctx, args...)
		_ = pipe.Process(ctx, answer) // only queues it
		questions = append(questions, question{g, p, ns.encoding, answer})
	}
	return questions
}

// read fills in the states, or the error.
func (q question) read() {
	if err := q.answer.Err(); err != nil {
		q.States, q.Err = nil, translate(err)
		return
	}
	for i, score := range q.answer.Val() { // 0 for those unknown
		if q.Err == nil {
			q.States[q.index[i]] = q.state(score)
		}
	}
}

// Count implements [store.Store]. The ranges of one shard are counted at one moment, all shards in one
// round trip.
func (s *Store) Count(ctx context.Context, namespace string, ranges []lastseen.Range) ([]int64, error) {
	counts := make([]int64, len(ranges))
	if len(ranges) == 0 {
		return counts, nil
	}
	ns := s.keys.namespace(namespace)
	if err := s.check(ctx, ns); err != nil {
		return nil, err
	}
	var args []any
	for _, r := range ranges {
		low, high := ns.bounds(r)
		args = append(args, low, high)
	}
	var calls []call
	for _, key := range ns.all() {
		calls = append(calls, call{key: key, args: args})
	}
	cmds, err := s.runScript(ctx, scripts.count, calls)
	if err != nil {
		return nil, err
	}
	for _, cmd := range cmds {
		shard, err := cmd.Int64Slice()
		if err != nil || len(shard) != len(counts) {
			return nil, fmt.Errorf("script answered %v for %d counts: %w", cmd.Val(), len(counts), err)
		}
		for i, n := range shard {
			counts[i] += n
		}
	}
	return counts, nil
}

// Newest implements [store.Store].
func (s *Store) Newest(ctx context.Context, namespace string) (lastseen.Instant, error) {
	ns := s.keys.namespace(namespace)
	if err := s.check(ctx, ns); err != nil {
		return 0, err
	}
	newest, err := s.newest(ctx, []stored{{ns.all(), ns.encoding}})
	if err != nil {
		return 0, err
	}
	return newest[0].at, newest[0].err
}

// newestTime is the newest time in one namespace, or why it cannot be known.
type newestTime struct {
	at  lastseen.Instant
	err error
}

// maxNewest bounds the keys whose newest members are asked for in one round trip.
const maxNewest = 1000

// stored is where a namespace is, and what its scores mean there.
type stored struct {
	keys []string
	encoding
}

// newest returns the newest time in each namespace.
func (s *Store) newest(ctx context.Context, namespaces []stored) ([]newestTime, error) {
	newest := make([]newestTime, 0, len(namespaces))
	for len(namespaces) > 0 {
		n, keys := 1, len(namespaces[0].keys)
		for n < len(namespaces) && keys+len(namespaces[n].keys) <= maxNewest {
			keys += len(namespaces[n].keys)
			n++
		}
		part, err := s.newestOf(ctx, namespaces[:n])
		namespaces = namespaces[n:]
		if err != nil {
			return nil, err
		}
		newest = append(newest, part...)
	}
	return newest, nil
}

// newestOf is newest in one round trip.
func (s *Store) newestOf(ctx context.Context, namespaces []stored) ([]newestTime, error) {
	ctx, cancel, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer cancel()
	pipe := s.client.Pipeline()
	cmds := make([][]*redis.ZSliceCmd, len(namespaces))
	for i, n := range namespaces {
		for _, key := range n.keys {
			for _, half := range halves() {
				cmds[i] = append(cmds[i], pipe.ZRangeArgsWithScores(ctx, n.newestIn(key, half)))
			}
		}
	}
	_, _ = pipe.Exec(ctx) // the error is also in the commands it befell
	newest := make([]newestTime, len(namespaces))
	for i := range cmds {
		for _, cmd := range cmds[i] {
			if err := cmd.Err(); err != nil {
				newest[i] = newestTime{err: translate(err)}
				break
			}
			for _, z := range cmd.Val() {
				newest[i].at = max(newest[i].at, namespaces[i].state(z.Score).At)
			}
		}
	}
	return newest, nil
}

// newestIn asks for the newest member of one half. Going down the scores, Start is the high end.
func (e encoding) newestIn(key string, half lastseen.Range) redis.ZRangeArgs {
	low, high := e.bounds(half)
	if half.Left {
		return redis.ZRangeArgs{Key: key, ByScore: true, Start: low, Stop: high, Count: 1}
	}
	return redis.ZRangeArgs{Key: key, ByScore: true, Rev: true, Start: high, Stop: low, Count: 1}
}

// List implements [store.Store].
func (s *Store) List(ctx context.Context, namespace string, q store.ListQuery) ([]store.Record, error) {
	ctx, cancel, err := s.operation(ctx)
	if err != nil {
		return nil, err
	}
	defer cancel()
	ns := s.keys.namespace(namespace)
	if err := s.check(ctx, ns); err != nil {
		return nil, err
	}
	open := s.sources
	if ns.foreign {
		open = s.foreignSources
	}
	sources, err := open(ctx, ns, q)
	if err != nil {
		return nil, err
	}
	return store.Merge(q.Order, q.Limit, sources...)
}
