package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// maxMembers bounds the members that are written in one round trip, and so the time it takes.
const maxMembers = 4096

// Ping implements [store.Store].
func (s *Store) Ping(ctx context.Context, name string, batch []store.Sighting) ([]lastseen.State, error) {
	g := &store.Batch[store.Sighting]{Namespace: name, Items: batch}
	s.PingBatches(ctx, []*store.Batch[store.Sighting]{g})
	return g.States, g.Err
}

// PingBatches implements [store.Batcher].
func (s *Store) PingBatches(ctx context.Context, groups []*store.Batch[store.Sighting]) {
	s.record(ctx, groups, writeOp{
		script: scripts.ping,
		first: func(e errand) []any {
			earliest, latest := e.times()
			return []any{"-" + e.ns.time(earliest), int64(latest), e.ns.perScore()}
		},
		args: func(args []any, t *times, sighting *store.Sighting) []any {
			return append(args, t.text(sighting.At), &sighting.User)
		},
	})
}

// Leave implements [store.Store].
func (s *Store) Leave(ctx context.Context, name string, batch []store.Sighting) ([]lastseen.State, error) {
	g := &store.Batch[store.Sighting]{Namespace: name, Items: batch}
	s.record(ctx, []*store.Batch[store.Sighting]{g}, writeOp{
		script: scripts.leave,
		left:   true,
		first: func(e errand) []any {
			_, latest := e.times()
			return []any{int64(latest), e.ns.perScore()}
		},
		args: func(args []any, t *times, sighting *store.Sighting) []any {
			return append(args, "-"+*t.text(sighting.At), t.time(sighting.At+1), &sighting.User)
		},
	})
	return g.States, g.Err
}

// record writes groups of pings or of leaves, and makes their namespaces exist.
func (s *Store) record(ctx context.Context, groups []*store.Batch[store.Sighting], op writeOp) {
	ctx, cancel := s.batch(ctx)
	defer cancel()
	all := s.open(groups)
	for i, err := range s.admit(ctx, namespaces(all)) {
		all[i].Err = err
	}
	s.write(ctx, all, op)
	var created []*writing
	for _, w := range all {
		switch {
		case w.Err != nil:
			// Part of it may have created the key again without a reply: the next write registers the namespace.
			s.checked.Delete(w.Namespace)
		case w.created:
			// The first member of a key, perhaps since another server deleted the namespace.
			created = append(created, w)
		}
	}
	// All at once, for a batch can be about hundreds of new ones.
	for i, err := range s.register(ctx, namespaces(created), 0) {
		created[i].Err = err
	}
	finish(all)
}

// writing is a group that is being written.
type writing struct {
	*store.Batch[store.Sighting]
	ns      namespace
	folded  []store.Sighting // each user once
	place   []int            // where in folded each item went
	states  []lastseen.State // of folded
	created bool             // a key was made
}

// open prepares groups; those with nothing in them are left alone.
func (s *Store) open(groups []*store.Batch[store.Sighting]) []*writing {
	all := make([]*writing, 0, len(groups))
	for _, g := range groups {
		if len(g.Items) == 0 {
			continue
		}
		w := &writing{Batch: g, ns: s.keys.namespace(g.Namespace)}
		w.folded, w.place = fold(g.Items)
		w.states = make([]lastseen.State, len(w.folded))
		all = append(all, w)
	}
	return all
}

func namespaces(all []*writing) []namespace {
	names := make([]namespace, len(all))
	for i, w := range all {
		names[i] = w.ns
	}
	return names
}

// finish answers the groups that were written.
func finish(all []*writing) {
	for _, w := range all {
		if w.Err != nil {
			continue
		}
		w.States = make([]lastseen.State, len(w.Items))
		for i, at := range w.place {
			w.States[i] = w.states[at]
		}
	}
}

// writeOp is what tells pings and leaves apart.
type writeOp struct {
	script *redis.Script
	left   bool                                       // whether users have left afterwards
	first  func(errand) []any                         // the script's first arguments
	args   func([]any, *times, *store.Sighting) []any // appends those of one sighting
}

// times writes instants as scores. Most sightings of a batch have the same: it is written once.
type times struct {
	encoding
	at      lastseen.Instant
	written *string
}

func (t *times) text(at lastseen.Instant) *string {
	if t.written == nil || t.at != at {
		text := t.time(at)
		t.at, t.written = at, &text
	}
	return t.written
}

// errand is a portion of a group, on its way to its shard.
type errand struct {
	*writing
	portion
}

// write sends groups to their shards, in as few round trips as [maxMembers] allows, and fills in the
// states that result. Of a group that has an error no more is sent.
func (s *Store) write(ctx context.Context, all []*writing, op writeOp) {
	var errands []errand
	members := 0
	for _, w := range all {
		for _, p := range w.ns.split(len(w.folded), func(i int) string { return w.folded[i].User }) {
			if members += len(p.index); members > maxMembers {
				s.run(ctx, errands, op)
				errands, members = nil, len(p.index)
			}
			if w.Err == nil {
				errands = append(errands, errand{w, p})
			}
		}
	}
	s.run(ctx, errands, op)
}

// run does errands in one round trip.
func (s *Store) run(ctx context.Context, errands []errand, op writeOp) {
	if len(errands) == 0 {
		return
	}
	calls := make([]call, len(errands))
	for i, e := range errands {
		args := append(make([]any, 0, 3+3*len(e.index)), op.first(e)...)
		written := times{encoding: e.ns.encoding}
		for _, at := range e.index {
			args = op.args(args, &written, &e.folded[at])
		}
		calls[i] = call{key: e.key, args: args}
	}
	cmds, err := s.runScripts(ctx, op.script, calls)
	for i, e := range errands {
		switch {
		case err != nil:
			e.Err = err
		case cmds[i].Err() != nil:
			e.Err = cmp.Or(e.Err, translate(cmds[i].Err()))
		default:
			e.Err = cmp.Or(e.Err, s.fill(e, cmds[i].Val(), op.left))
		}
	}
}

// times returns the earliest and the latest time of the sightings.
func (e errand) times() (earliest, latest lastseen.Instant) {
	earliest = lastseen.MaxInstant
	for _, at := range e.index {
		earliest, latest = min(earliest, e.folded[at].At), max(latest, e.folded[at].At)
	}
	return earliest, latest
}

// fill notes the states that a write left behind, out of the reply of its script.
func (s *Store) fill(e errand, reply any, left bool) error {
	answer, err := sliceOf(reply, -1)
	if err != nil || len(answer) == 0 {
		return cmp.Or(err, errors.New("script answered nothing"))
	}
	e.created = e.created || answer[0] == int64(1)
	if len(answer) == 1 {
		for _, at := range e.index {
			e.states[at] = lastseen.State{At: e.folded[at].At, Left: left}
		}
		return nil
	}
	scores, err := sliceOf(answer[1], len(e.index))
	if err != nil {
		return err
	}
	for i, at := range e.index {
		state, err := e.ns.stateOfReply(scores[i])
		if err != nil {
			return err
		}
		if e.states[at] = state; state.Known() && state.At < e.folded[at].At {
			s.replaced.Add(1) // a write never leaves an earlier time behind, but for one that was too far ahead
		}
	}
	return nil
}

// sliceOf returns an array of a script's reply, of n elements unless n is negative.
func sliceOf(reply any, n int) ([]any, error) {
	elements, ok := reply.([]any)
	if !ok || n >= 0 && len(elements) != n {
		return nil, fmt.Errorf("script answered %T, an array was expected", reply)
	}
	return elements, nil
}

// Forget implements [store.Store].
func (s *Store) Forget(ctx context.Context, namespace, user string) error {
	ns := s.keys.namespace(namespace)
	ctx, cancel, err := s.enter(ctx, ns)
	if err != nil {
		return err
	}
	defer cancel()
	return translate(s.client.ZRem(ctx, ns.of(user), user).Err())
}
