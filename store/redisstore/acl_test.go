package redisstore_test

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/storetest/kit"
	"github.com/lastseen/lastseen/store/storetest/redistest"
	"github.com/lastseen/lastseen/store/storetest/redistest/stores"
)

// TestForbiddenNamespace: a key that the user may not read makes its namespace fail, and hides no other.
func TestForbiddenNamespace(t *testing.T) {
	_, url, client := stores.StartRedis(t)
	stores.Restrict(t, client)
	layouts := map[string]redisstore.Layout{"elsewhere": {Key: "elsewhere"}}
	require.NoError(t, stores.Ping(stores.New(t, redisstore.Options{URL: url, Layouts: layouts}), "elsewhere", "alice"))
	s := stores.New(t, redisstore.Options{URL: stores.AsApp(url), Layouts: layouts})
	require.NoError(t, stores.Ping(s, "chat", "alice"))
	require.ErrorIs(t, stores.Ping(s, "elsewhere", "alice"), store.ErrUnavailable)
	require.Equal(t, []store.NamespaceInfo{{Name: "chat", Newest: kit.Base}, {Name: "elsewhere"}},
		kit.Namespaces(t, s, 10))
}

// testLeastRightsInCluster: they are, also when slots move.
func testLeastRightsInCluster(t *testing.T, c *redistest.Cluster) {
	for _, primary := range c.Primaries {
		stores.Restrict(t, primary.Client(t))
	}
	s := stores.New(t, redisstore.Options{URL: stores.AsApp(c.URL()), Shards: 16})
	for name, call := range stores.AllCalls(s, "chat") {
		require.NoError(t, call(), name)
	}
	// Scripts with several keys fail while slots move.
	require.NoError(t, s.DeleteNamespace(context.Background(), "chat"))
	stores.RequireAll(t, s)
	for _, key := range []string{"presence:chat:1", "presence::namespaces"} {
		c.MoveSlot(t, c.Slot(t, key), c.Next(t, key), func() { stores.RequireAll(t, s) })
	}
}

// setStreams gives the user app the right to use streams, or takes it.
func setStreams(t *testing.T, client *redis.Client, allowed bool) {
	t.Helper()
	right := map[bool]string{true: "+@stream", false: "-@stream"}[allowed]
	require.NoError(t, client.Do(context.Background(), "ACL", "SETUSER", "app", right).Err())
}

// useFeed does everything that can be done with a feed.
func useFeed(t *testing.T, f *feed) {
	t.Helper()
	ctx, users := context.Background(), stores.Numbered("u", 20)
	r := newReader(t, f.s, users...)
	f.ping(f.w-hour+1000, users...)
	f.leave(f.w-hour+1001, users[:3]...)
	require.NoError(t, f.s.Forget(ctx, "chat", users[3]))
	require.Equal(t, 16, f.advance(f.w+2000).Transitions)
	_, err := stores.Trim(f.s, hours.Yellow)
	require.NoError(t, err)
	f.record()
	r.requireTruth()
	require.Zero(t, r.resets)
	f.moveWatermark(f.clock() + hour)
	f.ping(f.clock(), users...)
	f.moveWatermark(f.clock() + hour)
	require.True(t, f.advance(f.clock()).Begun)
	r.watermark = 0
	r.requireTruth()
	for _, key := range f.sideKeys() {
		f.remove(key)
	}
	f.s.ExpireMetaCache()
	f.ping(f.clock(), users...)
	f.record()
	r.requireTruth()
	require.NoError(t, f.s.DeleteNamespace(ctx, "chat"))
	r.requireNotRecorded()
}

func (f *feed) sideKeys() (keys []string) {
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
	admin := stores.NewClient(t, url)
	stores.Restrict(t, admin)
	setStreams(t, admin, false)
	s, log := stores.NewLogged(t, redisstore.Options{URL: stores.AsApp(url)})
	s.Monitor(ctx)
	require.NoError(t, stores.Ping(s, "chat", "alice"))
	require.ErrorIs(t, s.RecordChanges(ctx, "chat", hours), store.ErrNoFeed)
	stores.RequireAll(t, s)
	require.NoError(t, s.Ready(ctx))
	s.Monitor(ctx)
	setStreams(t, admin, true)
	s.Monitor(ctx)
	useFeed(t, startFeed(t, s, admin, 1))
	require.NoError(t, s.Close())
	require.Equal(t, 1, log.Count("level=ERROR"), log)
	require.Positive(t, log.Count("+@stream"))
}

// TestRightsToStreamsTakenAway: a feed exists, and this server may no longer append to it. Pings are recorded, and
// readers get a reset once it may.
func TestRightsToStreamsTakenAway(t *testing.T) {
	t.Parallel()
	ctx, url := context.Background(), redistest.Start(t)
	for _, shards := range testenv.Variants(7, 1) {
		for _, aware := range []bool{true, false} { // of it, before the first write
			admin := stores.NewClient(t, url)
			require.NoError(t, admin.FlushAll(ctx).Err())
			stores.Restrict(t, admin)
			f := startFeed(t, stores.New(t, redisstore.Options{URL: stores.AsApp(url), Shards: shards}), admin, shards)
			f.ping(f.w, "alice", "dave")
			r := newReader(t, f.s, "alice", "bob", "carol", "dave")
			setStreams(t, admin, false)
			if aware {
				f.s.Monitor(ctx)
			} else {
				_, _ = f.s.Ping(ctx, "chat", kit.Events(f.w, "bob")) // it may fail
				f.s.Monitor(ctx)
			}
			f.ping(f.w, "bob", "carol")
			f.leave(f.w+1, "alice")
			stores.Record(t, f.s, stores.OnDevice("carol", "tab", f.w))
			require.NoError(t, f.s.Forget(ctx, "chat", "dave"))
			require.Equal(t, lastseen.State{At: f.w + 1, Left: true}, kit.Lookup(t, f.s, "alice")[0])
			require.ErrorIs(t, f.s.RecordChanges(ctx, "chat", hours), store.ErrNoFeed)
			setStreams(t, admin, true)
			f.s.Monitor(ctx)
			f.record()
			r.watermark = 0
			r.requireTruth()
			f.ping(f.w+2, "alice")
			r.requireTruth()
			require.Equal(t, lastseen.Green, r.told["carol"].Status)
		}
	}
}
