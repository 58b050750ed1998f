package redisstore

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore/redisclient"
)

// monitor checks the servers again, and what this store needs of them. It runs once at a time, so that what a slow one
// found does not replace what was found later.
func (s *Store) monitor(ctx context.Context) {
	s.monitoring.Lock()
	defer s.monitoring.Unlock()
	ctx, cancel := context.WithTimeout(ctx, s.client.Timeout)
	defer cancel()
	if s.client.Check(ctx) == nil {
		_ = s.checkOwnKeys(ctx)
		s.checkFeedRights(ctx)
	}
	s.logReplaced()
}

// logReplaced logs how many times Redis replaced by its own since the last call.
func (s *Store) logReplaced() {
	if n := s.replaced.Swap(0); n > 0 {
		s.client.Log.Warn("times ahead of the clock of the Redis that records them were replaced by its time; in a "+
			"Cluster, the clocks of all servers have to agree", "times", n, "allowed", store.MaxAhead.String())
	}
}

// Ready returns nil when pings are accepted: Redis' time is known, and Redis runs a script that writes but changes
// nothing. In a Cluster one primary that runs it is enough. See docs/decisions/redis-topologies.md.
func (s *Store) Ready(ctx context.Context) error {
	if _, err := s.Now(ctx); err != nil {
		return err
	}
	ctx, cancel, err := s.client.Begin(ctx, s.client.Timeout)
	if err != nil {
		return err
	}
	defer cancel()
	errs := s.client.TryWriting(ctx)
	if slices.Contains(errs, nil) {
		return s.checkOwnKeys(ctx)
	}
	return redisclient.Translate(errors.Join(errs...))
}

// checkOwnKeys returns an error if the list of namespaces or their metas are of another type, which fails every call.
// It is not an error here if they cannot be read: in a Cluster, namespaces work without them.
func (s *Store) checkOwnKeys(ctx context.Context) error {
	pipe := s.client.Pipeline()
	replies := map[string]*redis.IntCmd{
		s.keys.registry(): pipe.ZCard(ctx, s.keys.registry()),
		s.keys.meta():     pipe.HLen(ctx, s.keys.meta()),
	}
	_, _ = pipe.Exec(ctx) // each command keeps its error
	var refused error
	for key, reply := range replies {
		var err error
		if errors.Is(redisclient.Translate(reply.Err()), store.ErrWrongType) {
			err = fmt.Errorf("%w: the key %s holds a value of another type than lastseen's own: "+
				"rename it, or choose another --redis-prefix", store.ErrUnavailable, key)
		}
		s.client.Log.LogIf(err != nil, slog.LevelError, s.client.Name, key, "every namespace is refused", "error", err)
		refused = cmp.Or(refused, err)
	}
	return refused
}

// Secret implements [store.Store].
func (s *Store) Secret(ctx context.Context) (secret [32]byte, err error) {
	ctx, cancel, err := s.client.Begin(ctx, s.client.Timeout)
	if err != nil {
		return secret, err
	}
	defer cancel()
	text, err := s.client.Get(ctx, s.keys.secret()).Bytes()
	if errors.Is(err, redis.Nil) {
		made := [len(secret)]byte{}
		_, _ = rand.Read(made[:]) // it never fails
		if err = s.client.SetNX(ctx, s.keys.secret(), made[:], 0).Err(); err == nil {
			text, err = s.client.Get(ctx, s.keys.secret()).Bytes()
		}
	}
	if err == nil && len(text) != len(secret) {
		err = fmt.Errorf("%w: %s is not a secret of this program", store.ErrUnavailable, s.keys.secret())
	}
	copy(secret[:], text)
	return secret, redisclient.Translate(err)
}

var _ store.Batcher = (*Store)(nil)

// NodeOf implements [store.Batcher]: in a Cluster the name is the address of the primary that has the user's shard, as
// far as the client knows. If it is wrong, the client redirects the call.
func (s *Store) NodeOf(name string) (of func(user string) string) {
	c, ok := s.client.UniversalClient.(*redis.ClusterClient)
	if !ok {
		return func(string) string { return "" }
	}
	ns := s.keys.namespace(name)
	nodes := make(map[int]string, 1) // by shard, since there are fewer shards than users
	unknown := false                 // if one shard's node is not known, the others are not looked up
	return func(user string) string {
		shard := shardOf(user, ns.shards)
		if node, found := nodes[shard]; found || unknown {
			return node
		}
		// The client may have to ask the Cluster.
		ctx, cancel := context.WithTimeout(context.Background(), s.client.Timeout)
		defer cancel()
		primary, err := c.MasterForKey(ctx, ns.shard(shard))
		if unknown = err != nil; unknown {
			return ""
		}
		nodes[shard] = primary.Options().Addr
		return nodes[shard]
	}
}
