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

// This file records and reads what users say: see docs/decisions/people.md.

// SetAvailability implements [store.Store].
func (s *Store) SetAvailability(
	ctx context.Context, name, user string, said lastseen.Said, at lastseen.Instant,
) (lastseen.State, error) {
	ctx, cancel, err := s.client.Begin(ctx, 2*s.client.Timeout)
	if err != nil {
		return lastseen.State{}, err
	}
	defer cancel()
	c := &candidate{namespace: s.keys.namespace(name)}
	if !c.hasCompanions() {
		return lastseen.State{}, store.ErrNoAvailability
	}
	now, err := s.client.Clock.Read(ctx)
	if err != nil {
		return lastseen.State{}, err
	}
	if s.prepareToSay(ctx, c, user, said, store.Bounded(at, now)); c.err != nil {
		return lastseen.State{}, c.err
	}
	state, err := s.say(ctx, c, user, said, at)
	if err != nil {
		s.agreements.recheck(name) // see record
	}
	return state, err
}

// prepareToSay checks a namespace, and registers it where that is necessary for what a user says.
func (s *Store) prepareToSay(ctx context.Context, c *candidate, user string, said lastseen.Said, at lastseen.Instant) {
	invisible := said.Availability == lastseen.Invisible
	if invisible && s.client.Evicts() {
		c.err = store.ErrEvicts
		return
	}
	if s.verify(ctx, []*candidate{c}); c.err != nil || said.At(at) == (lastseen.Said{}) {
		return
	}
	if invisible && !c.hasMeta {
		before, err := s.readSaid(ctx, c, user, at)
		if c.err = err; err != nil || before.Availability == lastseen.Invisible {
			return // an invisible user does not create the namespace, which does not exist any longer
		}
	}
	s.admit(ctx, []*candidate{c})
}

func (s *Store) say(
	ctx context.Context, c *candidate, user string, said lastseen.Said, at lastseen.Instant,
) (state lastseen.State, err error) {
	creates := func(has sides) string {
		switch {
		case said.Availability == lastseen.Invisible:
			return "ehp"
		case has.has("d") || said != lastseen.Said{Until: said.Until}:
			return "de"
		}
		return ""
	}
	cmd := s.runShards(redisclient.Confirmed(ctx), []shardCall{{
		namespace: c.namespace, shard: c.of(user), script: scripts.Say,
		prepare: func(has sides) (string, string, []any) {
			return "defhmpru", creates(has) + s.feedLetters(ctx, c.namespace, c.of(user), has), []any{
				linkBase(), int64(at), user, string(said.Availability), said.Note, int64(said.Until),
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
		if s.register(ctx, []*candidate{c}, 0); c.err != nil {
			return state, c.err
		}
	}
	return state, nil
}

// ReadAvailability implements [store.Store].
func (s *Store) ReadAvailability(
	ctx context.Context, name, user string, at lastseen.Instant,
) (lastseen.Said, error) {
	ctx, cancel, err := s.client.Begin(ctx, 2*s.client.Timeout)
	if err != nil {
		return lastseen.Said{}, err
	}
	defer cancel()
	c := &candidate{namespace: s.keys.namespace(name)}
	if s.verify(ctx, []*candidate{c}); c.err != nil || !c.hasCompanions() {
		return lastseen.Said{}, c.err
	}
	return s.readSaid(ctx, c, user, at)
}

// readSaid reads what a user says. Commands with one key work also while slots move.
func (s *Store) readSaid(ctx context.Context, c *candidate, user string, at lastseen.Instant) (lastseen.Said, error) {
	key, pipe := c.of(user), s.client.Pipeline()
	private, details := pipe.HGet(ctx, c.sideKey(key, 'p'), user), pipe.HGet(ctx, c.sideKey(key, 'd'), user)
	_, _ = pipe.Exec(ctx) // each command keeps its error
	text, found, err := textOf(private)
	if err != nil {
		return lastseen.Said{}, err
	}
	if found {
		said, ok := parsePrivate(text)
		if !ok {
			s.warnOfDetails(c.namespace, user)
		} else if said.HiddenUntil() > at {
			return said, nil
		}
	}
	text, found, err = textOf(details)
	if err != nil || !found {
		return lastseen.Said{}, err
	}
	public, ok := parseDetails(text)
	if !ok {
		s.warnOfDetails(c.namespace, user)
	}
	return public.Said, nil
}

// textOf returns the value of a field, and whether there is one.
func textOf(cmd *redis.StringCmd) (text string, found bool, err error) {
	text, err = cmd.Result()
	if errors.Is(err, redis.Nil) {
		return "", false, nil
	}
	return text, err == nil, redisclient.Translate(err)
}
