package redisstore

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/lastseen/lastseen"
)

// This file keeps hidden users from creating a namespace that does not exist: see docs/decisions/people.md.

// withoutHidden returns the batches that have something to write. In a namespace that does not exist and has
// hidden users, a batch of hidden users alone must not create it: the states of such a batch are filled in.
func (s *Store) withoutHidden(ctx context.Context, all []*pendingBatch) (written []*pendingBatch) {
	for _, b := range all {
		if !b.mayBeHidden() || !s.allHidden(ctx, b) {
			written = append(written, b)
		}
	}
	return written
}

// mayBeHidden reports whether a namespace does not exist, and may have hidden users all the same.
func (c *candidate) mayBeHidden() bool { return c.err == nil && !c.hasMeta && c.bits.hidden.set }

func candidates(batches []*pendingBatch) []*candidate {
	all := make([]*candidate, len(batches))
	for i, b := range batches {
		all[i] = &b.candidate
	}
	return all
}

// allHidden reports whether all items of a batch are hidden. Then it fills in their states.
func (s *Store) allHidden(ctx context.Context, b *pendingBatch) bool {
	states, hidden := s.findHidden(ctx, &b.candidate, len(b.unique), func(i int) (lastseen.Instant, *string) {
		return b.unique[i].At, &b.unique[i].User
	})
	if hidden {
		b.states = states
	}
	return hidden
}

// allDevicesHidden is allHidden for a batch of devices.
func (s *Store) allDevicesHidden(ctx context.Context, d *pendingDevices) bool {
	if !d.mayBeHidden() {
		return false
	}
	states, hidden := s.findHidden(ctx, &d.candidate, len(d.items), func(i int) (lastseen.Instant, *string) {
		return d.items[i].At, &d.items[i].User
	})
	for i, state := range states {
		d.states[d.items[i].User] = state
	}
	return hidden
}

// findHidden returns the states of users if all of their assertions are hidden. After an error it returns false:
// the error comes up again when the batch is written.
func (s *Store) findHidden(
	ctx context.Context, c *candidate, count int, item func(int) (lastseen.Instant, *string),
) ([]lastseen.State, bool) {
	chunks := c.split(count, maxChunk, func(i int) string { _, user := item(i); return *user })
	calls := make([]call, len(chunks))
	for i, chunk := range chunks {
		calls[i] = call{key: chunk.key, others: c.hiddenKeys(chunk.key)}
		for _, at := range chunk.index {
			time, user := item(at)
			calls[i].args = append(calls[i].args, int64(time), user)
		}
	}
	cmds, err := s.runAll(ctx, scripts.hides, calls)
	if err != nil {
		return nil, false
	}
	states := make([]lastseen.State, count)
	for i, cmd := range cmds {
		if !readHidden(c, chunks[i], cmd, states) {
			return nil, false
		}
	}
	return states, true
}

// readHidden reads the reply of hides.lua to a chunk, and reports whether all of it is hidden.
func readHidden(c *candidate, chunk *chunk, cmd *redis.Cmd, states []lastseen.State) bool {
	reply, err := sliceOf(cmd.Val(), 2)
	if err != nil {
		return false
	}
	scores, err := sliceOf(reply[1], len(chunk.index))
	if err != nil {
		return false
	}
	for i, at := range chunk.index {
		if states[at], err = c.stateOfReply(scores[i]); err != nil {
			return false
		}
	}
	return true
}
