package redistest

import (
	"context"
	"strings"

	"github.com/redis/go-redis/v9"
)

// SettleAtOnce has users of a store become invisible without waiting for other servers: whenever the store looks since
// when a namespace may have invisible users, it has been so for long. It is an Options.Instrument of redisstore, for
// tests of other packages.
func SettleAtOnce(client redis.UniversalClient) error {
	client.AddHook(settled{client})
	return nil
}

type settled struct{ client redis.UniversalClient }

func (settled) DialHook(next redis.DialHook) redis.DialHook { return next }

func (settled) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (s settled) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if args := cmd.Args(); cmd.Name() == "hget" && len(args) == 3 {
			key, _ := args[1].(string)
			field, _ := args[2].(string)
			if strings.HasSuffix(field, ":hidden") {
				if err := s.client.HSetNX(ctx, key, field, 1).Err(); err != nil {
					return err
				}
			}
		}
		return next(ctx, cmd)
	}
}
