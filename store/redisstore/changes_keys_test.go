package redisstore_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

const changesBit = "chat:changes"

// TestKeysOfFeeds: operators back them up and allow them by these names. All expire with the feed, and none is left
// when the namespace is deleted.
func TestKeysOfFeeds(t *testing.T) {
	t.Parallel()
	ctx, url := context.Background(), redistest.Start(t)
	client := newClient(t, url)
	for _, shards := range []int{1, 7} {
		s := newStore(t, redisstore.Options{URL: url, Shards: shards})
		users := numbered("u", 50) // in all shards
		require.NoError(t, ping(s, "chat", users...))
		before := client.Keys(ctx, "*").Val()
		require.Len(t, before, shards+2)
		f := startFeed(t, s, client, shards)
		f.ping(f.w, users...)
		want := before
		for _, key := range f.keys {
			want = append(want, feedKey(key), streamKey(key))
		}
		require.ElementsMatch(t, want, client.Keys(ctx, "*").Val())
		require.Len(t, client.HGetAll(ctx, "presence::meta").Val(), 2)
		bit, err := client.HGet(ctx, "presence::meta", changesBit).Int64()
		require.NoError(t, err)
		require.InDelta(t, int64(f.clock()), bit, float64(time.Hour.Milliseconds()))
		infos, err := s.Namespaces(ctx, "", 10)
		require.NoError(t, err)
		require.Len(t, infos, 1, "the bit is not a namespace")

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
		client := newClient(t, url)
		o := redisstore.Options{URL: url, Shards: shards}
		a, b := newStore(t, o), newStore(t, o)
		f := startFeed(t, a, client, shards)
		r := newReader(t, b, "alice", "bob")
		require.NoError(t, ping(b, "chat", "somebody"))
		require.NoError(t, b.DeleteNamespace(ctx, "chat"))
		f.ping(f.w, "alice")
		infos, err := b.Namespaces(ctx, "", 10)
		require.NoError(t, err)
		require.Equal(t, []store.NamespaceInfo{{Name: "chat", Newest: f.w}}, infos)
		r.requireNotRecorded()
		f.record()
		f.settle()
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

// TestFeedsExpire: after a crash of all servers nothing is left of a feed but its bit.
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
				for _, companion := range []string{feedKey(key), streamKey(key)} {
					left := f.client.PTTL(ctx, companion).Val()
					require.Greater(t, left, least, companion)
					require.LessOrEqual(t, left, most, companion)
				}
			}
		}
		users := numbered("u", 50)
		expireSoon()
		f.ping(f.w, users...)
		requireTTL(0, store.ChangesKept)
		f.quickly(store.ChangesKept/4, func() { f.record() })
		requireTTL(store.ChangesKept/2, store.ChangesKept)
		expireSoon()
		f.leave(f.w+1, users...)
		f.sweep(f.clock())
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
	t.Parallel()
	ctx := context.Background()
	eachSharding(t, func(t *testing.T, f *feed) {
		const n = 5000 // Redis trims whole nodes of a hundred entries
		old := f.clock().Add(-2 * store.ChangesKept)
		for _, key := range f.keys {
			pipe := f.client.Pipeline()
			for i := range n {
				pipe.Do(ctx, "XADD", streamKey(key), fmt.Sprintf("%d-%d", old, i), "x", "y")
			}
			_, err := pipe.Exec(ctx)
			require.NoError(t, err)
		}
		f.ping(f.w, numbered("u", 50)...)
		f.sweep(f.clock())
		require.Less(t, f.entries(), int64(50+200*len(f.keys)))
		require.GreaterOrEqual(t, f.entries(), int64(50))
	})
}

// TestSizeOfEntries: a feed may keep MaxChanges of them in each shard, so their size is promised in docs/operations.md.
func TestSizeOfEntries(t *testing.T) {
	t.Parallel()
	url := redistest.Start(t)
	f := startFeed(t, newStore(t, redisstore.Options{URL: url}), newClient(t, url), 1)
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

// TestBitCleanup: a namespace whose feed has ended costs a ping as much as before, once no server can be about to begin
// the feed.
func TestBitCleanup(t *testing.T) {
	t.Parallel()
	ctx, url := context.Background(), redistest.Start(t)
	client := newClient(t, url)
	for name, test := range map[string]struct {
		age     time.Duration
		removed bool
	}{
		"young":       {store.ChangesKept/2 - time.Minute, false},
		"old":         {store.ChangesKept - time.Minute, true},
		"future":      {-store.ChangesKept/2 + time.Minute, false},
		"far future":  {-store.ChangesKept/2 - time.Minute, true},
		"very future": {-10 * 365 * 24 * time.Hour, true},
	} {
		require.NoError(t, client.FlushAll(ctx).Err())
		f := startFeed(t, newStore(t, redisstore.Options{URL: url}), client, 1)
		set := strconv.FormatInt(int64(f.clock().Add(-test.age)), 10)
		require.NoError(t, client.HSet(ctx, "presence::meta", changesBit, set).Err())
		f.ping(f.w, "alice")
		require.Equal(t, set, client.HGet(ctx, "presence::meta", changesBit).Val(), "the feed goes on")
		require.Equal(t, int64(1), f.entries())
		f.remove(feedKey("presence:chat"), streamKey("presence:chat"))
		f.s.ExpireAgreements() // so that it reads the bit
		if test.removed {
			require.Eventually(t, func() bool {
				f.ping(f.w+1, "alice")
				return !client.HExists(ctx, "presence::meta", changesBit).Val()
			}, longTimeout, time.Millisecond, name)
		} else {
			f.ping(f.w+1, "alice")
			f.leave(f.w+2, "alice")
			require.Equal(t, set, client.HGet(ctx, "presence::meta", changesBit).Val(), name)
		}
		f.record()
		fresh, err := client.HGet(ctx, "presence::meta", changesBit).Int64()
		require.NoError(t, err)
		require.InDelta(t, int64(f.clock()), fresh, float64(time.Minute.Milliseconds()),
			"a new feed has a new bit, which no server takes for the old one")
		f.ping(f.w, "bob")
		require.Equal(t, int64(1), f.entries(), "and this server knows it at once")
	}
}

// TestNoFeedForPrefixesWithBraces: the companions of a key have to be in its slot, which braces would decide.
func TestNoFeedForPrefixesWithBraces(t *testing.T) {
	t.Parallel()
	url := redistest.Start(t)
	for _, prefix := range []string{"{app}:", "app{", "app}:", "{}"} {
		var log bytes.Buffer
		s, err := redisstore.Open(redisstore.Options{
			URL: url, Prefix: prefix, Timeout: longTimeout, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		})
		require.NoError(t, err)
		requireNoFeed(t, s)
		require.NoError(t, s.Close())
		require.Equal(t, 1, strings.Count(log.String(), "level=ERROR"), log.String())
	}
	require.Empty(t, newClient(t, url).Keys(context.Background(), "*feed*").Val())
}

// requireNoFeed requires that the namespace chat works, but cannot have a feed.
func requireNoFeed(t *testing.T, s *redisstore.Store) {
	t.Helper()
	ctx := context.Background()
	require.NoError(t, ping(s, "chat", "alice"))
	require.ErrorIs(t, s.RecordChanges(ctx, "chat", hours), store.ErrNoFeed)
	require.Error(t, newReaderOf(t, s).read().Err)
	_, err := s.SnapshotChanges(ctx, "chat", []string{"alice"})
	require.Error(t, err)
	step := &store.ChangesSweep{Namespace: "chat", Thresholds: hours, Now: base}
	s.SweepChanges(ctx, []*store.ChangesSweep{step})
	require.Error(t, step.Err)
	for name, call := range calls(s, "chat") {
		require.NoError(t, call(), name)
	}
	require.NoError(t, ping(s, "chat", "bob"))
	require.Equal(t, []lastseen.State{{At: base}}, lookup(t, s, "bob"))
}

// TestNoFeedForSharedSets: what other programs write would not be in it.
func TestNoFeedForSharedSets(t *testing.T) {
	t.Parallel()
	url := redistest.Start(t)
	for name, layout := range map[string]redisstore.Layout{
		"key": {Key: "presence"}, "unit": {Unit: redisstore.Milliseconds}, "seconds": {Unit: redisstore.Seconds},
	} {
		require.NoError(t, newClient(t, url).FlushAll(context.Background()).Err(), name)
		requireNoFeed(t, newSharedStore(t, url, layout))
	}
	require.NoError(t, newClient(t, url).FlushAll(context.Background()).Err())
	requireNoFeed(t, newStore(t, redisstore.Options{URL: url, Unit: redisstore.Seconds}))
}
