package redisstore

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore/redisclient"
	"github.com/lastseen/lastseen/store/redisstore/scripts"
)

// This file keeps contacts: see docs/decisions/redis-keys.md.

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
	contacts, _ = store.ContactChanges(contacts, nil)
	if len(contacts) <= maxContactsScript {
		large, err := s.changeContacts(ctx, name, owner, "replace", contacts, nil)
		if !large {
			return err
		}
	}
	return s.changeManyContacts(ctx, name, owner, len(contacts), func(old []string) (add, remove []string) {
		return store.Without(contacts, old), store.Without(old, contacts)
	})
}

// ChangeContacts implements [store.Store].
func (s *Store) ChangeContacts(ctx context.Context, name, owner string, add, remove []string) error {
	add, remove = store.ContactChanges(add, remove)
	if len(add)+len(remove) <= maxContactsScript {
		_, err := s.changeContacts(ctx, name, owner, "change", add, remove)
		return err
	}
	return s.changeManyContacts(ctx, name, owner, len(add), func(old []string) ([]string, []string) {
		return store.Without(add, old), store.Without(remove, store.Without(remove, old))
	})
}

// maxContactsScript bounds the contacts that one script adds and removes, and so the time that Redis is busy.
const maxContactsScript = 500

// changeContacts changes contacts of an owner in one script, or in several that only remove. It reports whether there
// is more to replace than one script may.
func (s *Store) changeContacts(
	ctx context.Context, name, owner, task string, add, remove []string,
) (large bool, err error) {
	ctx, cancel, c, err := s.beginContacts(ctx, 2*s.client.Timeout, name, len(add))
	if err != nil {
		return false, err
	}
	defer cancel()
	for {
		outcome, err := s.runContacts(ctx, c, owner, contactsTask{name: task}, add, remove)
		if err != nil || outcome != contactsTooLarge || len(add) > 0 {
			return outcome == contactsTooLarge, err
		}
	}
}

// changeManyContacts makes a large change, in several scripts. Difference returns what to add to and to remove from the
// owner's contacts. If another change comes before the first of these scripts, the change begins again.
func (s *Store) changeManyContacts(
	ctx context.Context, name, owner string, adds int, difference func(old []string) (add, remove []string),
) error {
	end, err := s.beginMany(ctx)
	if err != nil {
		return err
	}
	defer end()
	ctx, cancel, c, err := s.beginContacts(ctx, maxManyTime, name, adds)
	if err != nil {
		return err
	}
	defer cancel()
	for mark := rand.Text(); ; {
		if _, err := s.runContacts(ctx, c, owner, contactsTask{"begin", mark}, nil, nil); err != nil {
			return err
		}
		old, err := s.allContacts(ctx, c.namespace, owner)
		if err != nil {
			return err
		}
		add, remove := difference(old)
		if len(old)+len(add)-len(remove) > store.MaxContacts {
			return store.ErrTooManyContacts
		}
		overtaken, err := s.continueContacts(ctx, c, owner, contactsTask{"continue", mark}, add, remove)
		if err != nil || !overtaken {
			return err
		}
	}
}

// continueContacts removes contacts, and then adds others, some in each script. It reports whether another change came
// before the first script.
func (s *Store) continueContacts(
	ctx context.Context, c *resolvedNamespace, owner string, task contactsTask, add, remove []string,
) (overtaken bool, err error) {
	for first := true; first || len(add)+len(remove) > 0; first = false {
		removed := min(len(remove), maxContactsScript)
		added := min(len(add), maxContactsScript-removed)
		outcome, err := s.runContacts(ctx, c, owner, task, add[:added], remove[:removed])
		switch {
		case err != nil:
			return false, err
		case outcome == contactsOvertaken && first:
			return true, nil
		case outcome == contactsOvertaken:
			return false, store.ErrContactsChanged
		}
		add, remove = add[added:], remove[removed:]
	}
	return false, nil
}

const (
	// maxManyContacts is how many large changes of contacts are made at the same time. Others wait until the timeout.
	maxManyContacts = 2
	// maxManyTime is how long a large change takes at most. It is long: a Redis that is busy, but responds to each
	// command in time, must not count as one that does not respond, which would open the circuit breaker.
	maxManyTime = 10 * time.Second
)

// beginMany waits until a large change can begin.
func (s *Store) beginMany(ctx context.Context) (end func(), err error) {
	waiting, cancel := context.WithTimeout(ctx, s.client.Timeout)
	defer cancel()
	select {
	case s.manyContacts <- struct{}{}:
		return func() { <-s.manyContacts }, nil
	case <-waiting.Done():
		return nil, cmp.Or(ctx.Err(), store.ErrOverloaded)
	}
}

// beginContacts begins a change of contacts that adds some, or none.
func (s *Store) beginContacts(
	ctx context.Context, timeout time.Duration, name string, adds int,
) (context.Context, context.CancelFunc, *resolvedNamespace, error) {
	return s.openWith(ctx, timeout, name, func(ctx context.Context, all []*resolvedNamespace) {
		switch c := all[0]; {
		case !c.hasSideKeys():
			c.err = store.ErrNoContacts
		case adds > store.MaxContacts:
			c.err = store.ErrTooManyContacts
		default:
			if s.verify(ctx, all); adds > 0 {
				s.admit(ctx, all)
			}
		}
	})
}

// contactsTask is what contacts.lua does, and the mark of the change.
type contactsTask struct{ name, mark string }

// The outcomes of contacts.lua.
const (
	tooManyContacts int64 = iota
	_                     // done
	contactsTooLarge
	contactsOvertaken
)

// runContacts runs contacts.lua. It registers a namespace that another server deleted meanwhile.
func (s *Store) runContacts(
	ctx context.Context, c *resolvedNamespace, owner string, task contactsTask, add, remove []string,
) (outcome int64, err error) {
	args := []any{owner, store.MaxContacts, task.name, task.mark, maxContactsScript, len(add)}
	for _, ids := range [][]string{add, remove} {
		for i := range ids {
			args = append(args, &ids[i])
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 2*s.client.Timeout)
	defer cancel()
	creates := "cu"
	if task.mark != "" {
		creates += "k"
	}
	cmd := s.runShards(redisclient.Confirmed(ctx), []shardCall{{
		namespace: c.namespace, shard: c.of(owner), script: scripts.Contacts, uses: "fk", creates: creates,
		appends: true, args: args,
	}})[0]
	if err := redisclient.Translate(cmd.Err()); err != nil {
		s.metaCache.recheck(c.name) // see record
		return 0, err
	}
	reply, err := cmd.Int64Slice()
	switch {
	case err != nil || len(reply) != 2:
		return 0, fmt.Errorf("unexpected script reply %v instead of 2 numbers", cmd.Val())
	case reply[1] == tooManyContacts:
		return 0, store.ErrTooManyContacts
	case reply[0] == 1:
		s.register(redisclient.Confirmed(ctx), []*resolvedNamespace{c}, 0)
	}
	return reply[1], c.err
}

// allContacts returns all contacts of an owner.
func (s *Store) allContacts(ctx context.Context, ns namespace, owner string) (all []string, err error) {
	for after := ""; ; after = all[len(all)-1] {
		page, err := s.contactsPage(ctx, ns, owner, after, maxContactsScript)
		if all = append(all, page...); err != nil || len(page) < maxContactsScript {
			return all, err
		}
	}
}

// ListContacts implements [store.Store].
func (s *Store) ListContacts(ctx context.Context, name, owner, after string, limit int) ([]string, error) {
	ctx, cancel, c, err := s.openSides(ctx, name, store.ErrNoContacts)
	if err != nil {
		return nil, err
	}
	defer cancel()
	return s.contactsPage(ctx, c.namespace, owner, after, limit)
}

func (s *Store) contactsPage(ctx context.Context, ns namespace, owner, after string, limit int) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*s.client.Timeout)
	defer cancel()
	low, high := contactsAfter(owner, after)
	page := redis.ZRangeArgs{
		Key: ns.sideKey(ns.of(owner), 'c'), ByLex: true, Start: low, Stop: high, Count: int64(limit),
	}
	members, err := s.client.ZRangeArgs(ctx, page).Result()
	for i, member := range members {
		members[i] = member[len(memberOf(owner, "")):]
	}
	return members, redisclient.Translate(err)
}

// AreContacts implements [store.Store]: all in one round trip.
func (s *Store) AreContacts(ctx context.Context, name string, pairs []store.ContactPair) ([]bool, error) {
	ctx, cancel, c, err := s.openSides(ctx, name, store.ErrNoContacts)
	if err != nil {
		return nil, err
	}
	defer cancel()
	are := make([]bool, len(pairs))
	chunks := c.split(len(pairs), maxChunk, func(i int) string { return pairs[i].Owner })
	pipe := s.client.Pipeline()
	cmds := make([]*redis.Cmd, len(chunks))
	for i, chunk := range chunks {
		member := func(at int) any { return memberOf(pairs[at].Owner, pairs[at].Contact) }
		cmds[i] = pipe.Do(ctx, chunk.command("zmscore", c.sideKey(chunk.key, 'c'), member)...)
	}
	_, _ = pipe.Exec(ctx) // each command keeps its error
	for i, chunk := range chunks {
		scores, err := cmds[i].Slice() // all are 0; ZMScore would return 0 for nil, too
		if err != nil {
			return nil, redisclient.Translate(err)
		}
		for k, at := range chunk.index {
			are[at] = scores[k] != nil
		}
	}
	return are, nil
}

// forgetContacts deletes the contacts of an owner. It looks first whether the shard has any.
func (s *Store) forgetContacts(ctx context.Context, ns namespace, owner string) error {
	if !ns.hasSideKeys() {
		return nil
	}
	n, err := s.client.Exists(ctx, ns.sideKey(ns.of(owner), 'c')).Result()
	if err != nil || n == 0 {
		return redisclient.Translate(err)
	}
	return s.SetContacts(ctx, ns.name, owner, nil)
}
