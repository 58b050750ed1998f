package keys

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/storetest"
	"github.com/lastseen/lastseen/store/storetest/kit"
	"github.com/lastseen/lastseen/store/storetest/redistest"
	"github.com/lastseen/lastseen/store/storetest/redistest/stores"
)

// TestConformanceOfSharedSets: served in place, a set keeps every promise that our own sets keep.
func TestConformanceOfSharedSets(t *testing.T) {
	t.Parallel()
	url := redistest.Start(t)
	var n atomic.Int64
	for _, o := range testenv.Variants(
		redisstore.Options{Unit: redisstore.Seconds, Shards: 7},
		redisstore.Options{Layouts: map[string]redisstore.Layout{"chat": {Unit: redisstore.Milliseconds}}},
	) {
		t.Run(cmp.Or(string(o.Unit), "milliseconds"), func(t *testing.T) {
			t.Parallel()
			storetest.RunWithoutFeed(t, func(t testing.TB) store.Store {
				o.URL, o.Prefix = url, fmt.Sprintf("test%d:", n.Add(1))
				return stores.New(t, o)
			})
		})
	}
}

// TestNone: sets that other programs write have no feeds, devices, contacts, availability or calls. Nor have prefixes
// with braces, which would decide the slots of what belongs to a key; that is logged.
func TestNone(t *testing.T) {
	ctx, url, client := stores.StartRedis(t)
	for name, o := range map[string]redisstore.Options{
		"key":          {Layouts: map[string]redisstore.Layout{"chat": {Key: "presence"}}},
		"milliseconds": {Layouts: map[string]redisstore.Layout{"chat": {Unit: redisstore.Milliseconds}}},
		"seconds":      {Layouts: map[string]redisstore.Layout{"chat": {Unit: redisstore.Seconds}}},
		"all seconds":  {Unit: redisstore.Seconds},
		"{app}:":       {}, "app{": {}, "app}:": {}, "{}": {},
	} {
		t.Run(name, func(t *testing.T) {
			braces := strings.ContainsAny(name, "{}")
			if braces {
				o.Prefix = name
			}
			o.URL = url
			s, log := stores.NewLogged(t, o)
			storetest.RunNone(t, func(testing.TB) store.Store {
				require.NoError(t, s.DeleteNamespace(ctx, "chat"))
				return s
			})
			require.Equal(t, braces, log.Count("level=ERROR") == 1, log)
			require.Equal(t, braces, log.Count("devices, availability and contacts") == 1)
			for _, key := range client.Keys(ctx, "*").Val() {
				require.NotRegexp(t, "feed|device|contact|details|call", key)
			}
		})
	}
}

// tutorial is the program of the well-known tutorial: it keeps whole seconds in a sorted set of its
// own, and knows nothing of us.
type tutorial struct {
	client *redis.Client
	key    string
}

func (p tutorial) set(ctx context.Context, user string, at time.Time) error {
	return p.client.ZAdd(ctx, p.key, redis.Z{Score: float64(at.Unix()), Member: user}).Err()
}

func (p tutorial) get(ctx context.Context, user string) (time.Time, error) {
	score, err := p.client.ZScore(ctx, p.key, user).Result()
	return time.Unix(int64(score), 0), err
}

func (p tutorial) list(ctx context.Context, from, to time.Time, skip, limit int64) ([]string, error) {
	return p.client.ZRangeArgs(ctx, redis.ZRangeArgs{
		Key: p.key, ByScore: true, Rev: true, Offset: skip, Count: limit,
		Start: strconv.FormatInt(to.Unix(), 10), Stop: strconv.FormatInt(from.Unix(), 10),
	}).Result()
}

// newSharedStore opens a store whose namespace chat is the given set.
func newSharedStore(t *testing.T, url string, layout redisstore.Layout) *redisstore.Store {
	t.Helper()
	return stores.New(t, redisstore.Options{URL: url, Layouts: map[string]redisstore.Layout{"chat": layout}})
}

// TestSharedSet: both programs see each other's users in one set, the bare key of the tutorial.
func TestSharedSet(t *testing.T) {
	ctx, url, client := stores.StartRedis(t)
	theirs := tutorial{client, "presence"}
	for user, at := range map[string]int64{
		"alice": 100123, "bob": 100135, "mallory": 100143, "timmy": 100163,
		"eve": 100178,
	} {
		require.NoError(t, theirs.set(ctx, user, time.Unix(at, 0)))
	}
	ours := newSharedStore(t, url, redisstore.Layout{Key: "presence", Unit: redisstore.Seconds})
	require.NoError(t, ours.Register(ctx, []string{"chat"}))
	require.Equal(t, []store.NamespaceInfo{{Name: "chat", Newest: 100_178_000}}, kit.Namespaces(t, ours, 10),
		"listed before its first ping")
	require.Equal(t, lastseen.State{At: 100_123_000}, kit.Lookup(t, ours, "alice")[0])

	kit.Ping(t, ours, "zoe", 100_190_123)
	kit.Ping(t, ours, "alice", 100_191_999)
	kit.Leave(t, ours, "bob", 100_192_001)
	require.InDelta(t, 100190.123, client.ZScore(ctx, "presence", "zoe").Val(), 0)
	require.InDelta(t, -100192.001, client.ZScore(ctx, "presence", "bob").Val(), 0)
	seen, err := theirs.get(ctx, "alice")
	require.NoError(t, err)
	require.Equal(t, int64(100191), seen.Unix())
	users, err := theirs.list(ctx, time.Unix(100137, 0), time.Unix(100197, 0), 0, 10)
	require.NoError(t, err)
	require.Equal(t, []string{"alice", "zoe", "eve", "timmy", "mallory"}, users)

	require.NoError(t, theirs.set(ctx, "bob", time.Unix(100195, 0)))
	require.Equal(t, lastseen.State{At: 100_195_000}, kit.Lookup(t, ours, "bob")[0], "they brought him back")
	require.Equal(t, map[string]string{"chat": "shards=1 unit=s hash=fnv1a64 key=presence"},
		client.HGetAll(ctx, "presence::meta").Val())

	other := stores.New(t, redisstore.Options{URL: url})
	require.ErrorIs(t, stores.Ping(other, "chat", "alice"), store.ErrMismatch, "a server that does not know of it keeps out")
	require.Equal(t, []store.NamespaceInfo{{Name: "chat", Newest: 100_195_000}}, kit.Namespaces(t, other, 10),
		"but finds its newest time")
}

// TestSharedScores lists and counts whatever other programs write, and compares with what follows
// from the contract: times cut to the millisecond, within one by name.
func TestSharedScores(t *testing.T) {
	testenv.SkipWithRace(t, "it is about what Redis does")
	ctx, url, client := stores.StartRedis(t)
	for unit, perMilli := range map[redisstore.Unit]float64{redisstore.Seconds: 0.001, redisstore.Milliseconds: 1} {
		s := newSharedStore(t, url, redisstore.Layout{Unit: unit})
		rapid.Check(t, func(t *rapid.T) {
			require.NoError(t, client.Del(ctx, "presence:chat").Err())
			var want []store.Record
			for i := range rapid.IntRange(1, 40).Draw(t, "users") {
				user := fmt.Sprintf("%c%d", 'a'+rapid.IntRange(0, 25).Draw(t, "letter"), i)
				at := kit.Base + lastseen.Instant(rapid.IntRange(0, 3).Draw(t, "ms"))
				part := rapid.SampledFrom([]float64{0, 0, 0.25, 0.5, 0.999}).Draw(t, "part")
				record := store.Record{User: user, State: lastseen.State{At: at, Left: rapid.Bool().Draw(t, "left")}}
				score := (float64(at) + part) * perMilli
				if part == 0 {
					score = nearest(at, unit)
				}
				if record.Left {
					score = -score
				}
				require.NoError(t, client.ZAdd(ctx, "presence:chat", redis.Z{Member: user, Score: score}).Err())
				want = append(want, record)
			}
			limit := rapid.IntRange(1, 12).Draw(t, "limit")
			for _, order := range []store.Order{store.Newest, store.Oldest} {
				slices.SortFunc(want, order.Compare)
				q := store.ListQuery{Ranges: kit.Everyone(), Order: order, Limit: limit}
				require.Equal(t, want, kit.Walk(t, s, q))
			}
			span := lastseen.Range{From: kit.Base + 1, To: kit.Base + 2, Left: rapid.Bool().Draw(t, "half")}
			in := 0
			for _, r := range want {
				if r.Left == span.Left && r.At >= span.From && r.At <= span.To {
					in++
				}
			}
			require.Equal(t, []int64{int64(in)}, kit.Count(t, s, span))
		})
	}
}

// nearest is the float64 that a program in any language gets for a time in milliseconds.
func nearest(at lastseen.Instant, unit redisstore.Unit) float64 {
	if unit == redisstore.Milliseconds {
		return float64(at)
	}
	f, _ := strconv.ParseFloat(fmt.Sprintf("%d.%03d", at/1000, at%1000), 64)
	return f
}

// TestSharedLeave: someone seen within the millisecond of the leave has left; someone seen in the next
// one has not.
func TestSharedLeave(t *testing.T) {
	ctx, url, client := stores.StartRedis(t)
	s := newSharedStore(t, url, redisstore.Layout{Unit: redisstore.Seconds})
	for score, want := range map[string]lastseen.State{
		"1700000000.1239999": {At: kit.Base + 123, Left: true},
		"1700000000.123":     {At: kit.Base + 123, Left: true},
		"1700000000.124":     {At: kit.Base + 124},
		"1700000000":         {At: kit.Base + 123, Left: true},
	} {
		require.NoError(t, client.Do(ctx, "ZADD", "presence:chat", score, "alice").Err())
		require.Equal(t, want, kit.Leave(t, s, "alice", kit.Base+123), score)
		require.Equal(t, want, kit.Lookup(t, s, "alice")[0], score)
	}
}

// TestSharedSetWithInvalidMembers: what can be no user is neither listed nor, where that is cheap, counted; the
// first one is logged, and nothing is changed.
func TestSharedSetWithInvalidMembers(t *testing.T) {
	ctx, url, client := stores.StartRedis(t)
	layouts := map[string]redisstore.Layout{"chat": {Key: "online", Unit: redisstore.Seconds}}
	s, log := stores.NewLogged(t, redisstore.Options{URL: url, Layouts: layouts})
	for member, score := range map[string]float64{
		"alice": 1_700_000_000, "bob": 1_700_000_000.5, "zero": 0, "tiny": 0.0001, "gone": -1e15,
		"": 1_700_000_001, "a\nb": 1_700_000_002, strings.Repeat("x", 257): 1_700_000_003, "\xff": 1_700_000_000.2,
	} {
		require.NoError(t, client.ZAdd(ctx, "online", redis.Z{Member: member, Score: score}).Err())
	}
	before := client.Dump(ctx, "online").Val()
	for _, limit := range []int{1, 2, 100} {
		got := kit.Walk(t, s, store.ListQuery{Ranges: kit.Everyone(), Limit: limit})
		require.Equal(t, []store.Record{
			{User: "bob", State: lastseen.State{At: kit.Base + 500}},
			{User: "alice", State: lastseen.State{At: kit.Base}},
		}, got)
	}
	counts := kit.Count(t, s, kit.Everyone()...)
	require.Equal(t, []int64{6, 0}, counts, "invalid scores are not counted; the four invalid names are")
	require.Equal(t, make([]lastseen.State, 3), kit.Lookup(t, s, "zero", "tiny", "gone"))
	require.Equal(t, before, client.Dump(ctx, "online").Val())
	require.NoError(t, s.Close())
	require.Equal(t, 1, log.Count("are not times"), log)
	require.Positive(t, log.Count("members=3"))
	require.Equal(t, 1, log.Count("are not valid user IDs"))
}

func TestWrongLayouts(t *testing.T) {
	for want, o := range map[string]redisstore.Options{
		"65 shards":                {Shards: 65},
		`unit "h"`:                 {Unit: "h"},
		"namespace chat: 65":       {Layouts: map[string]redisstore.Layout{"chat": {Shards: 65}}},
		"one key is one shard":     {Layouts: map[string]redisstore.Layout{"chat": {Key: "k", Shards: 2}}},
		"is one shard":             {Shards: 2, Layouts: map[string]redisstore.Layout{"chat": {Key: "k"}}},
		"both have the key":        {Layouts: map[string]redisstore.Layout{"chat": {Key: "k"}, "game": {Key: "k"}}},
		"is where game belongs":    {Layouts: map[string]redisstore.Layout{"chat": {Key: "presence:game"}}},
		"where game belongs":       {Layouts: map[string]redisstore.Layout{"chat": {Key: "presence:game:3"}}},
		"the list of namespaces":   {Layouts: map[string]redisstore.Layout{"chat": {Key: "presence::namespaces"}}},
		`namespace chat: unit "m"`: {Layouts: map[string]redisstore.Layout{"chat": {Unit: "m"}}},
		"namespace":                {Layouts: map[string]redisstore.Layout{"a b": {}}},
	} {
		o.URL = "redis://127.0.0.1:1"
		_, err := redisstore.Open(o)
		require.ErrorContains(t, err, want)
	}
	for _, fine := range []map[string]redisstore.Layout{
		{"chat": {Key: "presence:chat"}},
		{"chat": {Key: "presence:game"}, "game": {Key: "presence"}},
		{"chat": {Key: "presence:a b"}},
	} {
		s, err := redisstore.Open(redisstore.Options{URL: "redis://127.0.0.1:1", Layouts: fine})
		require.NoError(t, err)
		require.NoError(t, s.Close())
	}
}

// TestTrimSeconds deletes by the time of sets in seconds, whose scores may lie between milliseconds.
func TestTrimSeconds(t *testing.T) {
	ctx, url, client := stores.StartRedis(t)
	s := newSharedStore(t, url, redisstore.Layout{Unit: redisstore.Seconds})
	now := float64(client.Time(ctx).Val().UnixMilli()) / 1000
	add := func(scores map[string]float64) {
		for member, score := range scores {
			require.NoError(t, client.ZAdd(ctx, "presence:chat", redis.Z{Member: member, Score: score}).Err())
		}
	}
	add(map[string]float64{"old": now - 4000.00049, "gone": -(now - 4000.5), "zero": 0})
	held := store.TrimQuery{Age: time.Hour, Now: lastseen.Instant(now * 1000)}
	result, err := s.Trim(ctx, "chat", held)
	require.NoError(t, err)
	require.Equal(t, store.TrimResult{Held: true}, result)
	add(map[string]float64{"left": -(now - 3000.00049)})
	result, err = s.Trim(ctx, "chat", held)
	require.NoError(t, err)
	require.Equal(t, store.TrimResult{Deleted: 3}, result)
	require.Equal(t, []string{"left"}, client.ZRange(ctx, "presence:chat", 0, -1).Val())
}
