package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore/redisclient"
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

// What follows deletes the contacts of owners who use nothing any longer: see docs/decisions/contacts.md.

// TrimContacts implements [store.Store]. If several shards have contacts, it first checks the clocks of all, and counts
// the owners to look at in each, in one round trip.
func (s *Store) TrimContacts(
	ctx context.Context, name string, q store.TrimQuery,
) (result store.ContactsTrimResult, err error) {
	ctx, cancel, c, err := s.openSides(ctx, name, store.ErrNoContacts)
	if err != nil {
		return result, err
	}
	defer cancel()
	ns := c.namespace
	shards, err := s.shardsWithContacts(ctx, ns)
	if err != nil || len(shards) == 0 {
		return result, err
	}
	limits := contactsLimits{contacts: store.MaxContacts}
	if len(shards) == 1 {
		limits.owners = store.MaxTrim
	}
	walk := contactWalk{}
	if last, found := s.contactWalks.Load(name); found {
		walk = last.(contactWalk)
	}
	all, err := s.trimContacts(ctx, ns, q, shards, limits, ns.shard(walk.shard), walk.after)
	if err != nil {
		return result, err
	}
	if walk = walk.next(ns, shards, all); walk == (contactWalk{}) {
		s.contactWalks.Delete(name)
	} else {
		s.contactWalks.Store(name, walk)
	}
	if len(shards) == 1 {
		return all[0].ContactsTrimResult, nil
	}
	return s.trimContactsOf(ctx, ns, q, shards, all)
}

// trimContactsOf deletes contacts in the shards in which there are owners to look at, one shard after the other.
func (s *Store) trimContactsOf(
	ctx context.Context, ns namespace, q store.TrimQuery, shards []string, counted []contactsTrimmed,
) (result store.ContactsTrimResult, err error) {
	room := contactsLimits{store.MaxTrim, store.MaxContacts}
	for i, c := range counted {
		if c.due == 0 {
			continue
		}
		if room.owners == 0 {
			result.More = true
			break
		}
		trimmed, err := s.trimContacts(ctx, ns, q, shards[i:i+1], room, "", "")
		if err != nil {
			return result, err
		}
		shard := trimmed[0]
		result.Owners += shard.Owners
		result.Contacts += shard.Contacts
		result.Held = result.Held || shard.Held
		result.More = result.More || shard.More
		room.owners -= min(shard.due, room.owners)
		room.contacts -= shard.Contacts
	}
	return result, nil
}

// contactsLimits are how many owners of contacts are looked at, and how many contacts are deleted, at most.
type contactsLimits struct{ owners, contacts int }

// contactsTrimmed is what contactstrim.lua replies.
type contactsTrimmed struct {
	store.ContactsTrimResult
	due      int    // owners to look at
	position string // where the walk over all owners stopped
}

// trimContacts runs contactstrim.lua on shards, all in one round trip. In the shard walked, if it is one of them, the
// walk continues after an owner.
func (s *Store) trimContacts(
	ctx context.Context, ns namespace, q store.TrimQuery, shards []string, limits contactsLimits, walked, after string,
) ([]contactsTrimmed, error) {
	calls := make([]shardCall, len(shards))
	for i, key := range shards {
		owners := 0
		if key == walked {
			owners = walkOwners
		}
		calls[i] = shardCall{
			namespace: ns, shard: key, script: scripts.ContactsTrim, uses: "cfhp", creates: "u", appends: true,
			args: []any{
				q.Age.Milliseconds(), int64(q.Now), store.MaxClockDrift.Milliseconds(),
				limits.owners, limits.contacts, q.All, owners, after,
			},
		}
	}
	cmds, err := s.runShardsAll(ctx, calls)
	if err != nil {
		return nil, err
	}
	trimmed := make([]contactsTrimmed, len(cmds))
	for i, cmd := range cmds {
		if trimmed[i], err = readContactsTrimmed(q, cmd); err != nil {
			return nil, err
		}
	}
	return trimmed, nil
}

func readContactsTrimmed(q store.TrimQuery, cmd *redis.Cmd) (contactsTrimmed, error) {
	reply, err := redisclient.Slice(cmd.Val(), 7)
	if err != nil {
		return contactsTrimmed{}, err
	}
	numbers := make([]int, 6)
	for i := range numbers {
		n, ok := reply[i].(int64)
		if !ok {
			return contactsTrimmed{}, errors.New("unexpected script reply: no number")
		}
		numbers[i] = int(n)
	}
	if numbers[0] < 0 {
		return contactsTrimmed{}, cmp.Or(q.CheckClock(lastseen.Instant(numbers[5])), store.ErrClockMoved)
	}
	position, _ := reply[6].(string)
	return contactsTrimmed{
		ContactsTrimResult: store.ContactsTrimResult{
			Owners: numbers[1], Contacts: numbers[2], Held: numbers[3] == 1, More: numbers[4] == 1,
		},
		due: numbers[0], position: position,
	}, nil
}

// shardsWithContacts returns the shards of a namespace that have contacts. What is added meanwhile was used after
// anything that is deleted.
func (s *Store) shardsWithContacts(ctx context.Context, ns namespace) (shards []string, err error) {
	all, err := s.sidesOf(ctx, ns)
	for i, has := range all {
		if has.has("c") {
			shards = append(shards, ns.shard(i))
		}
	}
	return shards, err
}

// walkOwners is how many owners of contacts one call of TrimContacts looks at, to give those a last use who have none.
// This takes Redis about a millisecond.
const walkOwners = 200

// contactWalk is the position of a walk over all owners of contacts of a namespace, which goes on and on.
type contactWalk struct {
	shard int
	after string // the owner; "" for the first one of the shard
}

// next returns the position after what shards replied.
func (w contactWalk) next(ns namespace, shards []string, replies []contactsTrimmed) contactWalk {
	w.after = ""
	if i := slices.Index(shards, ns.shard(w.shard)); i >= 0 {
		w.after = replies[i].position
	}
	if w.after == "" {
		w.shard = (w.shard + 1) % ns.shards
	}
	return w
}
