package redisstore

import (
	"context"
)

// This file removes what users said with a namespace.

// anySays reports whether any user of a namespace says something that others see.
func (s *Store) anySays(ctx context.Context, c *candidate) (bool, error) {
	now, err := s.clock.read(ctx)
	if err != nil {
		return false, err
	}
	calls := make([]call, c.shards)
	for i, key := range c.all() {
		calls[i] = call{key: key, others: c.peopleKeys(key)[:6], args: []any{int64(now)}}
	}
	cmds, err := s.runAll(ctx, scripts.says, calls)
	for _, cmd := range cmds {
		if says, err := cmd.Bool(); err != nil || says {
			return says, err
		}
	}
	return false, err
}

// dropCompanions deletes what is kept of devices and of what users say in a namespace that was removed, and its bits,
// but not hidden times. It is only tidying: errors do no harm.
func (s *Store) dropCompanions(ctx context.Context, c *candidate) {
	if !c.bits.devices.set && !c.bits.details.set {
		return
	}
	now, err := s.clock.read(ctx)
	if err != nil {
		return
	}
	calls := make([]call, c.shards)
	for i, key := range c.all() {
		calls[i] = call{key: key, others: c.othersOf(key), args: []any{int64(now)}}
	}
	replies, err := s.runInts(ctx, scripts.companionsDrop, 2, calls...)
	if err != nil {
		return
	}
	hides := false
	for _, reply := range replies {
		if reply[0] == 1 {
			return
		}
		hides = hides || reply[1] == 1
	}
	s.dropUnusedBit(ctx, c, devicesField(c.name), c.bits.devices)
	s.dropUnusedBit(ctx, c, detailsField(c.name), c.bits.details)
	if !hides {
		s.dropUnusedBit(ctx, c, hiddenField(c.name), c.bits.hidden)
	}
}

// dropUnusedBit deletes a bit if it is still the same one.
func (s *Store) dropUnusedBit(ctx context.Context, c *candidate, field string, old bit) {
	if !old.set || old.value == "" {
		return
	}
	if _, err := s.runOnKey(ctx, scripts.drop, s.keys.meta(), field, old.value); err == nil {
		s.agreements.recheck(c.name)
	}
}
