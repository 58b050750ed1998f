package replica

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// errBehind is the error of commands to a replica that is too far behind.
var errBehind = errors.New("the replica is too far behind")

// hook reads the heartbeat before everything that is read from a replica, in the same round trip and on the same
// connection. So no result is older than its heartbeat, also if another server now has the replica's address. Commands
// that do not read for a caller, such as those that begin a connection, pass.
type hook struct {
	replicas *Set
	replica  *replica
}

// DialHook implements [redis.Hook].
func (*hook) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements [redis.Hook].
func (h *hook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if answerOf(ctx) == nil {
			return next(ctx, cmd)
		}
		pipe := h.replica.client.Pipeline()
		_ = pipe.Process(ctx, cmd) // only queues it
		_, _ = pipe.Exec(ctx)
		return cmd.Err()
	}
}

// ProcessPipelineHook implements [redis.Hook].
func (h *hook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		a := answerOf(ctx)
		if a == nil {
			return next(ctx, cmds)
		}
		expired := ctx.Err() != nil // then nothing is sent
		get := redis.NewStringCmd(ctx, "get", h.replicas.o.HeartbeatKey)
		sent := next(context.WithValue(ctx, answerKey{}, (*answer)(nil)), append([]redis.Cmder{get}, cmds...))
		err := h.check(a, get)
		if err != nil {
			for _, cmd := range cmds {
				cmd.SetErr(err)
			}
		} else {
			err = sent
		}
		a.failed = a.failed || err != nil && !expired // a read can take two round trips
		return err
	}
}

// check returns an error unless the heartbeat is young enough, and notes its age.
func (h *hook) check(a *answer, get *redis.StringCmd) error {
	text, err := get.Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return err
	}
	found, ok := h.replicas.clocks.parse(text)
	age := time.Duration(0)
	if ok {
		age = h.replicas.clocks.age(found)
		h.replica.saw(found)
	}
	if !ok || age > h.replicas.o.MaxLag {
		a.behind = true
		return fmt.Errorf("%w: by %s", errBehind, age)
	}
	a.asked, a.age = true, max(a.age, age)
	return nil
}
