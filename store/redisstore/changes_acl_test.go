package redisstore_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// setStreams gives the user app the right to use streams, or takes it.
func setStreams(t *testing.T, client *redis.Client, allowed bool) {
	t.Helper()
	right := map[bool]string{true: "+@stream", false: "-@stream"}[allowed]
	require.NoError(t, client.Do(context.Background(), "ACL", "SETUSER", "app", right).Err())
}

// TestFeedWithLeastRights: they are enough for everything about feeds.
func TestFeedWithLeastRights(t *testing.T) {
	t.Parallel()
	url := redistest.Start(t)
	for _, shards := range []int{1, 7} {
		admin := newClient(t, url)
		require.NoError(t, admin.FlushAll(context.Background()).Err())
		restrict(t, admin)
		s := newStore(t, redisstore.Options{URL: asApp(url), Shards: shards})
		useFeed(t, startFeed(t, s, admin, shards))
	}
}

// useFeed does everything that can be done with a feed.
func useFeed(t *testing.T, f *feed) {
	t.Helper()
	ctx, users := context.Background(), numbered("u", 20)
	r := newReader(t, f.s, users...)
	f.ping(f.w-hour+1000, users...)
	f.leave(f.w-hour+1001, users[:3]...)
	require.NoError(t, f.s.Forget(ctx, "chat", users[3]))
	require.Equal(t, 16, f.sweep(f.w+2000).Decays)
	_, err := trim(f.s, "chat", hours.Yellow)
	require.NoError(t, err)
	f.record()
	r.requireTruth()
	require.Zero(t, r.resets)
	f.endSettling()
	f.moveWatermark(f.clock() + hour)
	f.ping(f.clock(), users...)
	f.moveWatermark(f.clock() + hour)
	require.True(t, f.sweep(f.clock()).Begun)
	r.watermark = 0
	r.requireTruth()
	for _, key := range f.companions() {
		f.remove(key)
	}
	require.NoError(t, f.client.HSet(ctx, "presence::meta", changesBit, 1).Err())
	f.s.ExpireAgreements()
	f.ping(f.clock(), users...)
	f.record()
	f.settle()
	r.requireTruth()
	require.NoError(t, f.s.DeleteNamespace(ctx, "chat"))
	r.requireNotRecorded()
}

func (f *feed) companions() (keys []string) {
	for _, key := range f.keys {
		keys = append(keys, feedKey(key), streamKey(key))
	}
	return keys
}

// TestNoRightsToStreams: live features are off and the log says what to allow, once; everything else works. They work
// as soon as it is allowed.
func TestNoRightsToStreams(t *testing.T) {
	t.Parallel()
	ctx, url := context.Background(), redistest.Start(t)
	admin := newClient(t, url)
	restrict(t, admin)
	setStreams(t, admin, false)
	var log bytes.Buffer
	s, err := redisstore.Open(redisstore.Options{
		URL: asApp(url), Timeout: longTimeout, DialTimeout: longTimeout,
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	require.NoError(t, err)
	s.Monitor(ctx)
	requireNoFeed(t, s)
	require.NoError(t, s.Ready(ctx))
	s.Monitor(ctx)
	setStreams(t, admin, true)
	s.Monitor(ctx)
	useFeed(t, startFeed(t, s, admin, 1))
	require.NoError(t, s.Close())
	require.Equal(t, 1, strings.Count(log.String(), "level=ERROR"), log.String())
	require.Contains(t, log.String(), "+@stream")
}

// TestRightsToStreamsTakenAway: a feed exists, and this server may no longer append to it. Pings are recorded, and
// readers get a reset once it may.
func TestRightsToStreamsTakenAway(t *testing.T) {
	t.Parallel()
	ctx, url := context.Background(), redistest.Start(t)
	for _, shards := range []int{1, 7} {
		for _, aware := range []bool{true, false} { // of it, before the first write
			admin := newClient(t, url)
			require.NoError(t, admin.FlushAll(ctx).Err())
			restrict(t, admin)
			f := startFeed(t, newStore(t, redisstore.Options{URL: asApp(url), Shards: shards}), admin, shards)
			f.ping(f.w, "alice", "dave")
			r := newReader(t, f.s, "alice", "bob", "carol", "dave")
			setStreams(t, admin, false)
			if aware {
				f.s.Monitor(ctx)
			} else {
				_, _ = f.s.Ping(ctx, "chat", sightingsAt(f.w, "bob")) // it may fail
				f.s.Monitor(ctx)
			}
			f.ping(f.w, "bob", "carol")
			f.leave(f.w+1, "alice")
			require.NoError(t, f.s.Forget(ctx, "chat", "dave"))
			require.Equal(t, lastseen.State{At: f.w + 1, Left: true}, lookup(t, f.s, "alice")[0])
			require.ErrorIs(t, f.s.RecordChanges(ctx, "chat", hours), store.ErrNoFeed)
			setStreams(t, admin, true)
			f.s.Monitor(ctx)
			f.record()
			f.settle()
			r.watermark = 0
			r.requireTruth()
			f.ping(f.w+2, "alice")
			r.requireTruth()
			require.Equal(t, lastseen.Green, r.told["carol"].Status)
		}
	}
}
