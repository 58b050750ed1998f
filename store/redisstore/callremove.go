package redisstore

import (
	"context"
	"slices"

	"github.com/lastseen/lastseen/store/redisstore/redisclient"
	"github.com/lastseen/lastseen/store/redisstore/scripts"
)

// This file removes calls with users and namespaces.

// forgetCalls deletes the calls of a user. Those that go on end.
func (s *Store) forgetCalls(ctx context.Context, ns namespace, user string) error {
	may, err := s.mayHaveCalls(ctx, ns)
	if err != nil || !may {
		return err
	}
	c := &candidate{namespace: ns}
	if s.verify(ctx, []*candidate{c}); c.err != nil {
		return c.err
	}
	for more := true; more; {
		reply, err := s.runCalls(redisclient.Confirmed(ctx), c, scripts.CallForget, 2, user)
		if err != nil {
			return err
		}
		more = reply[0] == int64(1)
		s.copyInCalls(ctx, c, reply[1])
	}
	return nil
}

// deleteCalls deletes all calls of a namespace, each key for itself, and removes it from the list first: see
// unlistCalls. When they expire goes first, and the calls go last: of a call that begins in between, nothing is left
// without a due time, at which ExpireCalls deletes it.
func (s *Store) deleteCalls(ctx context.Context, ns namespace) error {
	if !ns.hasCompanions() {
		return nil
	}
	if err := s.client.ZRem(ctx, s.keys.calling(), ns.name).Err(); err != nil {
		return redisclient.Translate(err)
	}
	pipe := s.client.Pipeline()
	pipe.Unlink(ctx, ns.callsDue())
	for _, key := range slices.Backward(ns.callKeys()) { // which begin with the calls
		if key != ns.callsDue() {
			pipe.Unlink(ctx, key)
		}
	}
	_, err := pipe.Exec(ctx)
	return redisclient.Translate(err)
}
