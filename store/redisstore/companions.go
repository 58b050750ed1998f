package redisstore

import (
	"context"
	"strconv"
	"strings"
)

// This file says which namespaces can have companions, the keys beside a shard's: those of a changes feed, of
// devices, and of what users say. See docs/decisions/redis-keys.md.

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
//
//   - feed: the keys of a feed;
//   - devices: those of devices, when users leave or are deleted;
//   - details: those of details, when they are read or when devices are recorded;
//   - hidden: those of hidden times, when anything is asserted. Then details is set as well;
//   - calls: none. It is not in Redis: this server knows that the namespace is in the list of those with calls.
type bits struct{ feed, devices, details, hidden, calls bit }

func feedField(namespace string) string    { return namespace + ":changes" }
func devicesField(namespace string) string { return namespace + ":devices" }
func detailsField(namespace string) string { return namespace + ":details" }
func hiddenField(namespace string) string  { return namespace + ":hidden" }

// bitFields returns the fields of all bits of a namespace.
func bitFields(namespace string) []string {
	return []string{
		feedField(namespace), devicesField(namespace), detailsField(namespace), hiddenField(namespace),
	}
}

// readBits reads the bits from the values of their fields, nil for none.
func (n namespace) readBits(values []any) bits {
	b := bits{
		feed: n.readBit(values[0]), devices: n.readBit(values[1]),
		details: n.readBit(values[2]), hidden: n.readBit(values[3]),
	}
	b.details.set = b.details.set || b.hidden.set
	return b
}

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

// othersOf returns the keys of all companions of a shard that the namespace may have, as scripts take them after the
// shard's: the keys of a feed; of devices; of details; of hidden times. Those before others are named as well.
func (c *candidate) othersOf(shard string) []string {
	keys := c.companions(shard)
	if c.bits.devices.set || c.bits.details.set {
		keys = c.deviceKeys(shard)
	}
	if c.bits.details.set {
		keys = append(keys, c.details(shard), c.ends(shard))
	}
	if c.bits.hidden.set {
		keys = append(keys, c.hidden(shard), c.private(shard))
	}
	return keys
}

// openWithBits is open for operations that concern the namespace's companions. Bits that it did not have at the last
// check are read again: another server may have set one since.
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
	complete := c.bits.devices.set && c.bits.hidden.set
	if c.err == nil && !complete && c.hasCompanions() && !checked {
		s.agreements.recheck(name)
		s.verify(ctx, []*candidate{c})
	}
	if c.err != nil {
		cancel()
		return nil, nil, c, c.err
	}
	return ctx, cancel, c, nil
}
