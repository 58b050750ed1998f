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
)

const second, hour lastseen.Instant = 1000, 3600 * second

// eachSharding runs a test of a feed with one shard, and with seven.
func eachSharding(t *testing.T, test func(t *testing.T, f *feed)) {
	for _, shards := range []int{1, 7} {
		t.Run(fmt.Sprint(shards), func(t *testing.T) {
			url := redistest.Start(t)
			test(t, startFeed(t, newStore(t, redisstore.Options{URL: url, Shards: shards}), newClient(t, url), shards))
		})
	}
}

// TestPingBetweenDecayAndSweep: by the clock these users decayed, but the feed has not said so yet.
func TestPingBetweenDecayAndSweep(t *testing.T) {
	t.Parallel()
	eachSharding(t, func(t *testing.T, f *feed) {
		f.moveWatermark(f.w - 60*second)
		users := []string{"pings", "leaves", "pings late", "decays"}
		f.ping(f.w-hour+10*second, users...)
		r := newReader(t, f.s, users...)
		before := f.entries()
		f.ping(f.w+20*second, "pings")
		require.Equal(t, before, f.entries(), "still published as green")
		f.leave(f.w+20*second, "leaves")
		require.Equal(t, 2, f.sweep(f.w+30*second).Decays)
		f.ping(f.w+5*second, "pings late")
		require.Zero(t, f.sweep(f.w+40*second).Decays)
		r.requireTruth()
		require.Empty(t, r.of("pings"))
		require.Equal(t, []lastseen.Status{lastseen.Grey}, r.of("leaves"))
		require.Equal(t, []lastseen.Status{lastseen.Yellow, lastseen.Green}, r.of("pings late"))
		require.Equal(t, []lastseen.Status{lastseen.Yellow}, r.of("decays"))
		require.Zero(t, r.resets)
	})
}

// TestFeedBegunWhileYellow checks users that this feed has never published as green.
func TestFeedBegunWhileYellow(t *testing.T) {
	t.Parallel()
	for _, shards := range []int{1, 7} {
		url := redistest.Start(t)
		client := newClient(t, url)
		s := newStore(t, redisstore.Options{URL: url, Shards: shards})
		w := lastseen.InstantOf(client.Time(context.Background()).Val()) - 60*second
		for user, at := range map[string]lastseen.Instant{
			"green": w - hour/2, "comes back": w - hour*3/2, "fades": w - 2*hour + 10*second, "grey": w - 3*hour,
		} {
			_, err := s.Ping(context.Background(), "chat", sightingsAt(at, user))
			require.NoError(t, err)
		}
		f := startFeed(t, s, client, shards)
		f.moveWatermark(w)
		r := newReader(t, s, "green", "comes back", "fades", "grey", "new")
		require.Zero(t, f.entries(), "those who were there before are in the snapshot")
		f.ping(w+20*second, "comes back")
		f.ping(w-hour*3/2, "new", "green", "grey")
		require.Equal(t, 1, f.sweep(w+30*second).Decays)
		r.requireTruth()
		for user, want := range map[string][]lastseen.Status{
			"green": nil, "comes back": {lastseen.Green}, "fades": {lastseen.Grey}, "grey": {lastseen.Yellow},
			"new": {lastseen.Yellow},
		} {
			require.Equal(t, want, r.of(user), user)
		}
		require.Zero(t, r.resets)
	}
}

// sweepOnce sweeps one step, up to the present.
func (f *feed) sweepOnce(s store.Store, by lastseen.Thresholds) *store.ChangesSweep {
	f.Helper()
	step := &store.ChangesSweep{Namespace: "chat", Thresholds: by, Now: f.clock()}
	s.SweepChanges(context.Background(), []*store.ChangesSweep{step})
	require.NoError(f, step.Err)
	return step
}

// TestSweeperTakesOver: of two servers, the one that swept last goes on. When it vanishes, the other one goes on where
// it stopped, without a reset.
func TestSweeperTakesOver(t *testing.T) {
	t.Parallel()
	url := redistest.Start(t)
	for _, shards := range []int{1, 7} {
		o := redisstore.Options{URL: url, Shards: shards}
		client := newClient(t, url)
		require.NoError(t, client.FlushAll(context.Background()).Err())
		first, second := newStore(t, o), newStore(t, o)
		f := startFeed(t, first, client, shards)
		r := newReader(t, second, "alice", "bob")
		var swept, other *store.ChangesSweep
		f.quickly(time.Second, func() { swept, other = f.sweepOnce(first, hours), f.sweepOnce(second, hours) })
		require.False(t, swept.Elsewhere)
		require.True(t, other.Elsewhere)
		require.False(t, f.sweepOnce(first, hours).Elsewhere)
		f.quickly(time.Second, func() {
			f.moveWatermark(f.clock() - 4000)
			f.ping(f.w-hour+1000, "alice")
			swept, other = f.sweepOnce(second, hours), f.sweepOnce(first, hours)
		})
		require.False(t, swept.Elsewhere)
		require.False(t, swept.Begun)
		require.True(t, other.Elsewhere, "when it comes back")
		r.watermark = 0 // the test moved it back
		r.requireTruth()
		require.Equal(t, lastseen.Yellow, r.told["alice"].Status)
		require.Zero(t, r.resets)
	}
}

// TestSweepersOfOtherThresholds: a server with other thresholds waits until none with the feed's is left.
func TestSweepersOfOtherThresholds(t *testing.T) {
	t.Parallel()
	eachSharding(t, func(t *testing.T, f *feed) {
		halves := lastseen.Thresholds{Green: time.Hour / 2, Yellow: time.Hour}
		f.ping(f.w-hour*3/4, "alice")
		r := newReader(t, f.s, "alice")
		require.Equal(t, lastseen.Green, r.told["alice"].Status)
		var swept, other *store.ChangesSweep
		f.quickly(4*time.Second, func() {
			f.moveWatermark(f.clock() - 5000)
			swept = f.sweepOnce(f.s, halves)
		})
		require.True(t, swept.Elsewhere)
		require.False(t, swept.Begun)
		require.NoError(t, f.s.RecordChanges(context.Background(), "chat", halves), "which changes no thresholds")
		r.watermark = 0 // the test moved it back
		r.poll()
		require.Equal(t, 0, r.resets)
		f.moveWatermark(f.clock() - 11*second)
		swept = f.sweepOnce(f.s, halves)
		require.True(t, swept.Begun)
		require.False(t, swept.Elsewhere)
		r.watermark = 0 // the test moved it back
		r.poll()
		require.Equal(t, 1, r.resets)
		require.Equal(t, lastseen.Yellow, r.told["alice"].Status, "by the new thresholds")
		f.quickly(time.Second, func() { swept, other = f.sweepOnce(f.s, halves), f.sweepOnce(f.s, hours) })
		require.False(t, swept.Elsewhere)
		require.True(t, other.Elsewhere, "the old ones")
	})
}

// addPast adds users past the store, all with one time.
func (f *feed) addPast(at lastseen.Instant, users []string) {
	f.Helper()
	pipe := f.client.Pipeline()
	for i := 0; i < len(users); i += 1000 {
		var part []redis.Z
		for _, user := range users[i:min(i+1000, len(users))] {
			part = append(part, redis.Z{Member: user, Score: float64(at)})
		}
		pipe.ZAdd(context.Background(), f.keys[0], part...)
	}
	_, err := pipe.Exec(context.Background())
	require.NoError(f, err)
}

// TestEqualTimes: a bulk import gave its users one time. Up to MaxSweepInstant of them decay in one step; with more,
// the feed begins again, so that Redis is not blocked.
func TestEqualTimes(t *testing.T) {
	t.Parallel()
	for n, begins := range map[int]bool{store.MaxSweepInstant: false, store.MaxSweepInstant + 1: true, 100_000: true} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			url := redistest.Start(t)
			f := startFeed(t, newStore(t, redisstore.Options{URL: url}), newClient(t, url), 1)
			f.moveWatermark(f.w - 60*second)
			users := numbered("u", n)
			f.addPast(f.w-hour+10*second, users)
			f.ping(f.w-hour+5*second, "earlier")
			f.ping(f.w-hour+20*second, "later")
			r := newReader(t, f.s, append(users[:store.MaxWatched-2:store.MaxWatched-2], "earlier", "later")...)
			r.limit = store.MaxChangesRead
			swept := f.sweep(f.w + 30*second)
			require.Equal(t, begins, swept.Begun)
			r.requireTruth()
			require.Equal(t, lastseen.Yellow, r.told[users[0]].Status)
			if begins {
				require.Equal(t, 1, r.resets)
				require.Less(t, f.entries(), int64(10), "they are not in the feed")
			} else {
				require.Zero(t, r.resets)
				require.Equal(t, n+2, swept.Decays)
				require.Len(t, r.changes, n+2)
			}
			f.ping(f.w+40*second, users[0])
			r.requireTruth()
			require.Equal(t, lastseen.Green, r.told[users[0]].Status)
		})
	}
}

// TestTrimDoesNotOvertakeTheSweep: it would delete users that the feed still shows as yellow, and no entry would ever
// say that they are not.
func TestTrimDoesNotOvertakeTheSweep(t *testing.T) {
	t.Parallel()
	eachSharding(t, func(t *testing.T, f *feed) {
		require.NoError(t, f.s.Forget(context.Background(), "chat", "somebody"))
		f.moveWatermark(f.w - hour)
		now := f.w + hour
		f.ping(now-hour*5/2, "yellow")
		f.ping(now-hour*5/2-1, "left")
		f.leave(now-hour*5/2, "left")
		f.ping(now-4*hour, "grey")
		r := newReader(t, f.s, "yellow", "left", "grey")
		require.Equal(t, lastseen.Yellow, r.told["yellow"].Status)
		result, err := trim(f.s, "chat", hours.Yellow)
		require.NoError(t, err)
		require.Equal(t, store.TrimResult{Deleted: 1}, result)
		require.Equal(t, now-hour*5/2, lookup(t, f.s, "yellow")[0].At)
		require.Equal(t, now-hour*5/2, lookup(t, f.s, "left")[0].At)
		r.poll()
		require.Empty(t, r.changes)
		require.Equal(t, 1, f.sweep(now).Decays)
		before := f.entries()
		result, err = trim(f.s, "chat", hours.Yellow)
		require.NoError(t, err)
		require.Equal(t, store.TrimResult{Deleted: 2}, result)
		require.Equal(t, before, f.entries(), "a trim appends nothing")
		r.poll()
		require.Equal(t, []lastseen.Status{lastseen.Grey}, r.of("yellow"))
		require.Len(t, r.changes, 1)
		require.Zero(t, r.resets)
	})
}

// TestInvalidScoresAreNotPublished: zero, and scores beyond any time.
func TestInvalidScoresAreNotPublished(t *testing.T) {
	t.Parallel()
	url := redistest.Start(t)
	f := startFeed(t, newStore(t, redisstore.Options{URL: url}), newClient(t, url), 1)
	f.moveWatermark(f.w - 60*second)
	require.NoError(t, f.client.ZAdd(context.Background(), "presence:chat",
		redis.Z{Member: "beyond", Score: float64(1<<52 + int64(f.w-hour+10*second))},
		redis.Z{Member: "zero", Score: 0}, redis.Z{Member: "far", Score: float64(lastseen.MaxInstant) + 1},
	).Err())
	r := newReader(t, f.s, "beyond", "zero", "far")
	require.Zero(t, f.sweep(f.w+30*second).Decays)
	f.ping(f.w+40*second, "beyond", "far")
	f.leave(f.w+41*second, "beyond", "far")
	r.requireTruth()
	require.Empty(t, r.changes)
}

// TestBacklog: more users decay than are kept, so the feed begins again at once.
func TestBacklog(t *testing.T) {
	testenv.RequireFull(t)
	t.Parallel()
	url := redistest.Start(t)
	f := startFeed(t, newStore(t, redisstore.Options{URL: url}), newClient(t, url), 1)
	f.moveWatermark(f.w - 2000*second)
	const add = "for i = 1, 1000 do redis.call('ZADD', KEYS[1], ARGV[1], ARGV[2] .. '-' .. i) end return 1"
	for i := range store.MaxChanges/1000 + 1 { // a thousand each second
		err := f.client.Eval(context.Background(), add, f.keys, int64(f.w-hour+lastseen.Instant(i+1)*second), i).Err()
		require.NoError(t, err)
	}
	r := newReader(t, f.s, "0-1", "999-1000", "1000-1000")
	require.Equal(t, lastseen.Green, r.told["0-1"].Status)
	step := f.sweepOnce(f.s, hours)
	require.True(t, step.Begun)
	require.Zero(t, step.Decays)
	require.Zero(t, f.entries())
	r.requireTruth()
	require.Equal(t, 1, r.resets)
}

// TestGapsWithFeed: the time since the previous ping is observed there, too.
func TestGapsWithFeed(t *testing.T) {
	t.Parallel()
	url, gaps := redistest.Start(t), map[time.Duration]int{}
	s := newStore(t, redisstore.Options{URL: url, Gap: func(_ string, gap time.Duration) { gaps[gap]++ }})
	f := startFeed(t, s, newClient(t, url), 1)
	for i := range lastseen.Instant(300) { // one in 16 is observed, at random
		f.ping(f.w-hour+i*second, "alice")
	}
	require.Positive(t, gaps[time.Second])
	require.Len(t, gaps, 1)
}
