package redisstore_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/storetest/changes"
	"github.com/lastseen/lastseen/store/storetest/kit"
	"github.com/lastseen/lastseen/store/storetest/redistest"
	"github.com/lastseen/lastseen/store/storetest/redistest/stores"
)

// entryIDs returns the IDs of all entries of a shard.
func (f *feed) entryIDs(key string) (ids []string) {
	f.Helper()
	entries, err := f.client.XRange(context.Background(), streamKey(key), "-", "+").Result()
	require.NoError(f, err)
	for _, entry := range entries {
		ids = append(ids, entry.ID)
	}
	return ids
}

func (f *feed) deleteEntry(i int) {
	f.Helper()
	id := f.entryIDs(f.keys[0])[i]
	require.NoError(f, f.client.XDel(context.Background(), streamKey(f.keys[0]), id).Err())
}

func (f *feed) remove(keys ...string) {
	f.Helper()
	require.NoError(f, f.client.Del(context.Background(), keys...).Err())
}

// expire lets keys expire, and waits until they have.
func (f *feed) expire(keys ...string) {
	f.Helper()
	for _, key := range keys {
		require.NoError(f, f.client.PExpire(context.Background(), key, time.Millisecond).Err())
	}
	stores.Eventually(f, func() bool { return f.client.Exists(context.Background(), keys...).Val() == 0 })
}

// TestLostEntries: whatever Redis lost of a feed, a reader who has not read it gets a reset, at the first read. One who
// has read everything misses nothing, with or without a reset.
func TestLostEntries(t *testing.T) {
	t.Parallel()
	url := redistest.Start(t)
	const stream, hash = "presence:changes:{presence:chat}", "presence:feed:{presence:chat}"
	for name, test := range map[string]struct {
		lose func(*feed)
		gone bool // the feed is no longer recorded
	}{
		"the first":   {lose: func(f *feed) { f.deleteEntry(1) }},
		"one between": {lose: func(f *feed) { f.deleteEntry(2) }},
		"the last":    {lose: func(f *feed) { f.deleteEntry(3) }},
		"trimmed":     {lose: func(f *feed) { f.client.XTrimMaxLen(context.Background(), stream, 1) }},
		"all": {lose: func(f *feed) {
			f.client.XTrimMaxLen(context.Background(), stream, 0)
		}},
		"stream deleted": {lose: func(f *feed) { f.remove(stream) }},
		"stream expired": {lose: func(f *feed) { f.expire(stream) }},
		"renamed":        {lose: func(f *feed) { f.client.Rename(context.Background(), stream, "presence::x") }},
		"hash deleted":   {lose: func(f *feed) { f.remove(hash) }, gone: true},
		"both deleted":   {lose: func(f *feed) { f.remove(hash, stream) }, gone: true},
		"both expired":   {lose: func(f *feed) { f.expire(hash, stream) }, gone: true},
		"everything":     {lose: func(f *feed) { f.client.FlushAll(context.Background()) }, gone: true},
	} {
		t.Run(name, func(t *testing.T) {
			client := stores.NewClient(t, url)
			require.NoError(t, client.FlushAll(context.Background()).Err())
			f := startFeed(t, stores.New(t, redisstore.Options{URL: url}), client, 1)
			f.ping(f.w, "alice")
			behind := newReader(t, f.s, "alice", "bob", "carol")
			behind.limit = 10
			f.ping(f.w, "bob")
			f.leave(f.w+1, "alice")
			f.ping(f.w, "carol")
			current := newReader(t, f.s, "alice", "bob", "carol")
			test.lose(f)
			f.passMillisecond() // a new stream in the same one begins with IDs that were lost, which is another reset
			if test.gone {
				behind.requireNotRecorded()
				current.requireNotRecorded()
				f.ping(f.w+1, "bob")
				require.Zero(t, client.Exists(context.Background(), hash).Val(), "a write does not begin a feed")
				f.record()
			}
			require.True(t, behind.read().Reset)
			for _, r := range []*reader{behind, current} {
				r.watermark = 0
				r.requireTruth()
			}
			f.ping(f.w+2, "alice")
			f.leave(f.w+3, "carol")
			behind.requireTruth()
			current.requireTruth()
			require.Equal(t, 1, behind.resets)
			require.Equal(t, []lastseen.Status{lastseen.Green}, behind.of("alice"))
			if test.gone {
				require.Equal(t, 1, current.resets)
			}
		})
	}
}

// TestLostSet: if Redis lost the users alone, readers get one reset from the next write or advance. If the last user
// was deleted, they do not.
func TestLostSet(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		lose, find func(*feed)
		resets     int
	}{
		"advance": {func(f *feed) { f.remove("presence:chat") }, func(f *feed) { f.advance(f.w + 1) }, 1},
		"ping":    {func(f *feed) { f.remove("presence:chat") }, func(f *feed) { f.ping(f.w+1, "bob") }, 1},
		"device": {func(f *feed) { f.remove("presence:chat") }, func(f *feed) {
			_, err := f.s.RecordDevices(context.Background(), "chat", time.Minute, []store.DeviceEvent{
				{User: "bob", ID: "tab", Kind: lastseen.Web, At: f.w + 1},
			})
			require.NoError(f, err)
		}, 1},
		"forgotten": {func(f *feed) {
			for _, user := range []string{"alice", "somebody"} {
				require.NoError(f, f.s.Forget(context.Background(), "chat", user))
			}
			require.Zero(f, f.client.Exists(context.Background(), "presence:chat").Val())
		}, func(f *feed) { f.advance(f.w + 1) }, 0},
		"trimmed": {func(f *feed) {
			f.moveWatermark(f.clock())
			for _, user := range []string{"alice", "somebody"} {
				f.client.ZAdd(context.Background(), "presence:chat", redis.Z{Member: user, Score: 1})
			}
			_, err := f.s.Trim(context.Background(), "chat", store.TrimQuery{Age: time.Hour, Now: f.clock(), All: true})
			require.NoError(f, err)
			require.Zero(f, f.client.Exists(context.Background(), "presence:chat").Val())
		}, func(f *feed) { f.advance(f.w + 1) }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, advanced := range []bool{false, true} {
				f := newFeed(t, 1)
				f.ping(f.w, "alice")
				if advanced {
					f.advance(f.w)
				}
				r := newReader(t, f.s, "alice", "bob")
				test.lose(f)
				test.find(f)
				r.poll()
				if name != "trimmed" { // of which readers are not told
					r.requireTruth()
				}
				f.advance(f.w + 2)
				f.ping(f.w+3, "bob")
				f.advance(f.w + 3)
				r.poll()
				require.Equal(t, test.resets, r.resets)
				require.Equal(t, lastseen.Green, r.told["bob"].Status)
			}
		})
	}
}

// TestHalfWrittenChange: the write is recorded, but Redis refuses its entry. The next ping finds nothing to change, so
// readers must learn of it in another way.
func TestHalfWrittenChange(t *testing.T) {
	t.Parallel()
	f := newFeed(t, 1)
	r := newReader(t, f.s, "alice", "bob")
	stream := streamKey("presence:chat")
	f.remove(stream)
	require.NoError(t, f.client.Set(context.Background(), stream, "not ours", 0).Err())
	_, _ = f.s.Ping(context.Background(), "chat", kit.Events(f.w, "alice"))
	f.remove(stream)
	f.ping(f.w, "alice")
	r.requireTruth()
	f.ping(f.w, "bob")
	r.requireTruth()
	require.Equal(t, lastseen.Green, r.told["alice"].Status)
	require.Equal(t, lastseen.Green, r.told["bob"].Status)
}

// TestForeignEntry: an entry that another program added is never shown, and is at most a reset.
func TestForeignEntry(t *testing.T) {
	t.Parallel()
	f := newFeed(t, 1)
	f.ping(f.w, "alice")
	r := newReader(t, f.s, "alice", "bob")
	require.NoError(t, f.client.XAdd(context.Background(),
		&redis.XAddArgs{Stream: streamKey("presence:chat"), Values: []string{"hello", "world"}}).Err())
	require.NoError(t, r.read().Err)
	f.ping(f.w, "bob")
	f.leave(f.w+1, "alice")
	newReader(t, f.s, "alice", "bob").requireTruth()
	r.requireTruth()
	f.ping(f.w+2, "alice")
	r.requireTruth()
}

// TestForgottenFeedScripts: Redis loses them when it restarts or fails over.
func TestForgottenFeedScripts(t *testing.T) {
	t.Parallel()
	eachSharding(t, func(t *testing.T, f *feed) {
		flush := func() { require.NoError(t, f.client.ScriptFlush(context.Background()).Err()) }
		users := stores.Numbered("u", 20)
		r := newReader(t, f.s, users...)
		for i, step := range []func(){
			f.record,
			func() { f.ping(f.w-hour+1000, users...) },
			func() { f.leave(f.w-hour+1001, users[:10]...) },
			r.poll,
			func() { f.advance(f.w + 2000) },
			func() { require.NoError(t, f.s.Forget(context.Background(), "chat", users[11])) },
			func() { _, err := stores.Trim(f.s, 3*time.Hour); require.NoError(t, err) },
			func() { newReader(t, f.s, users...) },
			r.poll,
		} {
			flush()
			step()
			require.False(t, t.Failed(), i)
		}
		flush()
		r.requireTruth()
		require.Zero(t, r.resets)
		require.Len(t, r.changes, 20+10+10+1)
	})
}

// TestChangesWhileRedisLosesKeys: readers miss nothing without a reset while Redis loses entries, streams, scripts, or
// the feed of a shard.
func TestChangesWhileRedisLosesKeys(t *testing.T) {
	t.Parallel()
	for _, shards := range testenv.Variants(1, 7) {
		t.Run(fmt.Sprint(shards), func(t *testing.T) {
			t.Parallel()
			url := redistest.Start(t)
			l := &loser{T: t, client: stores.NewClient(t, url), shards: shards}
			changes.RunFaulty(t, func(testing.TB) kit.Breakable {
				require.NoError(t, l.client.FlushAll(context.Background()).Err())
				l.faults = 0
				s := stores.New(t, redisstore.Options{URL: url, Shards: shards})
				return kit.Breakable{Store: s, Talks: true, Fault: l.lose}
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
