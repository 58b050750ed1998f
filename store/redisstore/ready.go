package redisstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/lastseen/lastseen/store"
)

// probe is the key, or in a Cluster the beginning of the keys, that are written to when readiness is asked
// for. Nothing is ever stored there.
func (k keyspace) probe() string { return k.prefix + ":probe" }

// Ready returns nil when pings are taken: Redis' time is known, and Redis runs a script that writes, but
// changes nothing. It refuses that where it refuses a ping: when its memory is full, its disk fails, it
// is a replica or loading, or the user has not the rights. A replica that takes writes is not ready, either: they
// would be lost. Nor is a Redis in which the store's own keys hold something else.
//
// In a Cluster one primary that takes writes is enough. All servers see the same Cluster: if one lost
// primary made all of them unready, nobody would be served, instead of all but its users. The others
// are logged.
func (s *Store) Ready(ctx context.Context) error {
	if _, err := s.Now(ctx); err != nil {
		return err
	}
	ctx, cancel, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	var taken atomic.Bool
	err = s.eachPrimary(ctx, func(ctx context.Context, client *redis.Client, key string) error {
		err := s.writeNothing(ctx, client, key)
		if err == nil {
			taken.Store(true)
		}
		return err
	})
	if taken.Load() {
		return s.checkOwnKeys(ctx)
	}
	return translate(err)
}

// checkOwnKeys returns an error if the list of namespaces or their metas are of another type, which fails every call.
// That they cannot be read is not an error here: in a Cluster, namespaces go on without them.
func (s *Store) checkOwnKeys(ctx context.Context) error {
	pipe := s.client.Pipeline()
	replies := map[string]*redis.IntCmd{
		s.keys.registry(): pipe.ZCard(ctx, s.keys.registry()),
		s.keys.meta():     pipe.HLen(ctx, s.keys.meta()),
	}
	_, _ = pipe.Exec(ctx) // the error is also in the commands it befell
	var refused error
	for key, reply := range replies {
		about := finding{s.where, key}
		if !errors.Is(translate(reply.Err()), store.ErrWrongType) {
			s.servers.forget(about)
			continue
		}
		refused = fmt.Errorf("%w: the key %s holds another type of value than lastseen's own: rename it, or choose another --redis-prefix",
			store.ErrUnavailable, key)
		s.servers.tell(slog.LevelError, about, "", "every namespace is refused", "error", refused)
	}
	return refused
}

// writeNothing does a write that changes nothing, and returns an error if that fails or would be lost.
func (s *Store) writeNothing(ctx context.Context, client *redis.Client, key string) error {
	server := s.nameOf(client)
	err := translate(scripts.probe.Run(ctx, client, []string{key}).Err())
	if err == nil {
		err = isPrimary(ctx, client)
	}
	switch {
	case err == nil:
		s.servers.forget(finding{server, "ready"})
	case errors.Is(err, errReplica) || strings.HasPrefix(said(err), "READONLY"):
		s.servers.tell(slog.LevelWarn, finding{server, "ready"}, "replica",
			"this Redis is a replica: it takes no writes, and what it answers may be old", "server", server, "error", err)
	default:
		s.servers.tell(slog.LevelWarn, finding{server, "ready"}, "", "this Redis takes no writes", "server", server, "error", err)
	}
	return err
}

// errReplica is the error of a replica that takes writes.
var errReplica = errors.New("redis is a replica: what is written to it is lost")

// isPrimary returns an error if a server is a replica, or cannot be asked. One that is not allowed to be asked is taken
// to be a primary.
func isPrimary(ctx context.Context, client *redis.Client) error {
	info, err := readInfo(ctx, client, "replication")
	if err != nil {
		return translate(err)
	}
	if info["role"] == "slave" {
		return fmt.Errorf("%w: %w", store.ErrUnavailable, errReplica)
	}
	return nil
}
