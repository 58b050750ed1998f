package redisstore_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/storetest/redistest"
	"github.com/lastseen/lastseen/store/storetest/redistest/stores"
)

const second, hour lastseen.Instant = 1000, 3600 * second

// eachSharding runs a test of a feed with seven shards, and with one.
func eachSharding(t *testing.T, test func(t *testing.T, f *feed)) {
	for _, shards := range testenv.Variants(7, 1) {
		t.Run(fmt.Sprint(shards, " shards"), func(t *testing.T) {
			t.Parallel()
			test(t, newFeed(t, shards))
		})
	}
}

// advanceOnce advances one step, up to the present.
func (f *feed) advanceOnce(s store.Store, by lastseen.Thresholds) *store.ChangesAdvance {
	f.Helper()
	step := &store.ChangesAdvance{Namespace: "chat", Thresholds: by, Now: f.clock()}
	s.AdvanceChanges(context.Background(), []*store.ChangesAdvance{step})
	require.NoError(f, step.Err)
	return step
}

// TestAdvancerTakesOver: of two servers, the one that advanced last goes on. When it vanishes, the other one goes on
// where it stopped, without a reset.
func TestAdvancerTakesOver(t *testing.T) {
	t.Parallel()
	url := redistest.Start(t)
	for _, shards := range testenv.Variants(7, 1) {
		o := redisstore.Options{URL: url, Shards: shards}
		client := stores.NewClient(t, url)
		require.NoError(t, client.FlushAll(context.Background()).Err())
		first, second := stores.New(t, o), stores.New(t, o)
		f := startFeed(t, first, client, shards)
		r := newReader(t, second, "alice", "bob")
		var advanced, other *store.ChangesAdvance
		f.quickly(time.Second, func() { advanced, other = f.advanceOnce(first, hours), f.advanceOnce(second, hours) })
		require.False(t, advanced.Elsewhere)
		require.True(t, other.Elsewhere)
		require.False(t, f.advanceOnce(first, hours).Elsewhere)
		f.quickly(time.Second, func() {
			f.moveWatermark(f.clock() - 4000)
			f.ping(f.w-hour+1000, "alice")
			advanced, other = f.advanceOnce(second, hours), f.advanceOnce(first, hours)
		})
		require.False(t, advanced.Elsewhere)
		require.False(t, advanced.Begun)
		require.True(t, other.Elsewhere, "when it comes back")
		r.watermark = 0 // the test moved it back
		r.requireTruth()
		require.Equal(t, lastseen.Yellow, r.told["alice"].Status)
		require.Zero(t, r.resets)
	}
}

// TestAdvancersOfOtherThresholds: a server with other thresholds waits until none with the feed's is left.
func TestAdvancersOfOtherThresholds(t *testing.T) {
	t.Parallel()
	eachSharding(t, func(t *testing.T, f *feed) {
		halves := lastseen.Thresholds{Green: time.Hour / 2, Yellow: time.Hour}
		f.ping(f.w-hour*3/4, "alice")
		r := newReader(t, f.s, "alice")
		require.Equal(t, lastseen.Green, r.told["alice"].Status)
		var advanced, other *store.ChangesAdvance
		f.quickly(4*time.Second, func() {
			f.moveWatermark(f.clock() - 5000)
			advanced = f.advanceOnce(f.s, halves)
		})
		require.True(t, advanced.Elsewhere)
		require.False(t, advanced.Begun)
		require.NoError(t, f.s.RecordChanges(context.Background(), "chat", halves), "which changes no thresholds")
		r.watermark = 0 // the test moved it back
		r.poll()
		require.Equal(t, 0, r.resets)
		f.moveWatermark(f.clock() - 11*second)
		advanced = f.advanceOnce(f.s, halves)
		require.True(t, advanced.Begun)
		require.False(t, advanced.Elsewhere)
		r.watermark = 0 // the test moved it back
		r.poll()
		require.Equal(t, 1, r.resets)
		require.Equal(t, lastseen.Yellow, r.told["alice"].Status, "by the new thresholds")
		f.quickly(time.Second, func() { advanced, other = f.advanceOnce(f.s, halves), f.advanceOnce(f.s, hours) })
		require.False(t, advanced.Elsewhere)
		require.True(t, other.Elsewhere, "the old ones")
	})
}

// TestInvalidScoresAreNotPublished: zero, and scores beyond any time.
func TestInvalidScoresAreNotPublished(t *testing.T) {
	t.Parallel()
	f := newFeed(t, 1)
	f.moveWatermark(f.w - 60*second)
	require.NoError(t, f.client.ZAdd(context.Background(), "presence:chat",
		redis.Z{Member: "beyond", Score: float64(1<<52 + int64(f.w-hour+10*second))},
		redis.Z{Member: "zero", Score: 0}, redis.Z{Member: "far", Score: float64(lastseen.MaxInstant) + 1},
	).Err())
	r := newReader(t, f.s, "beyond", "zero", "far")
	require.Zero(t, f.advance(f.w+30*second).Transitions)
	f.ping(f.w+40*second, "beyond", "far")
	f.leave(f.w+41*second, "beyond", "far")
	r.requireTruth()
	require.Empty(t, r.changes)
}

// TestBacklog: more users turn yellow or grey than are kept, so the feed begins again at once.
func TestBacklog(t *testing.T) {
	testenv.SkipWithRace(t, "it is about what Redis does")
	t.Parallel()
	f := newFeed(t, 1)
	f.moveWatermark(f.w - 2000*second)
	const add = `
		local users = {}
		for i = 1, 1000 do
			users[2 * i - 1], users[2 * i] = ARGV[1], ARGV[2] .. '-' .. i
		end
		return redis.call('ZADD', KEYS[1], unpack(users))`
	require.NoError(t, f.client.ConfigSet(context.Background(), "appendonly", "no").Err())
	for i := range store.MaxChanges/1000 + 1 { // a thousand each second
		err := f.client.Eval(context.Background(), add, f.keys, int64(f.w-hour+lastseen.Instant(i+1)*second), i).Err()
		require.NoError(t, err)
	}
	r := newReader(t, f.s, "0-1", "999-1000", "1000-1000")
	require.Equal(t, lastseen.Green, r.told["0-1"].Status)
	step := f.advanceOnce(f.s, hours)
	require.True(t, step.Begun)
	require.Zero(t, step.Transitions)
	require.Zero(t, f.entries())
	r.requireTruth()
	require.Equal(t, 1, r.resets)
}

// TestGapsWithFeed: the time since the previous ping is observed there, too.
func TestGapsWithFeed(t *testing.T) {
	t.Parallel()
	url, gaps := redistest.Start(t), map[time.Duration]int{}
	s := stores.New(t, redisstore.Options{URL: url, Gap: func(_ string, gap time.Duration) { gaps[gap]++ }})
	f := startFeed(t, s, stores.NewClient(t, url), 1)
	for i := range lastseen.Instant(300) { // one in 16 is observed, at random
		f.ping(f.w-hour+i*second, "alice")
	}
	require.Positive(t, gaps[time.Second])
	require.Len(t, gaps, 1)
}
