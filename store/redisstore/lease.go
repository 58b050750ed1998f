package redisstore

import (
	"context"
	"time"
)

// lease is the key of a lease. It ends by itself, also when its holder crashed.
func (k keyspace) lease(name string) string { return k.prefix + ":lease:" + name }

// Lease implements [store.Store].
func (s *Store) Lease(ctx context.Context, name string, ttl time.Duration) (bool, error) {
	args := []any{s.holder, max(1, ttl.Milliseconds())}
	cmds, err := s.runScript(ctx, scripts.lease, []call{{key: s.keys.lease(name), args: args}})
	if err != nil {
		return false, err
	}
	return cmds[0].Bool()
}
