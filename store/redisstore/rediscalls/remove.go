package rediscalls

import (
	"context"
	"slices"

	"github.com/lastseen/lastseen/store/redisstore/redisclient"
	"github.com/lastseen/lastseen/store/redisstore/scripts"
)

// Forget deletes the calls of a user. Those that go on end.
func Forget(ctx context.Context, s *Calls, ns Namespace, user string) error {
	for more := true; more; {
		reply, err := s.run(redisclient.Confirmed(ctx), ns, scripts.CallForget, 2, user)
		if err != nil || len(reply) == 0 {
			return err
		}
		more = reply[0] == int64(1)
		s.copyAll(ctx, ns, reply[1])
	}
	return nil
}

// Delete deletes all calls of a namespace, each key for itself, and removes it from the list first: see
// unlist. When they expire goes first, and the calls go last: of a call that begins in between, nothing is left
// without a due time, at which ExpireCalls deletes it.
func Delete(ctx context.Context, s *Calls, ns Namespace) error {
	if err := s.client.ZRem(ctx, s.listed, ns.Name()).Err(); err != nil {
		return redisclient.Translate(err)
	}
	pipe, due := s.client.Pipeline(), ns.Key(due)
	pipe.Unlink(ctx, due)
	for _, key := range slices.Backward(keys(ns)) { // which begin with the calls
		if key != due {
			pipe.Unlink(ctx, key)
		}
	}
	_, err := pipe.Exec(ctx)
	return redisclient.Translate(err)
}
