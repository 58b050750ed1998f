package redisstore

import (
	"context"
	"fmt"
	"time"

	"github.com/lastseen/lastseen/store"
)

// This file copies into the details of users until when they are in a call: see docs/decisions/calls.md.

// UnconfirmedInCalls implements [store.Store].
func (s *Store) UnconfirmedInCalls(ctx context.Context, name string, age time.Duration) ([]store.InCall, error) {
	ctx, cancel, c, err := s.openCalls(ctx, name)
	if err != nil {
		return nil, err
	}
	defer cancel()
	return s.readCopies(ctx, c, "noted", age.Milliseconds())
}

// ConfirmInCalls implements [store.Store].
func (s *Store) ConfirmInCalls(ctx context.Context, name string, in []store.InCall) ([]store.InCall, error) {
	ctx, cancel, c, err := s.openCalls(ctx, name)
	if err != nil {
		return nil, err
	}
	defer cancel()
	if len(in) == 0 {
		return nil, nil
	}
	args := append(make([]any, 0, 1+2*len(in)), "copied")
	for i := range in {
		args = append(args, &in[i].User, int64(in[i].Until))
	}
	again, err := s.readCopies(ctx, c, args...)
	if len(again) > 0 {
		s.keepListed(ctx, c) // so that others find them if this server does not come to copy them
	}
	return again, err
}

// readCopies runs callcopies.lua.
func (s *Store) readCopies(ctx context.Context, c *candidate, args ...any) ([]store.InCall, error) {
	reply, err := s.runCalls(ctx, c, scripts.callCopies, 1, args...)
	if err != nil {
		return nil, err
	}
	return readInCalls(reply[0])
}

// SetInCalls implements [store.Store]. If no details can exist, there is nothing to set to 0; and in a namespace that
// was deleted, there is nothing to set at all.
func (s *Store) SetInCalls(ctx context.Context, name string, in []store.InCall) error {
	ctx, cancel, c, err := s.openWithBits(ctx, name)
	if err != nil {
		return err
	}
	defer cancel()
	if !c.hasCompanions() {
		return store.ErrNoCalls
	}
	in = lastInCalls(in)
	sets := false
	for _, one := range in {
		sets = sets || one.Until > 0
	}
	if !c.hasMeta || len(in) == 0 || !sets && !c.bits.details.set {
		return nil
	}
	if sets {
		if err := s.setDetailsBit(ctx, c); err != nil {
			return err
		}
	}
	fresh, err := s.writeInCalls(ctx, c, in)
	if err == nil && fresh {
		err = s.keepInCalls(ctx, c, in)
	}
	return err
}

// lastInCalls keeps the last value of each user.
func lastInCalls(in []store.InCall) []store.InCall {
	last := make(map[string]int, len(in))
	for i := range in {
		last[in[i].User] = i
	}
	kept := make([]store.InCall, 0, len(last))
	for i := range in {
		if last[in[i].User] == i {
			kept = append(kept, in[i])
		}
	}
	return kept
}

// writeInCalls runs incall.lua, and reports whether a key of details is new.
func (s *Store) writeInCalls(ctx context.Context, c *candidate, in []store.InCall) (fresh bool, err error) {
	chunks := c.split(len(in), maxFeedChunk, func(i int) string { return in[i].User })
	calls := make([]call, len(chunks))
	for i, chunk := range chunks {
		if c.bits.feed.set {
			s.mayAppend(ctx, c.namespace, chunk.key)
		}
		others := append(c.deviceKeys(chunk.key), c.details(chunk.key), c.ends(chunk.key))
		calls[i] = call{key: chunk.key, others: others, args: []any{linkBase(), s.replicas != nil}}
		for _, at := range chunk.index {
			calls[i].args = append(calls[i].args, &in[at].User, int64(in[at].Until))
		}
	}
	cmds, err := s.runAll(ctx, scripts.inCall, calls)
	if err != nil {
		return false, err
	}
	missing := false
	for i, cmd := range cmds {
		reply, err := cmd.Int64Slice()
		if err != nil || len(reply) < 2 {
			return false, fmt.Errorf("unexpected script reply %v", cmd.Val())
		}
		fresh, missing = fresh || reply[0] == 1, missing || reply[1] == 1
		s.replicas.wroteInCalls(c.name, chunks[i], reply[2:], in)
	}
	if missing && c.bits.feed.set {
		s.dropBit(ctx, c.name, c.bits.feed)
	}
	return fresh, nil
}

// keepInCalls makes sure that the bit of details that are new is in Redis. If another server has deleted the namespace
// since it was checked, it deletes them again.
func (s *Store) keepInCalls(ctx context.Context, c *candidate, in []store.InCall) error {
	s.agreements.recheck(c.name)
	again := &candidate{namespace: c.namespace}
	if s.verify(ctx, []*candidate{again}); again.err != nil {
		return again.err
	}
	if again.hasMeta {
		return s.keepBits(ctx, again, false)
	}
	none := make([]store.InCall, len(in))
	for i := range in {
		none[i].User = in[i].User
	}
	_, err := s.writeInCalls(ctx, c, none)
	// The check found the details, and set the bit again.
	s.dropUnusedBit(ctx, again, detailsField(c.name), again.bits.details)
	return err
}
