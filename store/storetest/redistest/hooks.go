package redistest

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

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

// CPUTime returns the CPU time, user and system, that Redis has used since it started, without that of the processes
// that save its data. The client is one of a single server, not of a Cluster.
func CPUTime(t testing.TB, client redis.UniversalClient) time.Duration {
	t.Helper()
	info, err := client.Info(context.Background(), "cpu").Result()
	check(t, err)
	times := map[string]string{}
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		times[name] = value
	}
	var sum time.Duration
	for _, name := range []string{"used_cpu_user", "used_cpu_sys"} {
		seconds, err := strconv.ParseFloat(times[name], 64)
		check(t, err)
		sum += time.Duration(seconds * float64(time.Second))
	}
	return sum
}
