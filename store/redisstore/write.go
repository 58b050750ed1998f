package redisstore

import (
	"cmp"
	"context"
	"errors"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// maxMembers bounds the members that are written in one round trip, and therefore its time.
const maxMembers = 4096

// Ping implements [store.Store].
func (s *Store) Ping(ctx context.Context, name string, items []store.Sighting) ([]lastseen.State, error) {
	b := &store.Batch[store.Sighting]{Namespace: name, Items: items}
	s.PingBatches(ctx, []*store.Batch[store.Sighting]{b})
	return b.States, b.Err
}

// PingBatches implements [store.Batcher].
func (s *Store) PingBatches(ctx context.Context, batches []*store.Batch[store.Sighting]) {
	s.record(ctx, batches, false)
}

// Leave implements [store.Store].
func (s *Store) Leave(ctx context.Context, name string, items []store.Sighting) ([]lastseen.State, error) {
	b := &store.Batch[store.Sighting]{Namespace: name, Items: items}
	s.record(ctx, []*store.Batch[store.Sighting]{b}, true)
	return b.States, b.Err
}

// pendingBatch is a batch that is being written.
type pendingBatch struct {
	candidate // its namespace; err is why the batch failed
	batch     *store.Batch[store.Sighting]
	unique    []store.Sighting // one per user
	place     []int            // for each item, the place of its user in unique
	states    []lastseen.State // of unique
	created   bool             // a key was made
}

// record writes batches of pings or, with left, of leaves. Empty batches have no effect.
func (s *Store) record(ctx context.Context, batches []*store.Batch[store.Sighting], left bool) {
	ctx, cancel, err := s.begin(ctx, s.timeout)
	if err != nil {
		fail(batches, err)
		return
	}
	defer cancel()
	all, namespaces := s.prepare(batches)
	s.ensure(ctx, namespaces)
	s.write(ctx, all, left)
	var created []*candidate
	for _, b := range all {
		switch {
		case b.err != nil:
			// Part of it may have created the key again without a reply: the next write registers the namespace.
			s.agreements.recheck(b.name)
		case b.created:
			// The first member of a key, perhaps since another server deleted the namespace.
			created = append(created, &b.candidate)
		}
	}
	s.register(ctx, created, 0) // all at once, since a batch can create hundreds of namespaces
	for _, b := range all {
		b.finish()
	}
}

func fail[T any](batches []*store.Batch[T], err error) {
	for _, b := range batches {
		b.Err = err
	}
}

func (s *Store) prepare(batches []*store.Batch[store.Sighting]) (all []*pendingBatch, namespaces []*candidate) {
	for _, batch := range batches {
		if len(batch.Items) == 0 {
			continue
		}
		b := &pendingBatch{batch: batch, candidate: candidate{namespace: s.keys.namespace(batch.Namespace)}}
		b.unique, b.place = dedupe(batch.Items)
		b.states = make([]lastseen.State, len(b.unique))
		all, namespaces = append(all, b), append(namespaces, &b.candidate)
	}
	return all, namespaces
}

func (b *pendingBatch) finish() {
	if b.batch.Err = b.err; b.err != nil {
		return
	}
	b.batch.States = make([]lastseen.State, len(b.place))
	for i, at := range b.place {
		b.batch.States[i] = b.states[at]
	}
}

// writeCmd is a chunk of a batch, in one command.
type writeCmd struct {
	*pendingBatch
	*chunk
}

// write sends batches to their shards, in as few round trips as [maxMembers] allows, and fills in the resulting states.
// Once a batch has an error, the rest of it is not sent.
func (s *Store) write(ctx context.Context, all []*pendingBatch, left bool) {
	var cmds []writeCmd
	members := 0
	for _, b := range all {
		for _, c := range b.split(len(b.unique), func(i int) string { return b.unique[i].User }) {
			if members += len(c.index); members > maxMembers {
				s.send(ctx, cmds, left)
				cmds, members = nil, len(c.index)
			}
			if b.err == nil {
				cmds = append(cmds, writeCmd{b, c})
			}
		}
	}
	s.send(ctx, cmds, left)
}

func (s *Store) send(ctx context.Context, cmds []writeCmd, left bool) {
	script := scripts.ping
	if left {
		script = scripts.leave
	}
	calls := make([]call, len(cmds))
	for i, c := range cmds {
		calls[i] = call{key: c.key, args: c.args(left)}
	}
	for i, reply := range s.runScripts(ctx, script, calls) {
		err := translate(reply.Err())
		if err == nil {
			err = s.readStates(cmds[i], reply.Val(), left)
		}
		cmds[i].err = cmp.Or(cmds[i].err, err)
	}
}

// args returns the arguments of ping.lua or leave.lua. Most sightings of a batch have the same time: it is formatted
// once. Users and times are passed as pointers: as strings, each would be copied into an interface.
func (c writeCmd) args(left bool) []any {
	earliest, latest := lastseen.MaxInstant, lastseen.Instant(0)
	for _, at := range c.index {
		earliest, latest = min(earliest, c.unique[at].At), max(latest, c.unique[at].At)
	}
	args := make([]any, 0, 3+3*len(c.index))
	if !left {
		args = append(args, "-"+c.time(earliest))
	}
	args = append(args, int64(latest), c.perScore())
	var last lastseen.Instant
	var score, past *string
	for _, at := range c.index {
		sighting := &c.unique[at]
		if score == nil || sighting.At != last {
			text := c.score(lastseen.State{At: sighting.At, Left: left})
			last, score = sighting.At, &text
			if left {
				next := c.time(sighting.At + 1)
				past = &next
			}
		}
		if args = append(args, score); left {
			args = append(args, past)
		}
		args = append(args, &sighting.User)
	}
	return args
}

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
		state, err := c.stateOfReply(scores[i])
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
