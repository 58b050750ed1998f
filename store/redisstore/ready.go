package redisstore

import (
	"cmp"
	"context"
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
		value := ""
		if errors.Is(redisclient.Translate(reply.Err()), store.ErrWrongType) {
			value, err = "wrong type", fmt.Errorf("%w: the key %s holds a value of another type than lastseen's own: "+
				"rename it, or choose another --redis-prefix", store.ErrUnavailable, key)
		}
		s.client.Log.LogOnce(slog.LevelError, s.client.Name, key, value, "every namespace is refused", "error", err)
		refused = cmp.Or(refused, err)
	}
	return refused
}
