package redisstore

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/lastseen/lastseen/store"
)

// This file keeps contacts, and names their keys: see docs/decisions/redis-keys.md.

// contacts returns the key of the contacts of the users of a shard, and contactUses that of the last uses of their
// owners.
func (n namespace) contacts(shard string) string    { return n.companion("contacts", shard) }
func (n namespace) contactUses(shard string) string { return n.companion("contactuses", shard) }

// memberOf returns the member of a contact. No ID contains a NUL.
func memberOf(owner, contact string) string { return owner + "\x00" + contact }

// contactsAfter returns the bounds of the members of an owner after a contact; of all if it is "".
func contactsAfter(owner, contact string) (low, high string) {
	low = "["
	if contact != "" {
		low = "("
	}
	return low + memberOf(owner, contact), "(" + owner + "\x01"
}

// SetContacts implements [store.Store].
func (s *Store) SetContacts(ctx context.Context, name, owner string, contacts []string) error {
	return s.writeContacts(ctx, name, owner, true, contacts, nil)
}

// ChangeContacts implements [store.Store].
func (s *Store) ChangeContacts(ctx context.Context, name, owner string, add, remove []string) error {
	return s.writeContacts(ctx, name, owner, false, add, remove)
}

// writeContacts adds and removes contacts of an owner. With replaces, it removes all that it does not add.
func (s *Store) writeContacts(
	ctx context.Context, name, owner string, replaces bool, add, remove []string,
) error {
	ctx, cancel, err := s.begin(ctx, 2*s.timeout)
	if err != nil {
		return err
	}
	defer cancel()
	c := &candidate{namespace: s.keys.namespace(name)}
	if !c.hasCompanions() {
		return store.ErrNoContacts
	}
	add, remove = store.ContactChanges(add, remove)
	if len(add) > store.MaxContacts {
		return store.ErrTooManyContacts
	}
	if len(add) > 0 {
		s.ensure(ctx, []*candidate{c})
	} else {
		s.verify(ctx, []*candidate{c})
	}
	if c.err != nil {
		return c.err
	}
	return s.runContacts(confirmed(ctx), c, owner, replaces, add, remove)
}

// runContacts runs contacts.lua. It registers a namespace that another server deleted meanwhile.
func (s *Store) runContacts(
	ctx context.Context, c *candidate, owner string, replaces bool, add, remove []string,
) error {
	args := append(make([]any, 0, 4+len(add)+len(remove)), owner, store.MaxContacts, replaces, len(add))
	for _, ids := range [][]string{add, remove} {
		for i := range ids {
			args = append(args, &ids[i])
		}
	}
	shard := c.of(owner)
	replies, err := s.runInts(ctx, scripts.contacts, 2,
		call{key: c.contacts(shard), others: []string{c.contactUses(shard)}, args: args})
	switch {
	case err != nil:
		s.agreements.recheck(c.name) // see record
		return err
	case replies[0][1] == 0:
		return store.ErrTooManyContacts
	case replies[0][0] == 1:
		s.register(ctx, []*candidate{c}, 0)
	}
	return c.err
}

// ListContacts implements [store.Store].
func (s *Store) ListContacts(ctx context.Context, name, owner, after string, limit int) ([]string, error) {
	ctx, cancel, ns, err := s.openContacts(ctx, name)
	if err != nil {
		return nil, err
	}
	defer cancel()
	low, high := contactsAfter(owner, after)
	page := redis.ZRangeArgs{
		Key: ns.contacts(ns.of(owner)), ByLex: true, Start: low, Stop: high, Count: int64(limit),
	}
	members, err := s.client.ZRangeArgs(ctx, page).Result()
	for i, member := range members {
		members[i] = member[len(memberOf(owner, "")):]
	}
	return members, translate(err)
}

// AreContacts implements [store.Store]: all in one round trip.
func (s *Store) AreContacts(ctx context.Context, name string, pairs []store.ContactPair) ([]bool, error) {
	ctx, cancel, ns, err := s.openContacts(ctx, name)
	if err != nil {
		return nil, err
	}
	defer cancel()
	are := make([]bool, len(pairs))
	chunks := ns.split(len(pairs), maxChunk, func(i int) string { return pairs[i].Owner })
	pipe := s.client.Pipeline()
	cmds := make([]*redis.Cmd, len(chunks))
	for i, c := range chunks {
		args := append(make([]any, 0, 2+len(c.index)), "zmscore", ns.contacts(c.key))
		for _, at := range c.index {
			args = append(args, memberOf(pairs[at].Owner, pairs[at].Contact))
		}
		cmds[i] = pipe.Do(ctx, args...)
	}
	_, _ = pipe.Exec(ctx) // each command keeps its error
	for i, c := range chunks {
		scores, err := cmds[i].Slice() // all are 0; ZMScore would return 0 for nil, too
		if err != nil {
			return nil, translate(err)
		}
		for k, at := range c.index {
			are[at] = scores[k] != nil
		}
	}
	return are, nil
}

// openContacts is open for reads of contacts.
func (s *Store) openContacts(
	ctx context.Context, name string,
) (context.Context, context.CancelFunc, namespace, error) {
	ctx, cancel, ns, err := s.open(ctx, name)
	if err == nil && !ns.hasCompanions() {
		cancel()
		err = store.ErrNoContacts
	}
	return ctx, cancel, ns, err
}

// forgetContacts deletes the contacts of an owner. It looks first whether the shard has any: scripts with several keys
// can fail while their slot moves.
func (s *Store) forgetContacts(ctx context.Context, c *candidate, owner string) error {
	if !c.hasCompanions() {
		return nil
	}
	n, err := s.client.Exists(ctx, c.contacts(c.of(owner))).Result()
	if err != nil || n == 0 {
		return translate(err)
	}
	return s.runContacts(confirmed(ctx), c, owner, true, nil, nil)
}
