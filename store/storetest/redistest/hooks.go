package redistest

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// AroundCommands is a hook that calls functions, if they are not nil, around each command that is not in a pipeline.
type AroundCommands struct{ Before, After func(redis.Cmder) }

// Around returns a hook that calls before and after around each command with a name.
func Around(command string, before, after func()) AroundCommands {
	only := func(do func()) func(redis.Cmder) {
		return func(cmd redis.Cmder) {
			if cmd.Name() == command {
				do()
			}
		}
	}
	return AroundCommands{only(before), only(after)}
}

// DialHook implements [redis.Hook].
func (AroundCommands) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessPipelineHook implements [redis.Hook].
func (AroundCommands) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// ProcessHook implements [redis.Hook].
func (a AroundCommands) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if a.Before != nil {
			a.Before(cmd)
		}
		if a.After != nil {
			defer a.After(cmd)
		}
		return next(ctx, cmd)
	}
}
