package redisstore

import (
	"context"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store/redisstore/redisclient"
	"github.com/lastseen/lastseen/store/redisstore/scripts"
)

// This file keeps hidden users from creating a namespace that does not exist: see docs/decisions/people.md.

// withoutHidden returns the batches that have something to write, and their namespaces. In a namespace that does not
// exist, a batch of hidden users alone must not create it: the states of such a batch are filled in.
func (s *Store) withoutHidden(
	ctx context.Context, all []*pendingBatch,
) (written []*pendingBatch, namespaces []*candidate) {
	var checks []*hiddenCheck
	for _, b := range all {
		if b.mayBeNew() {
			item := func(i int) (lastseen.Instant, *string) { return b.unique[i].At, &b.unique[i].User }
			checks = append(checks, newHiddenCheck(&b.candidate, len(b.unique), item))
		}
	}
	s.findHidden(ctx, checks)
	for _, b := range all {
		if len(checks) > 0 && checks[0].candidate == &b.candidate {
			check := checks[0]
			if checks = checks[1:]; check.hidden {
				b.states = check.states
				continue
			}
		}
		written, namespaces = append(written, b), append(namespaces, &b.candidate)
	}
	return written, namespaces
}

// mayBeNew reports whether a namespace that can have hidden users does not exist.
func (c *candidate) mayBeNew() bool {
	return c.err == nil && !c.hasMeta && !c.exists && c.hasCompanions()
}

// allDevicesHidden reports whether all items of a batch of devices are hidden, in a namespace that does not exist. Then
// it fills in the states.
func (s *Store) allDevicesHidden(ctx context.Context, d *pendingDevices) bool {
	if !d.mayBeNew() {
		return false
	}
	check := newHiddenCheck(&d.candidate, len(d.items), func(i int) (lastseen.Instant, *string) {
		return d.items[i].At, &d.items[i].User
	})
	s.findHidden(ctx, []*hiddenCheck{check})
	for i, state := range check.states {
		d.states[d.items[i].User] = state // if they are not hidden, writing them replaces it
	}
	return check.hidden
}

// hiddenCheck finds out whether all items of a batch are hidden.
type hiddenCheck struct {
	*candidate
	chunks []*chunk
	calls  []shardCall
	states []lastseen.State // of the items' users, if they are
	hidden bool
}

// newHiddenCheck returns the check of a batch.
func newHiddenCheck(c *candidate, count int, item func(int) (lastseen.Instant, *string)) *hiddenCheck {
	check := &hiddenCheck{candidate: c, states: make([]lastseen.State, count)}
	check.chunks = c.split(count, maxChunk, func(i int) string { _, user := item(i); return *user })
	for _, chunk := range check.chunks {
		var args []any
		for _, at := range chunk.index {
			time, user := item(at)
			args = append(args, int64(time), user)
		}
		check.calls = append(check.calls, shardCall{
			namespace: c.namespace, shard: chunk.key, script: scripts.Hides, reads: true,
			prepare: func(sides) (string, string, []any) { return "hp", "", slices.Clone(args) },
		})
	}
	return check
}

// findHidden makes checks, all in one round trip. After an error nothing counts as hidden: the error comes up again
// when the batch is written.
func (s *Store) findHidden(ctx context.Context, checks []*hiddenCheck) {
	var calls []shardCall
	for _, check := range checks {
		calls = append(calls, check.calls...)
	}
	if len(calls) == 0 { // as for almost all batches
		return
	}
	cmds := s.runShards(ctx, calls)
	for _, check := range checks {
		check.hidden = true
		for i, chunk := range check.chunks {
			check.hidden = check.read(chunk, cmds[i]) && check.hidden
		}
		cmds = cmds[len(check.chunks):]
	}
}

// read reads the reply of hides.lua to a chunk, and reports whether all of it is hidden.
func (h *hiddenCheck) read(chunk *chunk, cmd *redis.Cmd) bool {
	reply, err := redisclient.Slice(cmd.Val(), 2)
	if err != nil || cmd.Err() != nil {
		return false
	}
	scores, err := redisclient.Slice(reply[1], len(chunk.index))
	if err != nil {
		return false
	}
	for i, at := range chunk.index {
		if h.states[at], err = h.stateOfReply(scores[i]); err != nil {
			return false
		}
	}
	return true
}
