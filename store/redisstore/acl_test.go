package redisstore_test

import (
	"context"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/storetest"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// rights is what docs/operations.md says a Redis user needs.
const rights = "~presence:* +@sortedset +@scripting +@hash +@string +@connection " +
	"+unlink +exists +pttl +pexpire +info +time +cluster|slots +asking +@stream +publish +subscribe &presence::signals*"

// restrict makes the user app, who has only these rights.
func restrict(t *testing.T, client *redis.Client) {
	t.Helper()
	rule := append([]any{"ACL", "SETUSER", "app", "on", ">secret"}, words(rights)...)
	require.NoError(t, client.Do(context.Background(), rule...).Err())
}

func words(text string) (all []any) {
	for _, word := range strings.Fields(text) {
		all = append(all, word)
	}
	return all
}

// asApp is the URL for the user app.
func asApp(url string) string { return strings.Replace(url, "://", "://app:secret@", 1) }

// everything calls every method, except those of feeds, of devices, of availability and of calls.
func everything(t *testing.T, s *redisstore.Store) {
	t.Helper()
	ctx, m := context.Background(), storetest.MethodsOf(s, "chat")
	for name, call := range storetest.All(m.Presence, m.Contacts, storetest.OtherMethods(s)) {
		require.NoError(t, call(ctx), name)
	}
	_, err := s.Now(ctx)
	require.NoError(t, err)
	require.NoError(t, s.Signal(ctx, store.Signal{Kind: "k", Namespace: "chat", User: "alice"}))
}

// TestForbiddenNamespace: a key that the user may not read makes its namespace fail, and hides no other.
func TestForbiddenNamespace(t *testing.T) {
	_, url, client := start(t)
	restrict(t, client)
	layouts := map[string]redisstore.Layout{"elsewhere": {Key: "elsewhere"}}
	require.NoError(t, ping(newStore(t, redisstore.Options{URL: url, Layouts: layouts}), "elsewhere", "alice"))
	s := newStore(t, redisstore.Options{URL: asApp(url), Layouts: layouts})
	require.NoError(t, ping(s, "chat", "alice"))
	require.ErrorIs(t, ping(s, "elsewhere", "alice"), store.ErrUnavailable)
	require.Equal(t, []store.NamespaceInfo{{Name: "chat", Newest: base}, {Name: "elsewhere"}}, namespacesOf(t, s))
}

// testLeastRightsInCluster: they are, also when slots move.
func testLeastRightsInCluster(t *testing.T, c *redistest.Cluster) {
	for _, primary := range c.Primaries {
		restrict(t, primary.Client(t))
	}
	s := newStore(t, redisstore.Options{URL: asApp(c.URL()), Shards: 16})
	for name, call := range allCalls(s, "chat") {
		require.NoError(t, call(), name)
	}
	// Scripts with several keys fail while slots move.
	require.NoError(t, s.DeleteNamespace(context.Background(), "chat"))
	everything(t, s)
	for _, key := range []string{"presence:chat:1", "presence::namespaces"} {
		slot, owner := c.Slot(t, key), c.Owner(t, key)
		to := c.Primaries[0]
		if owner == to {
			to = c.Primaries[1]
		}
		c.MoveSlot(t, slot, to, func() { everything(t, s) })
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
	ctx, users := context.Background(), numbered("u", 20)
	r := newReader(t, f.s, users...)
	f.ping(f.w-hour+1000, users...)
	f.leave(f.w-hour+1001, users[:3]...)
	require.NoError(t, f.s.Forget(ctx, "chat", users[3]))
	require.Equal(t, 16, f.sweep(f.w+2000).Decays)
	_, err := trim(f.s, hours.Yellow)
	require.NoError(t, err)
	f.record()
	r.requireTruth()
	require.Zero(t, r.resets)
	f.moveWatermark(f.clock() + hour)
	f.ping(f.clock(), users...)
	f.moveWatermark(f.clock() + hour)
	require.True(t, f.sweep(f.clock()).Begun)
	r.watermark = 0
	r.requireTruth()
	for _, key := range f.sideKeys() {
		f.remove(key)
	}
	f.s.ExpireAgreements()
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
	admin := newClient(t, url)
	restrict(t, admin)
	setStreams(t, admin, false)
	s, log := newLoggedStore(t, redisstore.Options{URL: asApp(url)})
	s.Monitor(ctx)
	require.NoError(t, ping(s, "chat", "alice"))
	require.ErrorIs(t, s.RecordChanges(ctx, "chat", hours), store.ErrNoFeed)
	everything(t, s)
	require.NoError(t, s.Ready(ctx))
	s.Monitor(ctx)
	setStreams(t, admin, true)
	s.Monitor(ctx)
	useFeed(t, startFeed(t, s, admin, 1))
	require.NoError(t, s.Close())
	require.Equal(t, 1, log.count("level=ERROR"), log)
	require.Positive(t, log.count("+@stream"))
}

// TestRightsToStreamsTakenAway: a feed exists, and this server may no longer append to it. Pings are recorded, and
// readers get a reset once it may.
func TestRightsToStreamsTakenAway(t *testing.T) {
	t.Parallel()
	ctx, url := context.Background(), redistest.Start(t)
	for _, shards := range testenv.Variants(7, 1) {
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
			record(t, f.s, onDevice("carol", "tab", f.w))
			require.NoError(t, f.s.Forget(ctx, "chat", "dave"))
			require.Equal(t, lastseen.State{At: f.w + 1, Left: true}, lookup(t, f.s, "alice")[0])
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
