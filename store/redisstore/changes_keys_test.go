package redisstore_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/storetest/kit"
	"github.com/lastseen/lastseen/store/storetest/redistest"
	"github.com/lastseen/lastseen/store/storetest/redistest/stores"
)

// TestKeysOfFeeds: operators back them up and allow them by these names. All expire with the feed, and none is left
// when the namespace is deleted.
func TestKeysOfFeeds(t *testing.T) {
	ctx, url, client := stores.StartRedis(t)
	for _, shards := range []int{1, 7} {
		s := stores.New(t, redisstore.Options{URL: url, Shards: shards})
		users := stores.Numbered("u", 50) // in all shards
		require.NoError(t, stores.Ping(s, "chat", users...))
		before := client.Keys(ctx, "*").Val()
		require.Len(t, before, 2*shards+2)
		f := startFeed(t, s, client, shards)
		f.ping(f.w, users...)
		want := before
		for _, key := range f.keys {
			want = append(want, feedKey(key), streamKey(key))
		}
		require.ElementsMatch(t, want, client.Keys(ctx, "*").Val())
		require.Len(t, client.HGetAll(ctx, "presence::meta").Val(), 1)

		require.NoError(t, s.DeleteNamespace(ctx, "chat"))
		require.Empty(t, client.Keys(ctx, "*").Val(), "nothing is left behind")
		newReaderOf(t, s).requireNotRecorded()
	}
}

// TestNamespaceOfAFeedDeletedByAnotherServer: what this server pings is listed again, and no feed is left to append to.
func TestNamespaceOfAFeedDeletedByAnotherServer(t *testing.T) {
	t.Parallel()
	ctx, url := context.Background(), redistest.Start(t)
	for _, shards := range []int{1, 7} {
		client := stores.NewClient(t, url)
		o := redisstore.Options{URL: url, Shards: shards}
		a, b := stores.New(t, o), stores.New(t, o)
		f := startFeed(t, a, client, shards)
		r := newReader(t, b, "alice", "bob")
		require.NoError(t, stores.Ping(b, "chat", "somebody"))
		require.NoError(t, b.DeleteNamespace(ctx, "chat"))
		f.ping(f.w, "alice")
		require.Equal(t, []store.NamespaceInfo{{Name: "chat", Newest: f.w}}, kit.Namespaces(t, b, 10))
		r.requireNotRecorded()
		f.record()
		f.ping(f.w, "bob")
		r.watermark = 0
		r.requireTruth()
		require.Equal(t, 1, r.resets)
		require.Equal(t, lastseen.Green, r.told["alice"].Status)
		require.NoError(t, b.DeleteNamespace(ctx, "chat"))
	}
}

// newReaderOf returns a reader that has read nothing.
func newReaderOf(t *testing.T, s store.Store, users ...string) *reader {
	return &reader{T: t, s: s, users: users, limit: 2}
}

// TestFeedsExpire: after a crash of all servers nothing is left of a feed.
func TestFeedsExpire(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	eachSharding(t, func(t *testing.T, f *feed) {
		expireSoon := func() {
			f.each(func(key string) error {
				return f.client.PExpire(ctx, feedKey(key), store.ChangesKept/2).Err()
			})
		}
		requireTTL := func(least, most time.Duration) {
			for _, key := range f.keys {
				for _, side := range []string{feedKey(key), streamKey(key)} {
					left := f.client.PTTL(ctx, side).Val()
					require.Greater(t, left, least, side)
					require.LessOrEqual(t, left, most, side)
				}
			}
		}
		users := stores.Numbered("u", 50)
		expireSoon()
		f.ping(f.w, users...)
		requireTTL(0, store.ChangesKept)
		f.quickly(store.ChangesKept/4, func() { f.record() })
		requireTTL(store.ChangesKept/2, store.ChangesKept)
		expireSoon()
		f.leave(f.w+1, users...)
		f.advance(f.clock())
		for _, key := range f.keys {
			require.LessOrEqual(t, f.client.PTTL(ctx, feedKey(key)).Val(), store.ChangesKept/2, "only a renewal renews")
		}
		// A feed that begins again has new streams.
		f.record()
		f.moveWatermark(f.clock() + hour)
		f.ping(f.w-hour, users...)
		requireTTL(store.ChangesKept/2, store.ChangesKept)
	})
}

// TestOldEntriesAreTrimmed: they are kept for ChangesKept.
func TestOldEntriesAreTrimmed(t *testing.T) {
	testenv.SkipWithRace(t, "it is about what Redis does")
	t.Parallel()
	ctx := context.Background()
	eachSharding(t, func(t *testing.T, f *feed) {
		const n = 5000 // Redis trims whole nodes of a hundred entries
		old := f.clock().Add(-2 * store.ChangesKept)
		for _, key := range f.keys {
			f.remove(streamKey(key))
			pipe := f.client.Pipeline()
			for i := range n {
				pipe.Do(ctx, "XADD", streamKey(key), fmt.Sprintf("%d-%d", old, i), "x", "y")
			}
			_, err := pipe.Exec(ctx)
			require.NoError(t, err)
		}
		f.ping(f.w, stores.Numbered("u", 50)...)
		f.advance(f.clock())
		require.Less(t, f.entries(), int64(50+200*len(f.keys)))
		require.GreaterOrEqual(t, f.entries(), int64(50))
	})
}

// TestSizeOfEntries: a feed may keep MaxChanges of them in each shard, so their size is promised in docs/capacity.md.
func TestSizeOfEntries(t *testing.T) {
	testenv.SkipWithRace(t, "it is about what Redis does")
	t.Parallel()
	f := newFeed(t, 1)
	const n = 10_000
	users := make([]string, n)
	for i := range users {
		users[i] = fmt.Sprintf("u%07d", i)
	}
	for i := 0; i < n; i += 50 { // as the coalescer of a server under load would
		f.ping(f.w, users[i:i+50]...)
	}
	require.Equal(t, int64(n), f.entries())
	size, err := f.client.MemoryUsage(context.Background(), streamKey("presence:chat"), 0).Result()
	require.NoError(t, err)
	t.Logf("%.1f bytes an entry", float64(size)/n)
	require.LessOrEqual(t, size, int64(64*n))
}

// TestEndedFeedLeavesTheHash: a namespace whose feed has ended costs a ping as much as before.
func TestEndedFeedLeavesTheHash(t *testing.T) {
	f := newFeed(t, 1)
	f.ping(f.w, "alice")
	require.Equal(t, "-fs", stores.Sides(t, f.client))
	for _, write := range []func(lastseen.Instant, ...string){f.ping, f.leave} {
		f.remove(feedKey(stores.Chat), streamKey(stores.Chat))
		write(f.w+1, "alice")
		require.Equal(t, "-", stores.Sides(t, f.client))
		f.record()
		require.Equal(t, "-fs", stores.Sides(t, f.client))
		f.ping(f.w, "bob", "carol")
	}
}
