package redisstore

import (
	"context"
	"fmt"
)

// This file removes calls with users and namespaces.

// forgetCalls deletes the calls of a user. Those that go on end.
func (s *Store) forgetCalls(ctx context.Context, c *candidate, user string) error {
	if !c.bits.calls.set {
		return nil
	}
	for {
		reply, err := s.runCalls(confirmed(ctx), c, scripts.callForget, 1, user)
		if err != nil {
			return err
		}
		if more := len(reply) == 1 && reply[0] == int64(1); !more {
			return nil
		}
	}
}

// dropCalls deletes the calls of a namespace that was removed, and the bit. It reports whether a call goes on: then
// another server has begun it since, and nothing is deleted.
func (s *Store) dropCalls(ctx context.Context, c *candidate) (used bool, err error) {
	if !c.bits.calls.set {
		return false, nil
	}
	reply, err := s.runCalls(ctx, c, scripts.callDrop, 1)
	if err != nil {
		return false, err
	}
	if len(reply) != 1 {
		return false, fmt.Errorf("unexpected script reply of %d elements instead of 1", len(reply))
	}
	if used = reply[0] == int64(1); !used {
		s.dropCallsBit(ctx, c)
	}
	return used, nil
}
