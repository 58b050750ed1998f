package redisstore

import (
	"cmp"
	"context"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// Trim implements [store.Store]. If a namespace has several shards, it first checks the clocks of all, and counts what
// to delete in each: one shard after the other would take too long.
func (s *Store) Trim(ctx context.Context, namespace string, q store.TrimQuery) (result store.TrimResult, err error) {
	ctx, cancel, ns, err := s.openWithBits(ctx, namespace)
	if err != nil {
		return result, err
	}
	defer cancel()
	limits := []int{store.MaxTrim}
	if ns.shards > 1 {
		counted, err := s.trim(ctx, ns, q, make([]int, ns.shards))
		if err != nil {
			return result, err
		}
		room := store.MaxTrim
		limits = make([]int, ns.shards)
		for i, shard := range counted {
			result.Held = result.Held || shard.held
			if !shard.held {
				limits[i] = min(shard.old, room)
				room -= limits[i]
			}
		}
		if room == store.MaxTrim {
			return result, nil
		}
	}
	shards, err := s.trim(ctx, ns, q, limits)
	for _, shard := range shards {
		result.Deleted += shard.deleted
		result.Held = result.Held || shard.held
	}
	return result, err
}

type trimmed struct {
	deleted int
	held    bool
	old     int // members that were too old before
}

// trim deletes members of each shard that are older than the query's age, all in one round trip: at most as many as its
// limit. With limit 0 it only counts them.
func (s *Store) trim(ctx context.Context, ns *candidate, q store.TrimQuery, limits []int) ([]trimmed, error) {
	calls := make([]call, len(limits))
	for i, limit := range limits {
		calls[i] = call{key: ns.shard(i), args: []any{
			q.Age.Milliseconds(), int64(q.Now), store.MaxClockDrift.Milliseconds(), ns.perScore(),
			limit, q.All, ns.time(lastseen.MaxInstant + 1), ns.hidden(),
		}}
		switch {
		case ns.bits.devices.set:
			calls[i].others = ns.deviceKeys(ns.shard(i))
		case ns.bits.feed.set:
			calls[i].others = []string{ns.feed(ns.shard(i))}
		}
	}
	replies, err := s.runInts(ctx, scripts.trim, 3, calls...)
	if err != nil {
		return nil, err
	}
	shards := make([]trimmed, len(replies))
	for i, reply := range replies {
		if reply[0] < 0 {
			return nil, cmp.Or(q.CheckClock(lastseen.Instant(reply[2])), store.ErrClockMoved)
		}
		shards[i] = trimmed{deleted: int(reply[0]), held: reply[1] == 1, old: int(reply[2])}
	}
	return shards, nil
}
