package redisstore

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"sync"

	"github.com/redis/go-redis/v9"
)

// probe is the key that is written to when readiness is asked for. Nothing is ever stored in it.
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
	var mu sync.Mutex
	var refused error
	taken := false
	err = s.eachPrimary(ctx, func(ctx context.Context, client *redis.Client) error {
		err := translate(s.writeNothing(ctx, client))
		mu.Lock()
		defer mu.Unlock()
		taken, refused = taken || err == nil, errors.Join(refused, err)
		return nil
	})
	if taken {
		return nil
	}
	return errors.Join(translate(err), refused)
}

// writeNothing writes to one server what changes nothing.
func (s *Store) writeNothing(ctx context.Context, client *redis.Client) error {
	server := s.nameOf(client)
	key, err := s.probeKey(ctx, client)
	if err == nil {
		err = scripts.probe.Run(ctx, client, []string{key}).Err()
	}
	if err != nil {
		s.servers.tell(slog.LevelWarn, finding{server, "ready"}, "", "this Redis takes no writes", "server", server, "error", err)
		return err
	}
	s.servers.forget(finding{server, "ready"})
	return nil
}

// mostProbes bounds the search for a key that a primary owns. One with so few slots that it is in vain
// goes by the others.
const mostProbes = 10_000

// probeKey returns a key that a server owns.
func (s *Store) probeKey(ctx context.Context, client *redis.Client) (string, error) {
	c, ok := s.client.(*redis.ClusterClient)
	if !ok {
		return s.keys.probe(), nil
	}
	for n := range mostProbes {
		key := s.keys.probe() + ":" + strconv.Itoa(n)
		owner, err := c.MasterForKey(ctx, key)
		if err != nil || owner == client {
			return key, err
		}
	}
	return "", errors.New("this primary has hardly any slots")
}
