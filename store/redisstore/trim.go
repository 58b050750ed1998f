package redisstore

import (
	"cmp"
	"context"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// Trim implements [store.Store]. If a namespace has several shards, it checks the clocks of all before it deletes
// anyone.
func (s *Store) Trim(ctx context.Context, namespace string, q store.TrimQuery) (result store.TrimResult, err error) {
	ctx, cancel, ns, err := s.open(ctx, namespace)
	if err != nil {
		return result, err
	}
	defer cancel()
	keys := ns.all()
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

// trimmed is the result of trimming one shard.
type trimmed struct {
	deleted int
	held    bool
	old     int // members that were too old before
}

// trim deletes at most limit members of each shard that are older than the query's age, all in one round trip. With
// limit 0 it only counts them.
func (s *Store) trim(
	ctx context.Context, ns namespace, keys []string, q store.TrimQuery, limit int,
) ([]trimmed, error) {
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
	cmds, err := s.runAll(ctx, scripts.trim, calls)
	if err != nil {
		return nil, err
	}
	shards := make([]trimmed, len(cmds))
	for i, cmd := range cmds {
		reply, err := ints(cmd, 3)
		if err != nil {
			return nil, err
		}
		if reply[0] < 0 {
			return nil, cmp.Or(q.CheckClock(lastseen.Instant(reply[2])), store.ErrClockMoved)
		}
		shards[i] = trimmed{deleted: int(reply[0]), held: reply[1] == 1, old: int(reply[2])}
	}
	return shards, nil
}
