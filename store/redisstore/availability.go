package redisstore

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore/redisclient"
	"github.com/lastseen/lastseen/store/redisstore/scripts"
)

// This file records and reads the availability of users: see docs/decisions/availability.md.

// SetAvailability implements [store.Store].
func (s *Store) SetAvailability(
	ctx context.Context, name, user string, availability lastseen.AvailabilityState, at lastseen.Instant,
) (lastseen.State, error) {
	prepare := func(ctx context.Context, all []*resolvedNamespace) {
		s.prepareAvailability(ctx, all[0], user, availability, at)
	}
	ctx, cancel, c, err := s.openWith(ctx, 2*s.client.Timeout, name, prepare)
	if err != nil {
		return lastseen.State{}, err
	}
	defer cancel()
	state, err := s.writeAvailability(ctx, c, user, availability, at)
	if err != nil {
		s.metaCache.recheck(name) // see record
	}
	return state, err
}

// prepareAvailability checks a namespace, and registers it where that is necessary for a user's availability.
func (s *Store) prepareAvailability(
	ctx context.Context, c *resolvedNamespace, user string,
	availability lastseen.AvailabilityState, at lastseen.Instant,
) {
	if !c.hasSideKeys() {
		c.err = store.ErrNoAvailability
		return
	}
	now, err := s.client.Clock.Read(ctx)
	if c.err = err; err != nil {
		return
	}
	invisible := availability.Availability == lastseen.Invisible
	if invisible && s.client.Evicts() {
		c.err = store.ErrEvicts
		return
	}
	at = store.Bounded(at, now)
	if s.verify(ctx, []*resolvedNamespace{c}); c.err != nil || availability.At(at) == (lastseen.AvailabilityState{}) {
		return
	}
	if invisible && !c.hasMeta {
		before, err := s.readAvailability(ctx, c, user, at)
		if c.err = err; err != nil || before.Availability == lastseen.Invisible {
			return // an invisible user does not create the namespace, which does not exist any longer
		}
	}
	s.admit(ctx, []*resolvedNamespace{c})
}

func (s *Store) writeAvailability(
	ctx context.Context, c *resolvedNamespace, user string,
	availability lastseen.AvailabilityState, at lastseen.Instant,
) (state lastseen.State, err error) {
	cmd := s.runShards(redisclient.Confirmed(ctx), []shardCall{{
		namespace: c.namespace, shard: c.of(user), script: scripts.SetAvailability, uses: "defhmpru", appends: true,
		args: []any{
			int64(at), user, string(availability.Availability), availability.Note, int64(availability.Until),
		},
		adapt: func(call *shardCall, has sides) {
			switch {
			case availability.Availability == lastseen.Invisible:
				call.creates = "ehp"
			case has.has("d") || availability != lastseen.AvailabilityState{Until: availability.Until}:
				call.creates = "de"
			}
		},
	}})[0]
	if cmd.Err() != nil {
		return state, redisclient.Translate(cmd.Err())
	}
	reply, err := redisclient.Slice(cmd.Val(), 2)
	if err != nil {
		return state, err
	}
	if state, err = c.stateOfReply(reply[1]); err != nil {
		return state, err
	}
	if created := reply[0] == int64(1); created {
		if s.register(ctx, []*resolvedNamespace{c}, 0); c.err != nil {
			return state, c.err
		}
	}
	return state, nil
}

// ReadAvailability implements [store.Store].
func (s *Store) ReadAvailability(
	ctx context.Context, name, user string, at lastseen.Instant,
) (lastseen.AvailabilityState, error) {
	ctx, cancel, c, err := s.openWith(ctx, 2*s.client.Timeout, name, s.verify)
	if err != nil {
		return lastseen.AvailabilityState{}, err
	}
	defer cancel()
	if !c.hasSideKeys() {
		return lastseen.AvailabilityState{}, nil
	}
	return s.readAvailability(ctx, c, user, at)
}

// readAvailability reads a user's availability. Commands with one key work also while slots move.
func (s *Store) readAvailability(
	ctx context.Context, c *resolvedNamespace, user string, at lastseen.Instant,
) (lastseen.AvailabilityState, error) {
	key, pipe := c.of(user), s.client.Pipeline()
	private, details := pipe.HGet(ctx, c.sideKey(key, 'p'), user), pipe.HGet(ctx, c.sideKey(key, 'd'), user)
	_, _ = pipe.Exec(ctx) // each command keeps its error
	text, found, err := textOf(private)
	if err != nil {
		return lastseen.AvailabilityState{}, err
	}
	if found {
		availability, ok := parsePrivate(text)
		if !ok {
			s.warnOfDetails(c.namespace, user)
		} else if availability.HiddenUntil() > at {
			return availability, nil
		}
	}
	text, found, err = textOf(details)
	if err != nil || !found {
		return lastseen.AvailabilityState{}, err
	}
	public, ok := parseDetails(text)
	if !ok {
		s.warnOfDetails(c.namespace, user)
	}
	return public.Availability, nil
}

// textOf returns the value of a field, and whether there is one.
func textOf(cmd *redis.StringCmd) (text string, found bool, err error) {
	text, err = cmd.Result()
	if errors.Is(err, redis.Nil) {
		return "", false, nil
	}
	return text, err == nil, redisclient.Translate(err)
}

// What follows keeps hidden users from creating a namespace that does not exist: see docs/decisions/availability.md.

// withoutHidden returns the batches that have something to write, and their namespaces. In a namespace that does not
// exist, a batch of hidden users alone must not create it: the states of such a batch are filled in. All are checked in
// one round trip. After an error nothing counts as hidden: the error comes up again when the batch is written.
func (s *Store) withoutHidden(
	ctx context.Context, all []*pendingBatch,
) (written []*pendingBatch, namespaces []*resolvedNamespace) {
	var calls []shardCall
	var reads []func(*redis.Cmd)
	for _, b := range all {
		if b.hidden = b.mayBeNew(); !b.hidden {
			continue
		}
		for _, chunk := range b.split(len(b.unique), maxChunk, b.user) {
			call := shardCall{
				namespace: b.namespace, shard: chunk.key, script: scripts.IsHidden, reads: true, uses: "hp",
			}
			for _, at := range chunk.index {
				call.args = append(call.args, int64(b.unique[at].At), &b.unique[at].User)
			}
			calls = append(calls, call)
			reads = append(reads, func(cmd *redis.Cmd) { b.hidden = b.readHidden(chunk, cmd) && b.hidden })
		}
	}
	for i, cmd := range s.runShards(ctx, calls) {
		reads[i](cmd)
	}
	for _, b := range all {
		if !b.hidden {
			written, namespaces = append(written, b), append(namespaces, &b.resolvedNamespace)
		}
	}
	return written, namespaces
}

// mayBeNew reports whether a namespace that can have hidden users does not exist.
func (c *resolvedNamespace) mayBeNew() bool {
	return c.err == nil && !c.hasMeta && !c.exists && c.hasSideKeys()
}

// readHidden reads the reply of is_hidden.lua to a chunk, and reports whether all of it is hidden.
func (b *pendingBatch) readHidden(chunk *chunk, cmd *redis.Cmd) bool {
	reply, err := redisclient.Slice(cmd.Val(), 2)
	if err != nil || cmd.Err() != nil {
		return false
	}
	scores, err := redisclient.Slice(reply[1], len(chunk.index))
	if err != nil {
		return false
	}
	for i, at := range chunk.index {
		if b.states[at], err = b.stateOfReply(scores[i]); err != nil {
			return false
		}
	}
	return true
}
