package redisstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore/redisclient"
)

// This file names the keys of calls, and keeps the list of namespaces with calls: see docs/decisions/calls.md.

// callKeys returns the keys of the calls of a namespace, as the scripts of calls take them: see calls.lua. All are in
// the slot of the first shard.
func (n namespace) callKeys() []string {
	words := []string{
		"calls", "callapps", "callsdue", "callsover", "callusers", "calloutbox", "callkeys", "callindex",
	}
	keys := make([]string, len(words))
	for i, word := range words {
		keys[i] = n.companion(word, n.shard(0))
	}
	return keys
}

// calls returns the key that exists while calls are kept, callsDue that of the calls that go on, and outbox that of the
// users who have to be copied.
func (n namespace) calls() string    { return n.companion("calls", n.shard(0)) }
func (n namespace) callsDue() string { return n.companion("callsdue", n.shard(0)) }
func (n namespace) outbox() string   { return n.companion("calloutbox", n.shard(0)) }

// openCalls is open for operations that concern calls.
func (s *Store) openCalls(
	ctx context.Context, name string,
) (context.Context, context.CancelFunc, *candidate, error) {
	ctx, cancel, err := s.client.Begin(ctx, 2*s.client.Timeout)
	if err != nil {
		return nil, nil, nil, err
	}
	c := &candidate{namespace: s.keys.namespace(name)}
	if !c.hasCompanions() {
		c.err = store.ErrNoCalls
	} else {
		s.verify(ctx, []*candidate{c})
	}
	if c.err != nil {
		cancel()
		return nil, nil, nil, c.err
	}
	return ctx, cancel, c, nil
}

// runCalls runs a script of calls, and returns its reply without the first element: a call that another program wrote,
// which is logged. The reply has n elements more, or fewer.
func (s *Store) runCalls(
	ctx context.Context, c *candidate, script *redis.Script, n int, args ...any,
) ([]any, error) {
	keys := c.callKeys()
	cmd, err := s.client.RunCall(ctx, script, redisclient.Call{Key: keys[0], Others: keys[1:], Args: args})
	if err != nil {
		return nil, err
	}
	reply, err := redisclient.Slice(cmd.Val(), -1)
	if err != nil || len(reply) == 0 || len(reply) > n+1 {
		return nil, fmt.Errorf("unexpected script reply %T of %d elements instead of %d", cmd.Val(), len(reply), n+1)
	}
	if reply[0] != nil {
		s.warnOfCall(c.namespace, reply[0])
	}
	return reply[1:], nil
}

// warnOfCall logs the ID of a call that cannot be read, because another program wrote it.
func (s *Store) warnOfCall(ns namespace, id any) {
	s.warnOnce(ns, "calls", "a call cannot be read: it counts as none", "call", id)
}

// listCalls has CallNamespaces return a namespace. It writes once in each round: in a Cluster, the list can be lost
// while the calls are not.
func (s *Store) listCalls(ctx context.Context, c *candidate) error {
	if s.agreements.load(c.name).calls {
		return nil
	}
	if err := s.client.ZAdd(ctx, s.keys.calling(), redis.Z{Member: c.name}).Err(); err != nil {
		return redisclient.Translate(err)
	}
	s.agreements.setCalls(c.name, true)
	return nil
}

// keepListed is listCalls for a call that was found. If it fails, the next one writes it.
func (s *Store) keepListed(ctx context.Context, c *candidate) { _ = s.listCalls(ctx, c) }

// mayHaveCalls reports whether CallNamespaces returns a namespace.
func (s *Store) mayHaveCalls(ctx context.Context, ns namespace) (bool, error) {
	if !ns.hasCompanions() {
		return false, nil
	}
	err := s.client.ZScore(ctx, s.keys.calling(), ns.name).Err()
	if errors.Is(err, redis.Nil) {
		return false, nil
	}
	return err == nil, redisclient.Translate(err)
}

// unlistCalls removes a namespace from the list that has no calls. Another server may begin one at any point: if none
// went on before, it adds the namespace again after that. It is only tidying: errors do no harm.
func (s *Store) unlistCalls(ctx context.Context, c *candidate) {
	removed, err := s.client.ZRem(ctx, s.keys.calling(), c.name).Result()
	if err != nil || removed == 0 {
		return
	}
	s.agreements.setCalls(c.name, false)
	pipe := s.client.Pipeline()
	cmds := []*redis.IntCmd{pipe.Exists(ctx, c.calls()), pipe.Exists(ctx, c.outbox())}
	_, _ = pipe.Exec(ctx) // each command keeps its error
	if n, err := redisclient.Sum(cmds); err != nil || n > 0 {
		s.keepListed(ctx, c)
	}
}
