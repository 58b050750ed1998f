package redisstore

import (
	"cmp"
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// maxMembers bounds the members that are written in one round trip, and so the time it takes.
const maxMembers = 4096

// Ping implements [store.Store].
func (s *Store) Ping(ctx context.Context, name string, items []store.Sighting) ([]lastseen.State, error) {
	b := &store.Batch[store.Sighting]{Namespace: name, Items: items}
	s.PingBatches(ctx, []*store.Batch[store.Sighting]{b})
	return b.States, b.Err
}

// PingBatches implements [store.Batcher].
func (s *Store) PingBatches(ctx context.Context, batches []*store.Batch[store.Sighting]) {
	s.record(ctx, batches, writeOp{
		script: scripts.ping,
		first: func(c writeCmd) []any {
			earliest, latest := c.times()
			return []any{"-" + c.ns.time(earliest), int64(latest), c.ns.perScore()}
		},
		args: func(args []any, t *scoreText, sighting *store.Sighting) []any {
			return append(args, t.of(sighting.At), &sighting.User)
		},
	})
}

// Leave implements [store.Store].
func (s *Store) Leave(ctx context.Context, name string, items []store.Sighting) ([]lastseen.State, error) {
	b := &store.Batch[store.Sighting]{Namespace: name, Items: items}
	s.record(ctx, []*store.Batch[store.Sighting]{b}, writeOp{
		script: scripts.leave,
		left:   true,
		first: func(c writeCmd) []any {
			_, latest := c.times()
			return []any{int64(latest), c.ns.perScore()}
		},
		args: func(args []any, t *scoreText, sighting *store.Sighting) []any {
			return append(args, "-"+*t.of(sighting.At), t.time(sighting.At+1), &sighting.User)
		},
	})
	return b.States, b.Err
}

// writeOp is the difference between pings and leaves.
type writeOp struct {
	script *redis.Script
	left   bool                                           // whether users have left afterwards
	first  func(writeCmd) []any                           // the script's first arguments
	args   func([]any, *scoreText, *store.Sighting) []any // appends those of one sighting
}

// scoreText writes instants as scores. Most sightings of a batch have the same instant: it is written once.
type scoreText struct {
	encoding
	at   lastseen.Instant
	text *string
}

func (t *scoreText) of(at lastseen.Instant) *string {
	if t.text == nil || t.at != at {
		text := t.time(at)
		t.at, t.text = at, &text
	}
	return t.text
}

// pendingBatch is a batch that is being written.
type pendingBatch struct {
	*store.Batch[store.Sighting]
	ns      namespace
	unique  []store.Sighting // one per user
	place   []int            // for each item, the place of its user in unique
	states  []lastseen.State // of unique
	created bool             // a key was made
}

// record writes batches of pings or of leaves, and registers their namespaces. Empty batches have no effect.
func (s *Store) record(ctx context.Context, batches []*store.Batch[store.Sighting], op writeOp) {
	ctx, cancel, err := s.begin(ctx, s.timeout)
	if err != nil {
		fail(batches, err)
		return
	}
	defer cancel()
	all := s.prepare(batches)
	withCandidates(all, func(candidates []*candidate) { s.ensure(ctx, candidates) })
	s.write(ctx, all, op)
	var created []*pendingBatch
	for _, b := range all {
		switch {
		case b.Err != nil:
			// Part of it may have created the key again without a reply: the next write registers the namespace.
			s.agreements.recheck(b.Namespace)
		case b.created:
			// The first member of a key, perhaps since another server deleted the namespace.
			created = append(created, b)
		}
	}
	// All at once, since a batch can create hundreds of namespaces.
	withCandidates(created, func(candidates []*candidate) { s.register(ctx, candidates, 0) })
	for _, b := range all {
		b.finish()
	}
}

// fail sets the error of batches.
func fail[T any](batches []*store.Batch[T], err error) {
	for _, b := range batches {
		b.Err = err
	}
}

// prepare returns what is to be written.
func (s *Store) prepare(batches []*store.Batch[store.Sighting]) []*pendingBatch {
	all := make([]*pendingBatch, 0, len(batches))
	for _, batch := range batches {
		if len(batch.Items) == 0 {
			continue
		}
		b := &pendingBatch{Batch: batch, ns: s.keys.namespace(batch.Namespace)}
		b.unique, b.place = dedupe(batch.Items)
		b.states = make([]lastseen.State, len(b.unique))
		all = append(all, b)
	}
	return all
}

// withCandidates checks the namespaces of batches, and copies their errors.
func withCandidates(all []*pendingBatch, check func([]*candidate)) {
	candidates := make([]*candidate, len(all))
	for i, b := range all {
		candidates[i] = &candidate{namespace: b.ns}
	}
	check(candidates)
	for i, c := range candidates {
		all[i].Err = c.err
	}
}

// finish sets the states of the items, unless there is an error.
func (b *pendingBatch) finish() {
	if b.Err != nil {
		return
	}
	b.States = make([]lastseen.State, len(b.Items))
	for i, at := range b.place {
		b.States[i] = b.states[at]
	}
}

// writeCmd is a chunk of a batch, in one command.
type writeCmd struct {
	*pendingBatch
	*chunk
}

// write sends batches to their shards, in as few round trips as [maxMembers] allows, and fills in the resulting states.
// Once a batch has an error, the rest of it is not sent.
func (s *Store) write(ctx context.Context, all []*pendingBatch, op writeOp) {
	var cmds []writeCmd
	members := 0
	for _, b := range all {
		for _, c := range b.ns.split(len(b.unique), func(i int) string { return b.unique[i].User }) {
			if members += len(c.index); members > maxMembers {
				s.send(ctx, cmds, op)
				cmds, members = nil, len(c.index)
			}
			if b.Err == nil {
				cmds = append(cmds, writeCmd{b, c})
			}
		}
	}
	s.send(ctx, cmds, op)
}

// send sends commands in one round trip.
func (s *Store) send(ctx context.Context, cmds []writeCmd, op writeOp) {
	calls := make([]call, len(cmds))
	for i, c := range cmds {
		args := append(make([]any, 0, 3+3*len(c.index)), op.first(c)...)
		text := scoreText{encoding: c.ns.encoding}
		for _, at := range c.index {
			args = op.args(args, &text, &c.unique[at])
		}
		calls[i] = call{key: c.key, args: args}
	}
	for i, reply := range s.runScripts(ctx, op.script, calls) {
		err := translate(reply.Err())
		if err == nil {
			err = s.readStates(cmds[i], reply.Val(), op.left)
		}
		cmds[i].Err = cmp.Or(cmds[i].Err, err)
	}
}

// times returns the earliest and the latest time of the sightings.
func (c writeCmd) times() (earliest, latest lastseen.Instant) {
	earliest = lastseen.MaxInstant
	for _, at := range c.index {
		earliest, latest = min(earliest, c.unique[at].At), max(latest, c.unique[at].At)
	}
	return earliest, latest
}

// readStates reads the resulting states from the reply of a write's script.
func (s *Store) readStates(c writeCmd, reply any, left bool) error {
	parts, err := sliceOf(reply, -1)
	if err != nil || len(parts) == 0 {
		return cmp.Or(err, errors.New("empty script reply"))
	}
	c.created = c.created || parts[0] == int64(1)
	if len(parts) == 1 {
		for _, at := range c.index {
			c.states[at] = lastseen.State{At: c.unique[at].At, Left: left}
		}
		return nil
	}
	scores, err := sliceOf(parts[1], len(c.index))
	if err != nil {
		return err
	}
	for i, at := range c.index {
		state, err := c.ns.stateOfReply(scores[i])
		if err != nil {
			return err
		}
		if c.states[at] = state; state.Known() && state.At < c.unique[at].At {
			s.replaced.Add(1) // only a time too far ahead results in an earlier one
		}
	}
	return nil
}

// Forget implements [store.Store].
func (s *Store) Forget(ctx context.Context, namespace, user string) error {
	ctx, cancel, ns, err := s.open(ctx, namespace)
	if err != nil {
		return err
	}
	defer cancel()
	return translate(s.client.ZRem(ctx, ns.of(user), user).Err())
}
