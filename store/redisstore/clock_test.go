package redisstore_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/storetest/kit"
	"github.com/lastseen/lastseen/store/storetest/redistest"
	"github.com/lastseen/lastseen/store/storetest/redistest/stores"
)

// TestOneServersClock: of two servers on one Redis, the local clock of one jumps. That server stamps pings as the
// other one does.
func TestOneServersClock(t *testing.T) {
	ctx, url := context.Background(), redistest.Start(t)
	var wrong atomic.Int64
	local := func() time.Time { return time.Now().Add(time.Duration(wrong.Load())) }
	jumpy := stores.New(t, redisstore.Options{URL: url, Now: local})
	steady := stores.New(t, redisstore.Options{URL: url})
	for i, ahead := range []time.Duration{
		0, 1000 * time.Hour, -1000 * time.Hour, 30 * 365 * 24 * time.Hour,
		-30 * 365 * 24 * time.Hour,
	} {
		wrong.Store(int64(ahead))
		at := kit.Now(t, jumpy)
		user := fmt.Sprint("user", i)
		states, err := jumpy.Ping(ctx, "chat", []store.PresenceEvent{{User: user, At: at}})
		require.NoError(t, err)
		require.Equal(t, []lastseen.State{{At: at}}, states)
		true_ := kit.Now(t, steady)
		require.InDelta(t, int64(true_), int64(at), 1000, "%s", ahead)
		states, err = steady.Leave(ctx, "chat", []store.PresenceEvent{{User: user, At: max(at, true_)}})
		require.NoError(t, err)
		require.True(t, states[0].Left)
	}
	result, err := stores.Trim(jumpy, 30*24*time.Hour)
	require.NoError(t, err)
	require.Zero(t, result)
}

// TestAheadInMilliseconds: times too far ahead become a time of Redis' clock in whole milliseconds, in either unit, and
// a leave at that time keeps its user away.
func TestAheadInMilliseconds(t *testing.T) {
	ctx, url, client := stores.StartRedis(t)
	for unit, perScore := range map[redisstore.Unit]float64{redisstore.Milliseconds: 1, redisstore.Seconds: 1000} {
		s := stores.New(t, redisstore.Options{URL: url, Prefix: string(unit) + ":", Unit: unit})
		far := []store.PresenceEvent{{User: "alice", At: lastseen.MaxInstant}, {User: "bob", At: kit.Base}}
		for i := range 50 {
			left := kit.Write(s.Leave).Send(t, "chat", far)
			score := client.ZScore(ctx, string(unit)+":chat", "alice").Val()
			require.InDelta(t, -float64(left[0].At)/perScore, score, 0,
				"the very number that stands for the millisecond")
			present := kit.Write(s.Ping).Send(t, "chat", far)
			if !present[0].Left {
				require.Greater(t, present[0].At, left[0].At, "left beats present at the same millisecond")
			}
			require.Equal(t, lastseen.State{At: kit.Base, Left: true}, present[1])
			require.Equal(t, present, kit.Lookup(t, s, "alice", "bob"), i)
		}
	}
}

// TestHeldByUsersAlone: members whose scores are not times do not keep a namespace from being emptied of its users.
func TestHeldByUsersAlone(t *testing.T) {
	ctx, client, s := stores.Start(t)
	require.NoError(t, stores.Ping(s, "chat", "alice"))
	for i, score := range []float64{253402300800000, -253402300800000, 1 << 52, 1e300, -1e300} {
		require.NoError(t, client.ZAdd(ctx, "presence:chat", redis.Z{Member: fmt.Sprint("odd", i), Score: score}).Err())
	}
	now := kit.Now(t, s)
	result, err := s.Trim(ctx, "chat", store.TrimQuery{Age: time.Hour, Now: now})
	require.NoError(t, err)
	require.Equal(t, store.TrimResult{Held: true}, result)
}
