package redisclient

import (
	"context"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"
)

// Call is one run of a script on one key, and perhaps on others in the same slot.
type Call struct {
	Script *redis.Script
	Key    string
	Others []string
	Args   []any
}

func (c Call) keys() []string { return append([]string{c.Key}, c.Others...) }

// Run runs a script on one key.
func (c *Client) Run(ctx context.Context, script *redis.Script, key string, args ...any) (*redis.Cmd, error) {
	cmd := c.RunEach(ctx, []Call{{Script: script, Key: key, Args: args}})[0]
	return cmd, Translate(cmd.Err())
}

// RunInts is RunAll for scripts that return n numbers.
func (c *Client) RunInts(ctx context.Context, n int, calls ...Call) ([][]int64, error) {
	cmds, err := c.RunAll(ctx, calls)
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

// Slice returns an array of a script's reply, of n elements unless n is negative.
func Slice(reply any, n int) ([]any, error) {
	elements, ok := reply.([]any)
	if !ok || n >= 0 && len(elements) != n {
		return nil, fmt.Errorf("unexpected script reply of type %T instead of an array", reply)
	}
	return elements, nil
}

// Int returns a number that is text in a script's reply.
func Int(reply any) (int64, error) {
	text, _ := reply.(string)
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("unexpected script reply: %v is not a number", reply)
	}
	return n, nil
}

// RunAll makes calls, all in one round trip, and returns the replies in their order. The error is that of the first
// call that failed; others may have run.
func (c *Client) RunAll(ctx context.Context, calls []Call) ([]*redis.Cmd, error) {
	cmds := c.RunEach(ctx, calls)
	return cmds, Translate(FirstError(cmds))
}

// FirstError returns the first error of commands.
func FirstError[C redis.Cmder](cmds []C) error {
	for _, cmd := range cmds {
		if err := cmd.Err(); err != nil {
			return err
		}
	}
	return nil
}

// Sum returns the sum of replies, or the first error.
func Sum(cmds []*redis.IntCmd) (n int64, err error) {
	for _, cmd := range cmds {
		n += cmd.Val()
	}
	return n, Translate(FirstError(cmds))
}

// RunEach is RunAll with the error of each call in its reply. Redis forgets scripts when it restarts or fails over;
// unknown ones are sent again in full.
func (c *Client) RunEach(ctx context.Context, calls []Call) []*redis.Cmd {
	cmds := c.pipeline(ctx, calls, func(p redis.Scripter, one Call) *redis.Cmd {
		return p.EvalSha(ctx, one.Script.Hash(), one.keys(), one.Args...)
	})
	var missing []int
	var again []Call
	for i, cmd := range cmds {
		if redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") {
			missing, again = append(missing, i), append(again, calls[i])
		}
	}
	if len(missing) == 0 {
		return cmds
	}
	resent := c.pipeline(ctx, again, func(p redis.Scripter, one Call) *redis.Cmd {
		return one.Script.Eval(ctx, p, one.keys(), one.Args...)
	})
	for i, cmd := range resent {
		cmds[missing[i]] = cmd
	}
	return cmds
}

// pipeline sends one command for each call in one round trip. Errors stay in the commands. In a Cluster, a call with
// several keys is always in a pipeline: its caller has to learn at once of TRYAGAIN, after which go-redis repeats a
// command that is not in one.
func (c *Client) pipeline(ctx context.Context, calls []Call, send func(redis.Scripter, Call) *redis.Cmd) []*redis.Cmd {
	if len(calls) == 1 && (len(calls[0].Others) == 0 || !c.InCluster()) {
		return []*redis.Cmd{send(c.Reader(ctx), calls[0])}
	}
	pipe := c.Reader(ctx).Pipeline()
	cmds := make([]*redis.Cmd, len(calls))
	for i, one := range calls {
		cmds[i] = send(pipe, one)
	}
	_, _ = pipe.Exec(ctx) // each command keeps its error
	return cmds
}
