package redisstore

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore/redisclient"
	"github.com/lastseen/lastseen/store/redisstore/scripts"
)

// openFeeds checks that this server can serve namespaces and that they can have feeds, and fills in errors.
func (s *Store) openFeeds(ctx context.Context, all []*candidate) {
	allowed := s.allowsFeeds(ctx)
	s.verify(ctx, all)
	for _, c := range all {
		if c.err == nil && (!allowed || !c.hasCompanions()) {
			c.err = store.ErrNoFeed
		}
	}
}

// RecordChanges implements [store.Store].
func (s *Store) RecordChanges(ctx context.Context, name string, t lastseen.Thresholds) error {
	ctx, cancel, err := s.client.Begin(ctx, 2*s.client.Timeout)
	if err != nil {
		return err
	}
	defer cancel()
	c := &candidate{namespace: s.keys.namespace(name)}
	if s.openFeeds(ctx, []*candidate{c}); c.err != nil {
		return c.err
	}
	if !c.hasMeta && !c.exists {
		return store.ErrNotRecorded
	}
	calls := make([]shardCall, c.shards)
	for i, key := range c.all() {
		calls[i] = shardCall{
			namespace: c.namespace, shard: key, script: scripts.FeedRecord,
			prepare: func(sides) (string, string, []any) {
				return "", "fs", []any{
					linkBase(), store.ChangesKept.Milliseconds(), t.Green.Milliseconds(), t.Yellow.Milliseconds(),
				}
			},
		}
	}
	_, err = s.runShardsAll(ctx, calls)
	return err
}

// SweepChanges implements [store.Store].
func (s *Store) SweepChanges(caller context.Context, sweeps []*store.ChangesSweep) {
	ctx, cancel, err := s.client.Begin(caller, 2*s.client.Timeout)
	if err != nil {
		for _, w := range sweeps {
			w.Err = err
		}
		return
	}
	defer cancel()
	all := make([]*candidate, len(sweeps))
	for i, w := range sweeps {
		all[i] = &candidate{namespace: s.keys.namespace(w.Namespace)}
	}
	s.openFeeds(ctx, all)
	var calls []shardCall
	for i, w := range sweeps {
		*w = store.ChangesSweep{Namespace: w.Namespace, Thresholds: w.Thresholds, Now: w.Now}
		if w.Err = all[i].err; w.Err == nil {
			calls = append(calls, s.sweepCalls(ctx, all[i].namespace, w)...)
		}
	}
	cmds := s.runSweeps(caller, calls)
	for i, w := range sweeps {
		if w.Err != nil {
			continue
		}
		for range all[i].shards {
			readSweep(w, cmds[0])
			cmds = cmds[1:]
		}
	}
}

// maxSweeps bounds the shards that are swept in one round trip. After an outage there is a backlog in all of them: then
// as many as there are would take longer than a call may, and all would fail.
const maxSweeps = 32

// runSweeps is runShards with a deadline for each part.
func (s *Store) runSweeps(ctx context.Context, calls []shardCall) (cmds []*redis.Cmd) {
	for part := range slices.Chunk(calls, maxSweeps) {
		ctx, cancel := context.WithTimeout(ctx, 2*s.client.Timeout)
		cmds = append(cmds, s.runShards(ctx, part)...)
		cancel()
	}
	return cmds
}

func (s *Store) sweepCalls(ctx context.Context, ns namespace, w *store.ChangesSweep) []shardCall {
	calls := make([]shardCall, ns.shards)
	args := []any{
		s.holder, w.Thresholds.Green.Milliseconds(), w.Thresholds.Yellow.Milliseconds(), int64(w.Now),
	}
	for i, key := range ns.all() {
		calls[i] = shardCall{
			namespace: ns, shard: key, script: scripts.FeedSweep, reads: true,
			prepare: func(has sides) (string, string, []any) {
				return "def", s.feedLetters(ctx, ns, key, has), append([]any{linkBase()}, args...)
			},
		}
	}
	return calls
}

// The results of feedsweep.lua.
const (
	sweepElsewhere = 1
	sweepRefused   = 2
)

// readSweep adds the reply of one shard to the result.
func readSweep(w *store.ChangesSweep, cmd *redis.Cmd) {
	reply, err := cmd.Int64Slice()
	switch {
	case w.Err != nil:
	case err != nil:
		w.Err = redisclient.Translate(err)
	case len(reply) == 0:
		w.Err = store.ErrNotRecorded
	case len(reply) != 6:
		w.Err = fmt.Errorf("unexpected script reply %v instead of 6 numbers", reply)
	case reply[0] == sweepRefused:
		w.Err = fmt.Errorf("%w: it shows %s, and a sweep up to %s was asked for",
			store.ErrClockMoved, lastseen.Instant(reply[1]), w.Now)
	default:
		w.Elsewhere = w.Elsewhere || reply[0] == sweepElsewhere
		if at := lastseen.Instant(reply[1]); w.Watermark == 0 || at < w.Watermark {
			w.Watermark = at
		}
		w.Decays += int(reply[2])
		w.Lag = max(w.Lag, time.Duration(reply[3])*time.Millisecond)
		w.Begun = w.Begun || reply[4] == 1
		w.More = w.More || reply[5] == 1
	}
}
