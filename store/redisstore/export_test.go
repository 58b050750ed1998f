package redisstore

import "context"

// ExpireAgreements makes the store check each namespace again, as it does every sampleEvery.
func (s *Store) ExpireAgreements() { s.checked.Clear() }

// Patrol looks after the servers, as it does every sampleEvery.
func (s *Store) Patrol(ctx context.Context) { s.patrol(ctx) }
