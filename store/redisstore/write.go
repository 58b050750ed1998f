package redisstore

import (
	"cmp"
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// maxMembers bounds the members that are written in one round trip, and so the time it takes.
const maxMembers = 4096

// Ping implements [store.Store].
func (s *Store) Ping(ctx context.Context, name string, batch []store.Sighting) ([]lastseen.State, error) {
	g := &store.Group[store.Sighting]{Namespace: name, Items: batch}
	s.PingGroups(ctx, []*store.Group[store.Sighting]{g})
	return g.States, g.Err
}

// PingGroups implements [store.Grouper].
func (s *Store) PingGroups(ctx context.Context, groups []*store.Group[store.Sighting]) {
	all := s.open(groups)
	for i, err := range s.admit(ctx, namespaces(all)) {
		all[i].Err = err
	}
	s.write(ctx, all, writeOp{
		script: scripts.ping,
		args: func(args []any, ns namespace, sighting store.Sighting) []any {
			return append(args, ns.time(sighting.At), sighting.User)
		},
		after: lastseen.State.AfterPing,
		reply: func(w *writing, reply any) ([]any, error) {
			answer, err := sliceOf(reply, 2)
			if err != nil {
				return nil, err
			}
			w.created = w.created || answer[0] == int64(1)
			return sliceOf(answer[1], -1)
		},
	})
	var created []*writing
	for _, w := range all {
		switch {
		case w.Err != nil:
			// Part of it may have made the key anew, unheard: the next ping registers the namespace.
			s.checked.Delete(w.Namespace)
		case w.created:
			created = append(created, w)
		}
	}
	s.registerCreated(ctx, created)
	finish(all)
}

// registerCreated registers the namespaces of groups that gave a key its first member: another server may
// have deleted them meanwhile. All at once, for a batch can be about hundreds of new ones.
func (s *Store) registerCreated(ctx context.Context, created []*writing) {
	if len(created) == 0 {
		return
	}
	for i, err := range s.register(ctx, namespaces(created)) {
		created[i].Err = err
	}
}

// Leave implements [store.Store].
func (s *Store) Leave(ctx context.Context, name string, batch []store.Sighting) ([]lastseen.State, error) {
	g := &store.Group[store.Sighting]{Namespace: name, Items: batch}
	all := s.open([]*store.Group[store.Sighting]{g})
	for _, w := range all {
		w.Err = s.check(ctx, w.ns)
	}
	s.write(ctx, all, writeOp{
		script: scripts.leave,
		first:  func(ns namespace) []any { return []any{ns.time(lastseen.MinInstant)} },
		args: func(args []any, ns namespace, sighting store.Sighting) []any {
			return append(args, "-"+ns.time(sighting.At), ns.time(sighting.At+1), sighting.User)
		},
		after: lastseen.State.AfterLeave,
		reply: func(_ *writing, reply any) ([]any, error) { return sliceOf(reply, -1) },
	})
	finish(all)
	return g.States, g.Err
}

// writing is a group that is being written.
type writing struct {
	*store.Group[store.Sighting]
	ns      namespace
	folded  []store.Sighting // each user once
	place   []int            // where in folded each item went
	states  []lastseen.State // of folded
	created bool             // a key was made
}

// open prepares groups; those with nothing in them are left alone.
func (s *Store) open(groups []*store.Group[store.Sighting]) []*writing {
	all := make([]*writing, 0, len(groups))
	for _, g := range groups {
		if len(g.Items) == 0 {
			continue
		}
		w := &writing{Group: g, ns: s.keys.namespace(g.Namespace)}
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
	first  func(namespace) []any                        // the script's first arguments; nil if there are none
	args   func([]any, namespace, store.Sighting) []any // appends those of one sighting
	after  func(lastseen.State, lastseen.Instant) lastseen.State
	reply  func(*writing, any) ([]any, error) // the scores before, out of a script's reply
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
		args := make([]any, 0, 1+3*len(e.index))
		if op.first != nil {
			args = append(args, op.first(e.ns)...)
		}
		for _, at := range e.index {
			args = op.args(args, e.ns, e.folded[at])
		}
		calls[i] = call{key: e.key, args: args}
	}
	cmds, err := s.runScripts(ctx, op.script, calls)
	for i, e := range errands {
		if err == nil {
			e.Err = cmp.Or(e.Err, e.fill(cmds[i], op))
		} else {
			e.Err = err
		}
	}
}

// fill reads the scores before out of a reply, and notes the states after.
func (e errand) fill(cmd *redis.Cmd, op writeOp) error {
	if err := cmd.Err(); err != nil {
		return translate(err)
	}
	before, err := op.reply(e.writing, cmd.Val())
	if err != nil {
		return err
	}
	if len(before) != len(e.index) {
		return fmt.Errorf("script answered %d scores for %d users", len(before), len(e.index))
	}
	for i, at := range e.index {
		write := func(s lastseen.State) lastseen.State { return op.after(s, e.folded[at].At) }
		if e.states[at], err = e.ns.stateAfter(before[i], write); err != nil {
			return err
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

// Trim implements [store.Store].
func (s *Store) Trim(ctx context.Context, namespace string, cutoff lastseen.Instant) (int, error) {
	ns := s.keys.namespace(namespace)
	if err := s.check(ctx, ns); err != nil {
		return 0, err
	}
	trimmed := 0
	for _, key := range ns.all() {
		hiddenFrom, hiddenTo := ns.hiddenBefore(cutoff)
		args := []any{ns.time(cutoff), store.MaxTrim - trimmed, hiddenFrom, hiddenTo}
		cmds, err := s.runScript(ctx, scripts.trim, []call{{key: key, args: args}})
		if err != nil {
			return trimmed, err
		}
		n, err := cmds[0].Int()
		if err != nil {
			return trimmed, err
		}
		if trimmed += n; trimmed >= store.MaxTrim {
			break
		}
	}
	return trimmed, nil
}
