package redisstore

import (
	"cmp"
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// call is one run of a script on one key, and perhaps on others in the same slot.
type call struct {
	key    string
	args   []any
	others []string
	script *redis.Script // if not nil, it is run instead of the one that the other calls run
}

func (c call) keys() []string { return append([]string{c.key}, c.others...) }

func (s *Store) runOnKey(ctx context.Context, script *redis.Script, key string, args ...any) (*redis.Cmd, error) {
	return s.runOn(ctx, script, call{key: key, args: args})
}

func (s *Store) runOn(ctx context.Context, script *redis.Script, c call) (*redis.Cmd, error) {
	cmd := s.runScripts(ctx, script, []call{c})[0]
	return cmd, translate(cmd.Err())
}

// runInts is runAll for a script that returns n numbers.
func (s *Store) runInts(ctx context.Context, script *redis.Script, n int, calls ...call) ([][]int64, error) {
	cmds, err := s.runAll(ctx, script, calls)
	if err != nil {
		return nil, err
	}
	replies := make([][]int64, len(cmds))
	for i, cmd := range cmds {
		if replies[i], err = cmd.Int64Slice(); err != nil || len(replies[i]) != n {
			return nil, fmt.Errorf("unexpected script reply %v instead of %d numbers", cmd.Val(), n)
		}
	}
	return replies, nil
}

// sliceOf returns an array of a script's reply, of n elements unless n is negative.
func sliceOf(reply any, n int) ([]any, error) {
	elements, ok := reply.([]any)
	if !ok || n >= 0 && len(elements) != n {
		return nil, fmt.Errorf("unexpected script reply of type %T instead of an array", reply)
	}
	return elements, nil
}

// runAll runs a script once for each call, all in one round trip, and returns the replies in the order of the calls.
// The error is that of the first call that failed; others may have run.
func (s *Store) runAll(ctx context.Context, script *redis.Script, calls []call) ([]*redis.Cmd, error) {
	cmds := s.runScripts(ctx, script, calls)
	return cmds, translate(firstError(cmds))
}

// firstError returns the first error of commands.
func firstError[C redis.Cmder](cmds []C) error {
	for _, cmd := range cmds {
		if err := cmd.Err(); err != nil {
			return err
		}
	}
	return nil
}

// runScripts is runAll with the error of each call in its reply. Redis forgets scripts when it restarts or fails over;
// unknown ones are sent again in full.
func (s *Store) runScripts(ctx context.Context, script *redis.Script, calls []call) []*redis.Cmd {
	cmds := s.pipeline(ctx, calls, func(p redis.Scripter, c call) *redis.Cmd {
		return p.EvalSha(ctx, cmp.Or(c.script, script).Hash(), c.keys(), c.args...)
	})
	var missing []int
	var again []call
	for i, cmd := range cmds {
		if redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") {
			missing, again = append(missing, i), append(again, calls[i])
		}
	}
	if len(missing) == 0 {
		return cmds
	}
	resent := s.pipeline(ctx, again, func(p redis.Scripter, c call) *redis.Cmd {
		return cmp.Or(c.script, script).Eval(ctx, p, c.keys(), c.args...)
	})
	for i, cmd := range resent {
		cmds[missing[i]] = cmd
	}
	return cmds
}

// pipeline sends one command for each call in one round trip. Errors stay in the commands. In a Cluster, runShards has
// to learn at once of TRYAGAIN, after which go-redis repeats a command that is not in a pipeline.
func (s *Store) pipeline(ctx context.Context, calls []call, send func(redis.Scripter, call) *redis.Cmd) []*redis.Cmd {
	if len(calls) == 1 && (calls[0].script == nil || !s.inCluster()) {
		return []*redis.Cmd{send(s.reader(ctx), calls[0])}
	}
	pipe := s.reader(ctx).Pipeline()
	cmds := make([]*redis.Cmd, len(calls))
	for i, c := range calls {
		cmds[i] = send(pipe, c)
	}
	_, _ = pipe.Exec(ctx) // each command keeps its error
	return cmds
}
