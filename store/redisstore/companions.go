package redisstore

import (
	"context"
	"strconv"
	"strings"
)

// This file says which namespaces can have companions, the keys beside a shard's: those of a changes feed, and those of
// devices. See docs/decisions/redis-keys.md.

// hasCompanions reports whether a namespace can have companions. They are in the slot of the shard's key because their
// names contain that key in braces, so there can be no other braces. Sets that other programs write have none, since
// companions would miss those writes.
func (n namespace) hasCompanions() bool {
	return n.own && !n.shared && !strings.ContainsAny(n.key, "{}")
}

func (n namespace) companion(what, shard string) string {
	return strings.TrimSuffix(n.key, n.name) + what + ":{" + shard + "}"
}

// bits say which companions the scripts of a namespace name. The fields of presence::meta that hold them end in a colon
// and a word. Names contain no colon, so they are not the fields of other namespaces.
type bits struct{ feed, devices bit }

func feedField(namespace string) string    { return namespace + ":changes" }
func devicesField(namespace string) string { return namespace + ":devices" }

// bit is what presence::meta says about companions. Its value is the time at which it was set.
type bit struct {
	set   bool
	value string // "" if it could not be read
}

// readBit reads a bit from its field; nil if there is none.
func (n namespace) readBit(field any) bit {
	text, found := field.(string)
	return bit{set: found && n.hasCompanions(), value: text}
}

// setBit sets the bit that a field of presence::meta holds, and returns it.
func (s *Store) setBit(ctx context.Context, field string) (bit, error) {
	now, err := s.clock.read(ctx)
	if err != nil {
		return bit{}, err
	}
	value := strconv.FormatInt(int64(now), 10)
	if err := s.client.HSet(ctx, s.keys.meta(), field, value).Err(); err != nil {
		return bit{}, translate(err)
	}
	return bit{set: true, value: value}, nil
}

// openWithBits is open for operations that concern the namespace's companions. If it had no device at the last check,
// that is read again: another server may have recorded one since.
func (s *Store) openWithBits(
	ctx context.Context, name string,
) (context.Context, context.CancelFunc, *candidate, error) {
	c := &candidate{namespace: s.keys.namespace(name)}
	ctx, cancel, err := s.begin(ctx, 2*s.timeout)
	if err != nil {
		return nil, nil, c, err
	}
	checked := !s.agreements.current(name)
	s.verify(ctx, []*candidate{c})
	if c.err == nil && !c.bits.devices.set && c.hasCompanions() && !checked {
		s.agreements.recheck(name)
		s.verify(ctx, []*candidate{c})
	}
	if c.err != nil {
		cancel()
		return nil, nil, c, c.err
	}
	return ctx, cancel, c, nil
}
