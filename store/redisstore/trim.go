package redisstore

import (
	"context"
	"fmt"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// Trim implements [store.Store]. Of a namespace that is spread over several shards the clocks of all are looked at
// before anybody is deleted.
func (s *Store) Trim(ctx context.Context, namespace string, q store.TrimQuery) (store.TrimResult, error) {
	ctx, cancel, err := s.operation(ctx)
	if err != nil {
		return store.TrimResult{}, err
	}
	defer cancel()
	ns := s.keys.namespace(namespace)
	if err := s.check(ctx, ns); err != nil {
		return store.TrimResult{}, err
	}
	keys, result := ns.all(), store.TrimResult{}
	if len(keys) > 1 {
		counted, err := s.trim(ctx, ns, keys, q, 0)
		if err != nil {
			return result, err
		}
		keys = nil
		for i, shard := range counted {
			result.Held = result.Held || shard.held
			if shard.old > 0 && !shard.held {
				keys = append(keys, ns.shard(i))
			}
		}
	}
	for _, key := range keys {
		shards, err := s.trim(ctx, ns, []string{key}, q, store.MaxTrim-result.Deleted)
		if err != nil {
			return result, err
		}
		result.Deleted += shards[0].deleted
		result.Held = result.Held || shards[0].held
		if result.Deleted >= store.MaxTrim {
			break
		}
	}
	return result, nil
}

// trimmed is what trimming one shard came to.
type trimmed struct {
	deleted int
	held    bool
	old     int // members that were too old before
}

// trim deletes at most limit members of each shard that are older than the query's age, all in one round trip. With
// limit 0 it only counts them.
func (s *Store) trim(ctx context.Context, ns namespace, keys []string, q store.TrimQuery, limit int) ([]trimmed, error) {
	all := 0
	if q.All {
		all = 1
	}
	calls := make([]call, len(keys))
	for i, key := range keys {
		calls[i] = call{key: key, args: []any{
			q.Age.Milliseconds(), int64(q.Now), store.MaxClockDrift.Milliseconds(), ns.perScore(),
			limit, all, ns.time(lastseen.MaxInstant + 1), ns.hidden(),
		}}
	}
	cmds, err := s.runScript(ctx, scripts.trim, calls)
	if err != nil {
		return nil, err
	}
	shards := make([]trimmed, len(cmds))
	for i, cmd := range cmds {
		reply, err := cmd.Int64Slice()
		if err != nil || len(reply) != 3 {
			return nil, fmt.Errorf("script answered %v for what it trimmed: %w", cmd.Val(), err)
		}
		if reply[0] < 0 {
			return nil, clockMoved(q, lastseen.Instant(reply[2]))
		}
		shards[i] = trimmed{deleted: int(reply[0]), held: reply[1] == 1, old: int(reply[2])}
	}
	return shards, nil
}

// clockMoved returns the error of a clock that is not where a query expects it.
func clockMoved(q store.TrimQuery, now lastseen.Instant) error {
	if err := q.CheckClock(now); err != nil {
		return err
	}
	return store.ErrClockMoved // unless the script and the contract differ about what is too far
}
