package redisstore

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore/redisclient"
	"github.com/lastseen/lastseen/store/redisstore/scripts"
)

// This file deletes the contacts of owners who use nothing any longer: see docs/decisions/contacts.md.

// TrimContacts implements [store.Store]. If several shards have contacts, it first checks the clocks of all, and counts
// the owners to look at in each, in one round trip.
func (s *contacts) TrimContacts(
	ctx context.Context, name string, q store.TrimQuery,
) (result store.ContactsTrimResult, err error) {
	ctx, cancel, ns, err := s.openContacts(ctx, name)
	if err != nil {
		return result, err
	}
	defer cancel()
	shards, err := s.shardsWithContacts(ctx, ns)
	if err != nil || len(shards) == 0 {
		return result, err
	}
	limits := contactsLimits{contacts: store.MaxContacts}
	if len(shards) == 1 {
		limits.owners = store.MaxTrim
	}
	walk := contactWalk{}
	if last, found := s.walks.Load(name); found {
		walk = last.(contactWalk)
	}
	all, err := s.trimContacts(ctx, ns, q, shards, limits, walk)
	if err != nil {
		return result, err
	}
	if walk = walk.next(ns, shards, all); walk == (contactWalk{}) {
		s.walks.Delete(name)
	} else {
		s.walks.Store(name, walk)
	}
	if len(shards) == 1 {
		return all[0].ContactsTrimResult, nil
	}
	return s.trimContactsOf(ctx, ns, q, shards, all)
}

// trimContactsOf deletes contacts in the shards in which there are owners to look at, one shard after the other.
func (s *contacts) trimContactsOf(
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
		trimmed, err := s.trimContacts(ctx, ns, q, shards[i:i+1], room, noWalk)
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

// trimContacts runs contactstrim.lua on shards, all in one round trip. The walk continues if it is in one of them.
func (s *contacts) trimContacts(
	ctx context.Context, ns namespace, q store.TrimQuery, shards []string, limits contactsLimits, walk contactWalk,
) ([]contactsTrimmed, error) {
	calls := make([]shardCall, len(shards))
	for i, key := range shards {
		owners := 0
		if key == walk.key(ns) {
			owners = walkOwners
		}
		calls[i] = shardCall{
			namespace: ns, shard: key, script: scripts.ContactsTrim, uses: "cfhp", creates: "u", appends: true,
			args: []any{
				q.Age.Milliseconds(), int64(q.Now), store.MaxClockDrift.Milliseconds(),
				limits.owners, limits.contacts, q.All, owners, walk.after,
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
func (s *contacts) shardsWithContacts(ctx context.Context, ns namespace) (shards []string, err error) {
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

// noWalk is in no shard.
var noWalk = contactWalk{shard: -1}

func (w contactWalk) key(ns namespace) string {
	if w.shard < 0 {
		return ""
	}
	return ns.shard(w.shard)
}

// next returns the position after what shards replied.
func (w contactWalk) next(ns namespace, shards []string, replies []contactsTrimmed) contactWalk {
	w.after = ""
	if i := slices.Index(shards, w.key(ns)); i >= 0 {
		w.after = replies[i].position
	}
	if w.after == "" {
		w.shard = (w.shard + 1) % ns.shards
	}
	return w
}
