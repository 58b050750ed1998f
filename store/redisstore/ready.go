package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore/scripts"
)

// Ready returns nil when pings are accepted: Redis' time is known, and Redis runs a script that writes but changes
// nothing. In a Cluster one primary that runs it is enough. See docs/decisions/redis-topologies.md.
func (s *Store) Ready(ctx context.Context) error {
	if _, err := s.Now(ctx); err != nil {
		return err
	}
	ctx, cancel, err := s.begin(ctx, s.timeout)
	if err != nil {
		return err
	}
	defer cancel()
	errs := s.forEachPrimary(ctx, s.writeNothing)
	if slices.Contains(errs, nil) {
		return s.checkOwnKeys(ctx)
	}
	return translate(errors.Join(errs...))
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
		if errors.Is(translate(reply.Err()), store.ErrWrongType) {
			value, err = "wrong type", fmt.Errorf("%w: the key %s holds a value of another type than lastseen's own: "+
				"rename it, or choose another --redis-prefix", store.ErrUnavailable, key)
		}
		s.log.logOnce(slog.LevelError, topic{s.url, key}, value, "every namespace is refused", "error", err)
		refused = cmp.Or(refused, err)
	}
	return refused
}

// writeNothing does a write that changes nothing, and returns an error if that fails or would be lost.
func (s *Store) writeNothing(ctx context.Context, client *redis.Client, key string) error {
	err := translate(scripts.Probe.Run(confirmed(ctx), client, []string{key}).Err())
	if err == nil {
		err = checkPrimary(ctx, client)
	}
	if errors.Is(err, context.Canceled) { // by the caller or by Close, which says nothing about the server
		return err
	}
	value, message := "", "this Redis takes no writes"
	switch {
	case errors.Is(err, errReplica) || strings.HasPrefix(replyError(err), "READONLY"):
		value, message = "replica", "this Redis is a replica: it takes no writes, and its replies may be old"
	case err != nil:
		value = "refused"
	}
	server := s.nameOf(client)
	s.log.logOnce(slog.LevelWarn, topic{server, "ready"}, value, message, "server", server, "error", err)
	return err
}

// errReplica is the error of a replica that accepts writes.
var errReplica = errors.New("redis is a replica: what is written to it is lost")

// checkPrimary returns an error if a server is a replica, or cannot be asked. If the user may not ask, it is taken to
// be a primary.
func checkPrimary(ctx context.Context, client *redis.Client) error {
	info, err := readInfo(ctx, client, "replication")
	if err == nil && info["role"] == "slave" {
		return fmt.Errorf("%w: %w", store.ErrUnavailable, errReplica)
	}
	return translate(err)
}
