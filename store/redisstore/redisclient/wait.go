package redisclient

import (
	"cmp"
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// MaxWait is the largest value of [Options.Wait].
const MaxWait = 10

// waits has replicas confirm writes: see [Options.Wait].
type waits struct {
	replicas int
	atMost   time.Duration
	failures atomic.Int64
}

// WaitFailures returns how often too few replicas confirmed a round trip of writes in time since Open.
func (c *Client) WaitFailures() int64 { return c.guard.failures.Load() }

// confirmedKey marks the context of writes that replicas have to confirm.
type confirmedKey struct{}

// Confirmed returns a context for writes that [Options.Wait] replicas have to confirm.
func Confirmed(ctx context.Context) context.Context {
	return context.WithValue(ctx, confirmedKey{}, true)
}

// Unconfirmed returns a context for writes that no replica has to confirm.
func Unconfirmed(ctx context.Context) context.Context {
	return context.WithValue(ctx, confirmedKey{}, nil)
}

func isConfirmed(ctx context.Context) bool { return ctx.Value(confirmedKey{}) != nil }

// withWait appends WAIT to commands. When go-redis sends part of a pipeline again, it has the WAIT of the first time,
// which may be for another node.
func (w *waits) withWait(ctx context.Context, cmds []redis.Cmder) ([]redis.Cmder, *redis.IntCmd) {
	sent := make([]redis.Cmder, 0, len(cmds)+1)
	for _, cmd := range cmds {
		if cmd.Name() != "wait" {
			sent = append(sent, cmd)
		}
	}
	wait := redis.NewIntCmd(ctx, "wait", w.replicas, max(1, w.limit(ctx).Milliseconds()))
	return append(sent, wait), wait
}

// limit returns how long replicas have. Half of what is left, so that Redis' reply comes before the caller's deadline:
// slow replicas must not look like a Redis that does not respond, and a script that Redis does not know is sent again.
func (w *waits) limit(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return w.atMost
	}
	return min(w.atMost, time.Until(deadline)/2)
}

// check fails commands that succeeded but were not confirmed. It returns the error of sending them, or that of the
// confirmation.
func (w *waits) check(cmds []redis.Cmder, wait *redis.IntCmd, sent error) error {
	n, err := wait.Result()
	if err == nil && n >= int64(w.replicas) {
		return sent
	}
	if err != nil {
		err = fmt.Errorf("WAIT: %w", err)
	} else {
		err = fmt.Errorf("%d of %d replicas confirmed in time: the write's outcome is unknown, send it again",
			n, w.replicas)
	}
	unconfirmed := false
	for _, cmd := range cmds {
		if cmd.Err() == nil {
			cmd.SetErr(err)
			unconfirmed = true
		}
	}
	if wait.Err() == nil && unconfirmed {
		w.failures.Add(1)
	}
	return cmp.Or(sent, err)
}

// RepeatTime returns for how long what Redis refuses may be repeated within a call: half of what is left of it.
func (c *Client) RepeatTime(ctx context.Context) time.Duration { return c.guard.limit(ctx) }
