package redisstore

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lastseen/lastseen/store"
)

// This file names the keys of what users say, and keeps their bits: see docs/decisions/people.md.

// details returns the key of what others see of the users of a shard besides their states, and ends that of when it
// ends. hidden returns the key of their hidden times, and private that of what they say in those.
func (n namespace) details(shard string) string { return n.companion("details", shard) }
func (n namespace) ends(shard string) string    { return n.companion("ends", shard) }
func (n namespace) hidden(shard string) string  { return n.companion("hidden", shard) }
func (n namespace) private(shard string) string { return n.companion("private", shard) }

// peopleKeys returns the keys of all companions but contacts, as say.lua takes them after the shard's.
func (n namespace) peopleKeys(shard string) []string {
	return append(n.deviceKeys(shard),
		n.details(shard), n.ends(shard), n.contactUses(shard), n.hidden(shard), n.private(shard))
}

// hiddenKeys returns the keys of hidden times, as the scripts that leave out what is hidden take them at the end.
func (n namespace) hiddenKeys(shard string) []string {
	return []string{n.hidden(shard), n.private(shard)}
}

// setDetailsBit has all servers read details: this one at once, others when they check the namespace again.
func (s *Store) setDetailsBit(ctx context.Context, c *candidate) error {
	if c.bits.details.set {
		return nil
	}
	set, err := s.setPeopleBit(ctx, c, detailsField(c.name))
	if err == nil {
		c.bits.details = set
		s.agreements.change(c.name, func(b *bits) { b.details = set })
	}
	return err
}

// setPeopleBit is setBit for details and hidden times. The feed restarts once all servers know the bit: until then,
// some of them append entries without details.
func (s *Store) setPeopleBit(ctx context.Context, c *candidate, field string) (bit, error) {
	if err := s.settleFeed(ctx, c.namespace); err != nil {
		return bit{}, err
	}
	return s.setBit(ctx, field)
}

// settle returns a [store.SettlingError] until all servers know that a namespace may have invisible users: a server
// that does not would show their pings. It reads the bit from Redis, since others may have deleted it with the
// namespace, and sets it if it is missing, or from a future that a wrong clock showed.
func (s *Store) settle(ctx context.Context, c *candidate) error {
	now, err := s.clock.read(ctx)
	if err != nil {
		return err
	}
	field := hiddenField(c.name)
	text, err := s.client.HGet(ctx, s.keys.meta(), field).Result()
	if err != nil && err != redis.Nil { //nolint:errorlint // the client returns this very error
		return translate(err)
	}
	set, invalid := strconv.ParseInt(text, 10, 64)
	age := time.Duration(int64(now)-set) * time.Millisecond
	if invalid != nil || age < -store.MaxAhead {
		b, err := s.setPeopleBit(ctx, c, field)
		if err != nil {
			return err
		}
		text, age = b.value, 0
	}
	known := bit{set: true, value: text}
	c.bits.hidden, c.bits.details.set = known, true
	s.agreements.change(c.name, func(b *bits) { b.hidden, b.details.set = known, true })
	if rest := s.hiddenSettles - max(age, 0); rest > 0 {
		return &store.SettlingError{Rest: rest}
	}
	return nil
}

// keepBits makes sure that the bits of keys are in Redis that a call has just made: another server may have deleted the
// namespace since they were read.
func (s *Store) keepBits(ctx context.Context, c *candidate, hidden bool) error {
	now, err := s.clock.read(ctx)
	if err != nil {
		return err
	}
	field := detailsField(c.name)
	if hidden {
		field = hiddenField(c.name)
	}
	return translate(s.client.HSetNX(ctx, s.keys.meta(), field, int64(now)).Err())
}

// lostBits returns the namespaces of which a bit was known and is missing now: Redis has lost it, or they were deleted.
func lostBits(all []*candidate) (lost []*candidate) {
	for _, c := range all {
		if c.known.details.set && !c.bits.details.set || c.known.hidden.set && !c.bits.hidden.set {
			lost = append(lost, c)
		}
	}
	return lost
}

// findLostBits sets the bits of details and hidden times again in namespaces that have such keys.
func (s *Store) findLostBits(ctx context.Context, all []*candidate) {
	all = slices.DeleteFunc(slices.Clone(all), func(c *candidate) bool {
		return c.err != nil || !c.hasCompanions() || c.bits.hidden.set
	})
	if len(all) == 0 {
		return
	}
	pipe := s.client.Pipeline()
	details, hidden := make([][]*redis.IntCmd, len(all)), make([][]*redis.IntCmd, len(all))
	for i, c := range all {
		for _, key := range c.all() {
			details[i] = append(details[i], pipe.Exists(ctx, c.details(key)))
			hidden[i] = append(hidden[i], pipe.Exists(ctx, c.hidden(key)))
		}
	}
	_, _ = pipe.Exec(ctx) // each command keeps its error
	for i, c := range all {
		described, noDetails := sum(details[i])
		hides, noHidden := sum(hidden[i])
		if c.err = cmp.Or(noDetails, noHidden); c.err == nil {
			c.err = s.restoreBits(ctx, c, described > 0 || hides > 0, hides > 0)
		}
	}
}

// restoreBits sets bits of a namespace that it does not have. Becoming invisible settles again after that.
func (s *Store) restoreBits(ctx context.Context, c *candidate, details, hidden bool) (err error) {
	if details && !c.bits.details.set {
		c.bits.details, err = s.setPeopleBit(ctx, c, detailsField(c.name))
	}
	if err == nil && hidden {
		c.bits.hidden, err = s.setBit(ctx, hiddenField(c.name))
	}
	return err
}

// assumeInvisible has namespaces, which were checked, count as those with the bit of hidden times, if all servers are
// to look for invisible users from the start. It sets the bit in Redis of those that are registered without it, which
// is for servers without that option alone: errors do no harm, since the next check finds the bit missing again.
func (s *Store) assumeInvisible(ctx context.Context, all []*candidate) {
	if !s.invisible {
		return
	}
	var registered []*candidate
	for _, c := range all {
		if c.err != nil || !c.hasCompanions() || c.bits.hidden.set {
			continue
		}
		c.bits.details.set, c.bits.hidden.set = true, true
		if c.hasMeta {
			registered = append(registered, c)
		}
	}
	if len(registered) > 0 {
		pipe := s.client.Pipeline()
		s.setInvisible(ctx, pipe, registered)
		_, _ = pipe.Exec(ctx)
	}
}

// setInvisible sets the bit of hidden times of namespaces that do not have it, if it is to be there from the start.
func (s *Store) setInvisible(ctx context.Context, pipe redis.Pipeliner, all []*candidate) {
	if !s.invisible {
		return
	}
	now, err := s.clock.read(ctx)
	if err != nil {
		return // the next check sets it
	}
	for _, c := range all {
		if c.hasCompanions() && c.bits.hidden.value == "" {
			pipe.HSetNX(ctx, s.keys.meta(), hiddenField(c.name), int64(now))
		}
	}
}
