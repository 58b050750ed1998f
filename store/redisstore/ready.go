package redisstore

import (
	"context"
	"log/slog"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// probe is the key, or in a Cluster the beginning of the keys, that are written to when readiness is asked
// for. Nothing is ever stored there.
func (k keyspace) probe() string { return k.prefix + ":probe" }

// Ready returns nil when pings are taken: Redis' time is known, and Redis runs a script that writes, but
// changes nothing. It refuses that where it refuses a ping: when its memory is full, its disk fails, it
// is a replica or loading, or the user has not the rights.
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
		return nil
	}
	return translate(err)
}

// writeNothing does a write that changes nothing.
func (s *Store) writeNothing(ctx context.Context, client *redis.Client, key string) error {
	server := s.nameOf(client)
	if err := translate(scripts.probe.Run(ctx, client, []string{key}).Err()); err != nil {
		s.servers.tell(slog.LevelWarn, finding{server, "ready"}, "", "this Redis takes no writes", "server", server, "error", err)
		return err
	}
	s.servers.forget(finding{server, "ready"})
	return nil
}
