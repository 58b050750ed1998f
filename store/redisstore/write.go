package redisstore

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// maxCalls bounds the scripts sent in one round trip, and so the time one takes.
const maxCalls = 8

// Ping implements [store.Store].
func (s *Store) Ping(ctx context.Context, namespace string, batch []store.Sighting) ([]lastseen.State, error) {
	if len(batch) == 0 {
		return nil, nil
	}
	ns := s.keys.namespace(namespace)
	if err := s.admit(ctx, ns); err != nil {
		return nil, err
	}
	created := false
	states, err := s.write(ctx, ns, batch, writeOp{
		script: scripts.ping,
		args: func(args []any, sighting store.Sighting) []any {
			return append(args, ns.time(sighting.At), sighting.User)
		},
		after: lastseen.State.AfterPing,
		reply: func(reply any) ([]any, error) {
			answer, err := sliceOf(reply, 2)
			if err != nil {
				return nil, err
			}
			created = created || answer[0] == int64(1)
			return sliceOf(answer[1], -1)
		},
	})
	switch {
	case err != nil:
		// Part of it may have made the key anew, unheard: the next ping registers the namespace.
		s.checked.Delete(namespace)
	case created:
		// The first member of a key, perhaps since another server deleted the namespace.
		err = s.register(ctx, ns)
	}
	return states, err
}

// Leave implements [store.Store].
func (s *Store) Leave(ctx context.Context, namespace string, batch []store.Sighting) ([]lastseen.State, error) {
	if len(batch) == 0 {
		return nil, nil
	}
	ns := s.keys.namespace(namespace)
	if err := s.check(ctx, ns); err != nil {
		return nil, err
	}
	return s.write(ctx, ns, batch, writeOp{
		script: scripts.leave,
		first:  []any{ns.time(lastseen.MinInstant)},
		args: func(args []any, sighting store.Sighting) []any {
			return append(args, "-"+ns.time(sighting.At), ns.time(sighting.At+1), sighting.User)
		},
		after: lastseen.State.AfterLeave,
		reply: func(reply any) ([]any, error) { return sliceOf(reply, -1) },
	})
}

// writeOp is what tells pings and leaves apart.
type writeOp struct {
	script *redis.Script
	first  []any                             // of the script's arguments
	args   func([]any, store.Sighting) []any // appends those of one sighting
	after  func(lastseen.State, lastseen.Instant) lastseen.State
	reply  func(any) ([]any, error) // the scores before, out of a script's reply
}

// write sends a batch to its shards and returns the states that result.
func (s *Store) write(ctx context.Context, ns namespace, batch []store.Sighting, op writeOp) ([]lastseen.State, error) {
	folded, place := fold(batch)
	states := make([]lastseen.State, len(folded))
	portions := ns.split(len(folded), func(i int) string { return folded[i].User })
	for len(portions) > 0 {
		some := portions[:min(maxCalls, len(portions))]
		portions = portions[len(some):]
		if err := s.writePortions(ctx, ns, some, folded, states, op); err != nil {
			return nil, err
		}
	}
	answer := make([]lastseen.State, len(batch))
	for i := range batch {
		answer[i] = states[place[i]]
	}
	return answer, nil
}

// writePortions sends portions of a batch in one round trip and fills in the states that result.
func (s *Store) writePortions(
	ctx context.Context, ns namespace, portions []portion, batch []store.Sighting, states []lastseen.State, op writeOp,
) error {
	calls := make([]call, len(portions))
	for i, p := range portions {
		args := append(make([]any, 0, 1+3*len(p.index)), op.first...)
		for _, at := range p.index {
			args = op.args(args, batch[at])
		}
		calls[i] = call{key: p.key, args: args}
	}
	cmds, err := s.runScript(ctx, op.script, calls)
	if err != nil {
		return err
	}
	for i, p := range portions {
		before, err := op.reply(cmds[i].Val())
		if err != nil {
			return err
		}
		if len(before) != len(p.index) {
			return fmt.Errorf("script answered %d scores for %d users", len(before), len(p.index))
		}
		for j, at := range p.index {
			write := func(s lastseen.State) lastseen.State { return op.after(s, batch[at].At) }
			if states[at], err = ns.stateAfter(before[j], write); err != nil {
				return err
			}
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
