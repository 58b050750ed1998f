package redisstore

import (
	"context"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/lastseen/lastseen/store/redisstore/redisclient"
	"github.com/lastseen/lastseen/store/redisstore/scripts"
)

// This file compares the hashes of shards with the side keys that exist. See look.lua.

// look is the comparison of a shard.
type look struct {
	*shardCall
	stored *redis.StringCmd
	exist  []*redis.IntCmd // the shard, and its side keys in the order of their letters
	absent bool            // nothing existed
}

// lookFirst compares the shards of open calls with their hashes if this process has not done so for a minute. It fills
// in the replies of calls that fail, or that read where nothing exists, and returns the others, and those that failed
// because their slot moves.
func (s *Store) lookFirst(ctx context.Context, calls []shardCall, open []int, cmds []*redis.Cmd) (ready, again []int) {
	unknown := map[string]*look{}
	var order []*look
	round := s.metaCache.round.Load()
	for _, at := range open {
		c := &calls[at]
		known := s.sides.of(c.shard)
		if !c.hasSideKeys() || known.stored != "" && known.round > round-keepKnown {
			continue
		}
		if l := unknown[c.shard]; l == nil {
			unknown[c.shard] = &look{shardCall: c}
			order = append(order, unknown[c.shard])
		} else if l.reads && !c.reads {
			l.shardCall = c
		}
	}
	if len(order) == 0 {
		return open, nil
	}
	failed := s.lookAt(redisclient.Unconfirmed(ctx), order) // nothing of it has to be confirmed
	for _, at := range open {
		c := &calls[at]
		if l := unknown[c.shard]; l != nil {
			if err := failed[c.shard]; err != nil || l.absent && c.reads {
				cmds[at] = redis.NewCmd(ctx)
				cmds[at].SetVal([]any{})
				cmds[at].SetErr(err)
				if redis.HasErrorPrefix(err, "TRYAGAIN") {
					again = append(again, at)
				}
				continue
			}
		}
		ready = append(ready, at)
	}
	return ready, again
}

// lookAt compares shards, with commands of one key each, since those work while slots move, and corrects hashes that
// are wrong. It returns the errors, by shard.
func (s *Store) lookAt(ctx context.Context, all []*look) (failed map[string]error) {
	pipe := s.client.Pipeline()
	for _, l := range all {
		l.stored = pipe.HGet(ctx, l.sidesKey(l.shard), sidesField)
		l.exist = append(l.exist, pipe.Exists(ctx, l.shard))
		for _, letter := range sideLetters {
			l.exist = append(l.exist, pipe.Exists(ctx, l.sideKey(l.shard, letter)))
		}
	}
	_, _ = pipe.Exec(ctx) // each command keeps its error
	failed = map[string]error{}
	var wrong []*look
	var calls []redisclient.Call
	for _, l := range all {
		correction, err := s.compare(l)
		if err != nil {
			failed[l.shard] = err
		} else if correction != nil {
			wrong, calls = append(wrong, l), append(calls, *correction)
		}
	}
	for i, cmd := range s.client.RunEach(ctx, calls) {
		shard := wrong[i].shard
		text, err := s.repair(ctx, calls[i], cmd)
		if err != nil && (!redis.HasErrorPrefix(err, "TRYAGAIN") || s.sides.of(shard).stored == "") {
			failed[shard] = err
		} else if err == nil {
			s.sides.set(shard, knownShard{stored: text, round: s.metaCache.round.Load()})
		}
	}
	return failed
}

// repair repeats look.lua until the two keys of hidden times do not differ, and returns what the hash has then.
func (s *Store) repair(ctx context.Context, c redisclient.Call, cmd *redis.Cmd) (sides, error) {
	text, err := cmd.Text()
	stored, position, unfinished := strings.Cut(strings.TrimPrefix(text, "SIDES "), " ")
	if err != nil || !unfinished {
		return sides(stored), err
	}
	c.Args = []any{c.Args[0], position, "", c.Args[3], stored}
	return s.repair(ctx, c, s.client.RunEach(ctx, []redisclient.Call{c})[0])
}

// compare learns what the hash of a shard has, and which of its keys exist. It returns the call that corrects the hash;
// nil if it is right, or if nothing exists and nothing is to be written.
func (s *Store) compare(l *look) (*redisclient.Call, error) {
	text, _, err := textOf(l.stored)
	if err != nil {
		return nil, l.stored.Err()
	}
	found, exists := "-", false
	for i, cmd := range l.exist {
		if cmd.Err() != nil {
			return nil, cmd.Err()
		}
		if cmd.Val() > 0 {
			if exists = true; i > 0 {
				found += sideLetters[i-1 : i]
			}
		}
	}
	stored := sides(text)
	s.sides.set(l.shard, knownShard{stored: stored, lost: without(text, found), round: s.metaCache.round.Load()})
	if strings.ContainsAny(found, "hp") { // see repair
		found += "hp"
	}
	if l.absent = text == "" && !exists; text == found || l.absent && l.reads {
		return nil, nil
	}
	letters := stored.only(sideLetters, strings.TrimPrefix(found, "-"))
	keep := !l.reads
	return &redisclient.Call{
		Key: l.shard, Script: scripts.Look, Others: l.sideKeys(l.shard, letters),
		Args: []any{keep, "", "", letters, text},
	}, nil
}
