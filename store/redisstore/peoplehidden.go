package redisstore

import (
	"context"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/lastseen/lastseen"
)

// This file keeps hidden users from creating a namespace that does not exist: see docs/decisions/people.md.

// withoutHidden returns the batches that have something to write, and their namespaces. In a namespace that does not
// exist, a batch of hidden users alone must not create it: the states of such a batch are filled in.
func (s *Store) withoutHidden(
	ctx context.Context, all []*pendingBatch,
) (written []*pendingBatch, namespaces []*candidate) {
	checks := make([]*hiddenCheck, len(all))
	for i, b := range all {
		item := func(i int) (lastseen.Instant, *string) { return b.unique[i].At, &b.unique[i].User }
		checks[i] = newHiddenCheck(&b.candidate, len(b.unique), item)
	}
	s.findHidden(ctx, checks)
	for i, b := range all {
		if checks[i].hidden {
			b.states = checks[i].states
		} else {
			written, namespaces = append(written, b), append(namespaces, &b.candidate)
		}
	}
	return written, namespaces
}

// allDevicesHidden reports whether all items of a batch of devices are hidden, in a namespace that does not exist. Then
// it fills in the states.
func (s *Store) allDevicesHidden(ctx context.Context, d *pendingDevices) bool {
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

// newHiddenCheck returns the check of a batch. It has nothing to do if the namespace exists.
func newHiddenCheck(c *candidate, count int, item func(int) (lastseen.Instant, *string)) *hiddenCheck {
	check := &hiddenCheck{candidate: c}
	if c.err != nil || c.hasMeta || c.exists || !c.hasCompanions() {
		return check
	}
	check.states = make([]lastseen.State, count)
	check.chunks = c.split(count, maxChunk, func(i int) string { _, user := item(i); return *user })
	for _, chunk := range check.chunks {
		var args []any
		for _, at := range chunk.index {
			time, user := item(at)
			args = append(args, int64(time), user)
		}
		check.calls = append(check.calls, shardCall{
			namespace: c.namespace, shard: chunk.key, script: scripts.hides, reads: true,
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
	cmds := s.runShards(ctx, calls)
	for _, check := range checks {
		check.hidden = len(check.chunks) > 0
		for i, chunk := range check.chunks {
			check.hidden = check.read(chunk, cmds[i]) && check.hidden
		}
		cmds = cmds[len(check.chunks):]
	}
}

// read reads the reply of hides.lua to a chunk, and reports whether all of it is hidden.
func (h *hiddenCheck) read(chunk *chunk, cmd *redis.Cmd) bool {
	reply, err := sliceOf(cmd.Val(), 2)
	if err != nil || cmd.Err() != nil {
		return false
	}
	scores, err := sliceOf(reply[1], len(chunk.index))
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
