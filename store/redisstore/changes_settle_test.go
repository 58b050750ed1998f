package redisstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// settlesAt moves the settle time of a feed to an instant, instead of waiting for it.
func (f *feed) settlesAt(at lastseen.Instant) {
	f.Helper()
	f.each(func(key string) error {
		return f.client.HSet(context.Background(), feedKey(key), "s", int64(at)).Err()
	})
}

// endSettling has the settle time of a feed pass: the next sweep begins the feed again. That counts only if the sweeps
// did not stop before.
func (f *feed) endSettling() {
	f.Helper()
	for range 100 {
		f.sweep(f.clock())
		f.settlesAt(f.clock() - 1)
		if f.sweep(f.clock()).Begun {
			return
		}
	}
	f.Fatal("it does not begin again")
}

// TestWriterThatDoesNotKnowTheFeed: for some seconds another server writes without appending. Once all servers know of
// the feed it begins again, so that readers learn what that server wrote.
func TestWriterThatDoesNotKnowTheFeed(t *testing.T) {
	t.Parallel()
	url := redistest.Start(t)
	for _, shards := range []int{1, 7} {
		client := newClient(t, url)
		var f *feed
		var other *redisstore.Store
		var r *reader
		unaware := func() bool { // false if it happened to look meanwhile, as it does every ten seconds
			require.NoError(t, client.FlushAll(context.Background()).Err())
			o := redisstore.Options{URL: url, Shards: shards}
			other = newStore(t, o)
			require.NoError(t, ping(other, "chat", "somebody"))
			f = startFeed(t, newStore(t, o), client, shards)
			f.settlesAt(f.clock() + hour)
			r = newReader(t, f.s, "alice", "bob", "carol")
			f.ping(f.w, "carol")
			_, err := other.Ping(context.Background(), "chat", sightingsAt(f.w, "alice"))
			require.NoError(t, err)
			return f.entries() == 1
		}
		require.Eventually(t, unaware, longTimeout, time.Millisecond)
		require.False(t, f.sweep(f.clock()).Begun)
		r.poll()
		require.Zero(t, r.resets, "too early: it may still write")

		other.ExpireAgreements() // as after ten seconds
		_, err := other.Ping(context.Background(), "chat", sightingsAt(f.w, "bob"))
		require.NoError(t, err)
		r.poll()
		require.Equal(t, []lastseen.Status{lastseen.Green}, r.of("bob"), "now it appends")

		f.endSettling()
		r.requireTruth()
		require.Equal(t, 1, r.resets)
		require.Equal(t, lastseen.Green, r.told["alice"].Status)
		require.False(t, f.sweep(f.clock()).Begun, "once")
		f.leave(f.w+1, "alice")
		r.requireTruth()
		require.Equal(t, 1, r.resets)
	}
}

// TestSettleTime: a new feed has one that is long enough for every server to learn of it, and renewing the feed does
// not change it. Beginning again, since the clock was set back, keeps what is left of it.
func TestSettleTime(t *testing.T) {
	t.Parallel()
	ctx, url := context.Background(), redistest.Start(t)
	const timeout = time.Second
	s := newStore(t, redisstore.Options{URL: url, Timeout: timeout, DialTimeout: timeout})
	client := newClient(t, url)
	require.Eventually(t, func() bool { return ping(s, "chat", "alice") == nil }, longTimeout, time.Millisecond)
	f := &feed{T: t, s: s, client: client, keys: []string{"presence:chat"}}
	hash := feedKey("presence:chat")
	settles := func() lastseen.Instant {
		n, err := client.HGet(ctx, hash, "s").Int64()
		require.NoError(t, err)
		return lastseen.Instant(n)
	}
	before := f.clock()
	f.record()
	after := f.clock()
	const least = 10*time.Second + 2*timeout
	first := settles()
	require.GreaterOrEqual(t, first, before.Add(least))
	require.LessOrEqual(t, first, after.Add(least+5*time.Second))
	f.record()
	require.Equal(t, first, settles())

	require.NoError(t, client.HSet(ctx, hash, "w", int64(f.clock()+hour), "s", int64(f.clock()+hour+12*second)).Err())
	f.ping(f.clock(), "alice")
	f.sweep(f.clock())
	again := settles()
	require.GreaterOrEqual(t, again, before.Add(10*time.Second), "still in the future")
	require.Less(t, again, before+hour, "but by the clock as it is now")
}

// TestLostBit: Redis has lost what tells servers of the feed, but not the feed. Renewing it brings the bit back, and
// what others wrote without it is not missed.
func TestLostBit(t *testing.T) {
	t.Parallel()
	ctx, url := context.Background(), redistest.Start(t)
	client := newClient(t, url)
	f := startFeed(t, newStore(t, redisstore.Options{URL: url}), client, 1)
	r := newReader(t, f.s, "alice")
	require.NoError(t, f.hdel("presence::meta", "chat:changes"))
	other := newStore(t, redisstore.Options{URL: url})
	_, err := other.Ping(ctx, "chat", sightingsAt(f.w, "alice"))
	require.NoError(t, err)
	require.Zero(t, f.entries(), "it does not know of the feed")
	f.s.ExpireAgreements() // as every ten seconds
	f.record()
	require.True(t, client.HExists(ctx, "presence::meta", "chat:changes").Val())
	require.True(t, client.HExists(ctx, feedKey("presence:chat"), "s").Val())
	f.endSettling()
	r.requireTruth()
	require.Equal(t, 1, r.resets)
	require.Equal(t, lastseen.Green, r.told["alice"].Status)
}

// TestSettleTimeEndsInCluster: each primary of a Cluster has its own clock. That of a shard may be some seconds ahead
// of the one that the sweeps go by.
func TestSettleTimeEndsInCluster(t *testing.T) {
	t.Parallel()
	url := redistest.Start(t)
	f := startFeed(t, newStore(t, redisstore.Options{URL: url}), newClient(t, url), 1)
	var begun bool
	f.quickly(time.Second, func() {
		f.moveWatermark(f.clock() - 5*second)
		f.settlesAt(f.clock() - 5*second)
		begun = f.sweep(f.clock() - 4*second).Begun
	})
	require.True(t, begun, "it never would")
}

// TestSettleTimeWhenThresholdsChange: nobody swept for a while, so that it cannot be told how long that was.
func TestSettleTimeWhenThresholdsChange(t *testing.T) {
	t.Parallel()
	url := redistest.Start(t)
	f := startFeed(t, newStore(t, redisstore.Options{URL: url}), newClient(t, url), 1)
	f.moveWatermark(f.clock() - 60*second)
	f.settlesAt(f.clock() - 50*second)
	step := f.sweepOnce(f.s, lastseen.Thresholds{Green: time.Hour / 2, Yellow: time.Hour})
	require.True(t, step.Begun)
	settles, err := f.client.HGet(context.Background(), feedKey(f.keys[0]), "s").Int64()
	require.NoError(t, err)
	require.Greater(t, lastseen.Instant(settles), f.clock()-20*second, "what was left of it")
}

// TestFeedEndsAlthoughClockWasSetBack: keys expire at an instant, far in the future by the clock as it is now.
func TestFeedEndsAlthoughClockWasSetBack(t *testing.T) {
	t.Parallel()
	ctx, url := context.Background(), redistest.Start(t)
	f := startFeed(t, newStore(t, redisstore.Options{URL: url}), newClient(t, url), 1)
	f.moveWatermark(f.clock() + 1000*hour)
	require.NoError(t, f.client.PExpire(ctx, feedKey(f.keys[0]), 1000*time.Hour).Err())
	f.ping(f.clock(), "alice")
	for _, key := range []string{feedKey(f.keys[0]), streamKey(f.keys[0])} {
		left := f.client.PTTL(ctx, key).Val()
		require.Positive(t, left, key)
		require.LessOrEqual(t, left, store.ChangesKept, key)
	}
	require.NoError(t, f.client.PExpire(ctx, feedKey(f.keys[0]), store.ChangesKept/2).Err())
	f.moveWatermark(f.clock() + hour)
	f.ping(f.clock(), "bob")
	require.LessOrEqual(t, f.client.PTTL(ctx, feedKey(f.keys[0])).Val(), store.ChangesKept/2, "only a renewal renews")
}

// TestSettleTimeOfAnotherServer: one that waits longer for Redis also needs longer to learn of a feed. But no clock can
// put off the end of that time for long.
func TestSettleTimeOfAnotherServer(t *testing.T) {
	t.Parallel()
	url := redistest.Start(t)
	o := redisstore.Options{URL: url, Timeout: time.Second, DialTimeout: time.Second}
	f := startFeed(t, newStore(t, redisstore.Options{URL: url}), newClient(t, url), 1)
	sweeper := newStore(t, o)
	left := func(set time.Duration) (left time.Duration) {
		untilSuccess(t, func() error {
			f.settlesAt(f.clock().Add(set))
			f.moveWatermark(f.clock())
			step := &store.ChangesSweep{Namespace: "chat", Thresholds: hours, Now: f.w}
			sweeper.SweepChanges(context.Background(), []*store.ChangesSweep{step})
			return step.Err
		})
		settles, err := f.client.HGet(context.Background(), feedKey(f.keys[0]), "s").Int64()
		require.NoError(t, err)
		return time.Duration(lastseen.Instant(settles)-f.w) * time.Millisecond
	}
	require.Greater(t, left(3*time.Minute), 2*time.Minute)
	require.Less(t, left(time.Hour), store.ChangesKept)
}
