package redisstore

import (
	"context"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store/redisstore/scripts"
)

// This file records who is in a call: see docs/decisions/calls.md.

// inCall says until when a user is in a call; 0 for not.
type inCall struct {
	user  string
	until lastseen.Instant // by the clock of the Redis that has the calls
}

const (
	copyAttempts = 5 // others change what is copied meanwhile; then it is left to ExpireCalls
	copyTimeouts = 4 // of a command: the time for all of them
	copyPause    = time.Second
)

// copyInCalls copies what a script of calls has noted, and reports whether nothing of it is left. The step was done
// whether that succeeds or not, and what fails stays in the outbox. It goes on if the context ends: a copy that is not
// confirmed can be an old value, which replaced a newer one of another server.
func (s *Store) copyInCalls(ctx context.Context, c *resolvedNamespace, noted any) (done bool) {
	left, err := readInCalls(noted)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), copyTimeouts*s.client.Timeout)
	defer cancel()
	for attempt := 0; len(left) > 0 && err == nil && attempt < copyAttempts; attempt++ {
		if err = s.setInCalls(ctx, c, left); err == nil {
			left, err = s.confirmInCalls(ctx, c.namespace, left)
		}
	}
	if err != nil {
		s.warnOnce(c.namespace, "in call", "cannot record who is in a call; trying again", "error", err)
	}
	return err == nil && len(left) == 0
}

// confirmInCalls removes from the outbox what was copied. It returns, with their present values, those that have
// changed since: they have to be copied again, and are in the outbox, also if they were not before.
func (s *Store) confirmInCalls(ctx context.Context, ns namespace, in []inCall) ([]inCall, error) {
	args := make([]any, 0, 2*len(in))
	for i := range in {
		args = append(args, &in[i].user, int64(in[i].until))
	}
	reply, err := s.runCalls(ctx, ns, scripts.CallCopies, 1, args...)
	if err != nil {
		return nil, err
	}
	again, err := readInCalls(reply[0])
	if len(again) > 0 {
		_ = s.listCalls(ctx, ns) // so that others find them if this server does not come to copy them
	}
	return again, err
}

// setInCalls records until when users are in a call, each user once, and appends entries to the feed where that changes
// what is published. It creates no namespace, and 0 leaves nothing of a user who has no other details.
func (s *Store) setInCalls(ctx context.Context, c *resolvedNamespace, in []inCall) error {
	if !c.hasMeta {
		return nil
	}
	fresh, err := s.writeInCalls(ctx, c.namespace, in)
	if err == nil && fresh {
		err = s.keepInCalls(ctx, c, in)
	}
	return err
}

// writeInCalls runs incall.lua, and reports whether a key of details is new.
func (s *Store) writeInCalls(ctx context.Context, ns namespace, in []inCall) (fresh bool, err error) {
	chunks := ns.split(len(in), maxFeedChunk, func(i int) string { return in[i].user })
	calls := make([]shardCall, len(chunks))
	for i, chunk := range chunks {
		calls[i] = shardCall{
			namespace: ns, shard: chunk.key, script: scripts.InCall, uses: "f", creates: "de", appends: true,
		}
		for _, at := range chunk.index {
			calls[i].args = append(calls[i].args, &in[at].user, int64(in[at].until))
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
func (s *Store) keepInCalls(ctx context.Context, c *resolvedNamespace, in []inCall) error {
	s.metaCache.recheck(c.name)
	again := &resolvedNamespace{namespace: c.namespace}
	if s.verify(ctx, []*resolvedNamespace{again}); again.err != nil || again.hasMeta {
		return again.err
	}
	none := make([]inCall, len(in))
	for i := range in {
		none[i].user = in[i].user
	}
	if _, err := s.writeInCalls(ctx, c.namespace, none); err != nil {
		return err
	}
	_, err := s.deleteUnused(ctx, c.namespace, false)
	return err
}
