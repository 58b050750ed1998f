package redisstore

import (
	"context"
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

// SetInCalls implements [store.Store]. In a namespace that was deleted, there is nothing to set.
func (s *Store) SetInCalls(ctx context.Context, name string, in []store.InCall) error {
	ctx, cancel, c, err := s.openCalls(ctx, name)
	if err != nil {
		return err
	}
	defer cancel()
	in = lastInCalls(in)
	if !c.hasMeta || len(in) == 0 {
		return nil
	}
	fresh, err := s.writeInCalls(ctx, c.namespace, in)
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
func (s *Store) writeInCalls(ctx context.Context, ns namespace, in []store.InCall) (fresh bool, err error) {
	chunks := ns.split(len(in), maxFeedChunk, func(i int) string { return in[i].User })
	calls := make([]shardCall, len(chunks))
	for i, chunk := range chunks {
		calls[i] = shardCall{
			namespace: ns, shard: chunk.key, script: scripts.inCall,
			prepare: func(has sides) (string, string, []any) {
				args := []any{linkBase()}
				for _, at := range chunk.index {
					args = append(args, &in[at].User, int64(in[at].Until))
				}
				return "f", "de" + s.feedLetters(ctx, ns, chunk.key, has), args
			},
		}
	}
	cmds, err := s.runShardsAll(ctx, calls)
	for _, cmd := range cmds {
		fresh = fresh || cmd.Val() == int64(1)
	}
	return fresh, err
}

// keepInCalls deletes copies in new keys of details again if another server has deleted the namespace since it was
// checked.
func (s *Store) keepInCalls(ctx context.Context, c *candidate, in []store.InCall) error {
	s.agreements.recheck(c.name)
	again := &candidate{namespace: c.namespace}
	if s.verify(ctx, []*candidate{again}); again.err != nil || again.hasMeta {
		return again.err
	}
	none := make([]store.InCall, len(in))
	for i := range in {
		none[i].User = in[i].User
	}
	if _, err := s.writeInCalls(ctx, c.namespace, none); err != nil {
		return err
	}
	return s.deleteUnused(ctx, c.namespace)
}
