package redisstore_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/storetest"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// TestChangesWhileRedisLosesKeys: readers miss nothing without a reset while Redis loses entries, streams, scripts, or
// the feed of a shard.
func TestChangesWhileRedisLosesKeys(t *testing.T) {
	t.Parallel()
	for _, shards := range testenv.Variants(1, 7) {
		t.Run(fmt.Sprint(shards), func(t *testing.T) {
			t.Parallel()
			url := redistest.Start(t)
			l := &loser{T: t, client: newClient(t, url), shards: shards}
			storetest.RunFaultyChanges(t, func(testing.TB) storetest.Breakable {
				require.NoError(t, l.client.FlushAll(context.Background()).Err())
				l.faults = 0
				s := newStore(t, redisstore.Options{URL: url, Shards: shards})
				s.SettleAtOnce()
				return storetest.Breakable{Store: s, Talks: true, Fault: l.lose}
			})
		})
	}
}

// loser loses keys of a Redis.
type loser struct {
	*testing.T
	client *redis.Client
	shards int
	faults int
}

// lose loses one thing after the other.
func (l *loser) lose() {
	ctx := context.Background()
	switch l.faults++; l.faults % 4 {
	case 0:
		l.each("*:changes:*", func(key string) error { return l.client.Del(ctx, key).Err() })
	case 1:
		l.each("*:changes:*", func(key string) error { return l.client.XTrimMaxLen(ctx, key, 1).Err() })
	case 2:
		l.each("*:feed:*", func(key string) error {
			if l.shards > 1 && !strings.HasSuffix(key, ":3}") {
				return nil
			}
			return l.client.Del(ctx, key).Err()
		})
	case 3:
		require.NoError(l, l.client.ScriptFlush(ctx).Err())
	}
}

func (l *loser) each(pattern string, do func(key string) error) {
	keys, err := l.client.Keys(context.Background(), pattern).Result()
	require.NoError(l, err)
	for _, key := range keys {
		require.NoError(l, do(key))
	}
}
