package redisstore

import (
	"context"
	"time"

	"github.com/lastseen/lastseen/store/redisstore/scripts"
)

// Lease implements [store.Store].
func (s *Store) Lease(ctx context.Context, name string, ttl time.Duration) (bool, error) {
	ctx, cancel, err := s.client.Begin(ctx, s.client.Timeout)
	if err != nil {
		return false, err
	}
	defer cancel()
	cmd, err := s.client.Run(ctx, scripts.Lease, s.keys.lease(name), s.holder, max(1, ttl.Milliseconds()))
	if err != nil {
		return false, err
	}
	return cmd.Bool()
}
