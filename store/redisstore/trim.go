package redisstore

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore/scripts"
)

// Trim implements [store.Store]. If users may have devices, it takes several round trips: see maxDeviceTrim.
func (s *Store) Trim(ctx context.Context, namespace string, q store.TrimQuery) (result store.TrimResult, err error) {
	ctx, cancel, ns, err := s.open(ctx, namespace)
	if err != nil {
		return result, err
	}
	defer cancel()
	has, err := s.sidesOf(ctx, ns)
	if err != nil {
		return result, err
	}
	limits, held, err := s.trimLimits(ctx, ns, q)
	if err != nil {
		return result, err
	}
	size := store.MaxTrim
	if slices.ContainsFunc(has, func(has sides) bool { return has.has("r") }) {
		size = maxDeviceTrim
	}
	result.Held = held
	for part := range parts(limits, size) {
		shards, err := s.trim(ctx, ns, q, part)
		deleted := 0
		for _, shard := range shards {
			deleted += shard.deleted
			result.Held = result.Held || shard.held
		}
		if result.Deleted += deleted; err != nil || deleted < total(part) {
			return result, err
		}
	}
	return result, nil
}

// trimLimits returns how many members to delete from each shard at most, and whether one of them has to keep all. If
// there are several shards, it first checks the clocks of all, and counts what to delete in each: one shard after the
// other would take too long.
func (s *Store) trimLimits(ctx context.Context, ns namespace, q store.TrimQuery) (limits []int, held bool, err error) {
	if ns.shards == 1 {
		return []int{store.MaxTrim}, false, nil
	}
	counted, err := s.trim(ctx, ns, q, make([]int, ns.shards))
	if err != nil {
		return nil, false, err
	}
	room := store.MaxTrim
	limits = make([]int, ns.shards)
	for i, shard := range counted {
		held = held || shard.held
		if !shard.held {
			limits[i] = min(shard.old, room)
			room -= limits[i]
		}
	}
	return limits, held, nil
}

// maxDeviceTrim bounds the users that are deleted in one round trip if they may have devices, and so the time that
// Redis is busy: it runs the commands that it reads together before it serves other clients. 100 users of 32 devices
// with meta take 4 ms.
const maxDeviceTrim = 100

// parts divides the limits of shards into parts whose sum is at most a size.
func parts(limits []int, size int) iter.Seq[[]int] {
	return func(yield func([]int) bool) {
		for rest := slices.Clone(limits); ; {
			part, room := make([]int, len(rest)), size
			for i := range rest {
				part[i] = min(rest[i], room)
				rest[i] -= part[i]
				room -= part[i]
			}
			if room == size || !yield(part) {
				return
			}
		}
	}
}

func total(numbers []int) (sum int) {
	for _, n := range numbers {
		sum += n
	}
	return sum
}

type trimmed struct {
	deleted int
	held    bool
	old     int // members that were too old before
}

// trim deletes members of each shard that are older than the query's age, all in one round trip: at most as many as its
// limit. If all limits are 0 it only counts them, otherwise it leaves out the shards with limit 0. The times of owners
// of contacts become their last uses.
func (s *Store) trim(ctx context.Context, ns namespace, q store.TrimQuery, limits []int) ([]trimmed, error) {
	counts := total(limits) == 0
	var calls []shardCall
	for i, limit := range limits {
		if limit == 0 && !counts {
			continue
		}
		calls = append(calls, shardCall{
			namespace: ns, shard: ns.shard(i), script: scripts.Trim, reads: true, uses: "dfmru",
			args: []any{
				q.Age.Milliseconds(), int64(q.Now), store.MaxClockDrift.Milliseconds(), ns.perScore(),
				limit, q.All, ns.time(lastseen.MaxInstant + 1),
			},
		})
	}
	cmds, err := s.runShardsAll(ctx, calls)
	if err != nil {
		return nil, err
	}
	shards := make([]trimmed, len(cmds))
	for i, cmd := range cmds {
		reply, err := cmd.Int64Slice()
		if len(reply) == 0 && err == nil {
			continue // nothing exists
		}
		if err != nil || len(reply) != 3 {
			return nil, fmt.Errorf("unexpected script reply %v instead of 3 numbers", cmd.Val())
		}
		if reply[0] < 0 {
			return nil, cmp.Or(q.CheckClock(lastseen.Instant(reply[2])), store.ErrClockMoved)
		}
		shards[i] = trimmed{deleted: int(reply[0]), held: reply[1] == 1, old: int(reply[2])}
	}
	return shards, nil
}
