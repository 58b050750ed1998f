package redisstore_test

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/storetest"
	"github.com/lastseen/lastseen/store/storetest/availability"
	"github.com/lastseen/lastseen/store/storetest/kit"
	"github.com/lastseen/lastseen/store/storetest/redistest/stores"
)

// TestKeysInRedis: other programs and operators rely on it.
func TestKeysInRedis(t *testing.T) {
	ctx, url, client := stores.StartRedis(t)
	s := stores.New(t, redisstore.Options{URL: url})
	require.NoError(t, stores.Ping(s, "chat", "alice", "bob"))
	kit.Leave(t, s, "bob", kit.Base+5)
	require.Equal(t, []redis.Z{{Member: "bob", Score: -1_700_000_000_005}, {Member: "alice", Score: 1_700_000_000_000}},
		client.ZRangeWithScores(ctx, "presence:chat", 0, -1).Val())
	require.Equal(t, []redis.Z{{Member: "chat"}}, client.ZRangeWithScores(ctx, "presence::namespaces", 0, -1).Val())
	require.Equal(t, map[string]string{"chat": "shards=1 unit=ms hash=fnv1a64 layout=2"},
		client.HGetAll(ctx, "presence::meta").Val())
	require.Equal(t, map[string]string{"keys": "-"}, client.HGetAll(ctx, "presence:keys:{presence:chat}").Val())
	require.Len(t, client.Keys(ctx, "*").Val(), 4)

	sharded := stores.New(t, redisstore.Options{URL: url, Prefix: "p:", Shards: 7})
	require.NoError(t, stores.Ping(sharded, "chat", "alice", "bob", "a/b"))
	for key, user := range map[string]string{"p:chat:1": "alice", "p:chat:2": "bob", "p:chat:3": "a/b"} {
		require.Equal(t, []string{user}, client.ZRange(ctx, key, 0, -1).Val(), key)
	}
	require.Equal(t, "shards=7 unit=ms hash=fnv1a64 layout=2", client.HGet(ctx, "p::meta", "chat").Val())
	require.NoError(t, sharded.DeleteNamespace(ctx, "chat"))
	require.Empty(t, client.Keys(ctx, "p:*").Val(), "nothing is left behind")
}

// TestForgottenScripts: Redis loses them when it restarts or fails over.
func TestForgottenScripts(t *testing.T) {
	ctx, url, client := stores.StartRedis(t)
	for _, shards := range []int{1, 7} {
		s := stores.New(t, redisstore.Options{URL: url, Prefix: fmt.Sprintf("p%d:", shards), Shards: shards})
		for range 2 {
			for name, call := range stores.AllCalls(s, "chat") {
				require.NoError(t, client.ScriptFlush(ctx).Err())
				require.NoError(t, call(), name)
			}
		}
		require.NoError(t, client.ScriptFlush(ctx).Err())
		require.NoError(t, stores.Ping(s, "chat", "a", "b", "c", "d", "e", "f", "g"))
		require.GreaterOrEqual(t, kit.Count(t, s, kit.Everyone()...)[0], int64(7))
	}
}

func TestWrongType(t *testing.T) {
	ctx, url, client := stores.StartRedis(t)
	s := stores.New(t, redisstore.Options{URL: url})
	require.NoError(t, client.Set(ctx, "presence:chat", "a string", 0).Err())
	for name, call := range stores.AllCalls(s, "chat") {
		require.ErrorIs(t, call(), store.ErrWrongType, name)
	}
	require.NoError(t, stores.Ping(s, "other", "alice"))
	require.Equal(t, "a string", client.Get(ctx, "presence:chat").Val())
	require.Equal(t, []store.NamespaceInfo{{Name: "other", Newest: kit.Base}}, kit.Namespaces(t, s, 10),
		"what is not ours is not listed")
	require.NoError(t, stores.Ping(s, "third", "alice"))
	require.NoError(t, client.Set(ctx, "presence:third", "a string", 0).Err())
	require.Equal(t, []store.NamespaceInfo{{Name: "other", Newest: kit.Base}, {Name: "third"}},
		kit.Namespaces(t, s, 10))
	require.ErrorIs(t, s.Register(ctx, []string{"chat", "new"}), store.ErrWrongType)
	infos := kit.Namespaces(t, s, 1)
	require.Equal(t, []store.NamespaceInfo{{Name: "new"}}, infos, "one that is refused does not keep others out")

	shards := stores.New(t, redisstore.Options{URL: url, Prefix: "p:", Shards: 7})
	require.NoError(t, stores.Ping(shards, "chat", "alice"))
	require.NoError(t, client.Set(ctx, "p:chat:6", "a string", 0).Err())
	require.ErrorIs(t, shards.DeleteNamespace(ctx, "chat"), store.ErrWrongType, "one shard is enough")
	require.Equal(t, kit.Base, kit.Lookup(t, shards, "alice")[0].At, "and nothing is deleted")
}

// TestOtherTypes: a call that needs a key of another type fails before it writes anything, so that no reader of the
// feed misses a change. Only devices are deleted with the namespace then.
func TestOtherTypes(t *testing.T) {
	testenv.SkipWithRace(t, "it is about what Redis does")
	ctx, url, client := stores.StartRedis(t)
	needs := map[string][]string{
		stores.SideKey("contacts", stores.Chat): {
			"SetContacts", "ChangeContacts", "ListContacts", "AreContacts", "DeleteNamespace",
		},
		stores.SideKey("contactuses", stores.Chat): {"SetContacts", "ChangeContacts", "TrimContacts"},
		stores.DevicesOfChat:                       {"RecordDevices"},
		stores.MetasOfChat:                         {"RecordDevices"},
	}
	for _, key := range []string{
		detailsKey(stores.Chat), endsKey(stores.Chat), stores.HiddenOfChat, stores.PrivateOfChat,
	} {
		needs[key] = []string{"Busy", "Invisible", "Nothing"}
	}
	for _, key := range callKeys() {
		needs[key] = append(slices.Collect(maps.Keys(storetest.MethodsOf(nil, "chat").Calls)), "Forget")
	}
	for key, names := range needs {
		t.Run(key, func(t *testing.T) {
			require.NoError(t, client.FlushAll(ctx).Err())
			s := stores.New(t, redisstore.Options{URL: url})
			fillAll(t, s)
			require.NoError(t, client.Del(ctx, key).Err())
			require.NoError(t, client.Set(ctx, key, "a string", 0).Err())
			all := stores.AllCalls(s, "chat")
			for name, state := range map[string]lastseen.AvailabilityState{
				"Busy": availability.Busy, "Invisible": availability.Invisible, "Nothing": {},
			} {
				now := kit.Now(t, s)
				all[name] = func() error { return kit.ErrorOf(s.SetAvailability(ctx, "chat", "bob", state, now)) }
			}
			bye := stores.ByeOnDevice("tab", kit.Base+1)
			bye.Meta = "[]"
			all["RecordDevices"] = func() error {
				return kit.ErrorOf(s.RecordDevices(ctx, "chat", stores.Window, []store.DeviceEvent{bye}))
			}
			before := stores.Contents(t, client)
			for _, name := range names {
				require.ErrorIs(t, all[name](), store.ErrWrongType, name)
				if name != "Forget" { // which forgets the user's state before the calls
					require.Equal(t, before, stores.Contents(t, client), name)
				}
			}
			if strings.HasPrefix(key, "presence:device") {
				require.NoError(t, stores.Ping(s, "chat", "dave"), "pings work")
				require.NoError(t, s.DeleteNamespace(ctx, "chat"))
			}
		})
	}
}

// fillAll has the namespace chat hold everything that there is.
func fillAll(t *testing.T, s *redisstore.Store) {
	t.Helper()
	ctx, end := context.Background(), kit.Now(t, s).Add(time.Hour)
	require.NoError(t, stores.Ping(s, "chat", "alice"))
	device := stores.OnDevice("alice", "tab", kit.Base)
	device.Meta = "{}"
	stores.Record(t, s, device)
	require.NoError(t, s.SetContacts(ctx, "chat", "alice", []string{"bob"}))
	availability.Set(t, s, "carol", lastseen.AvailabilityState{Note: "x", Until: end})
	availability.Set(t, s, "dora", availability.Invisible)
	c := newCallers(t, s)
	n := c.Call("carol", "erin")
	n.Key, n.App = "k", "1"
	c.Accepted(n)
}

// TestInvalidScores: we never write them. They read as never seen; those too large for a time
// stay as they are, and those below the first millisecond are older than any ping or leave.
func TestInvalidScores(t *testing.T) {
	ctx, client, s := stores.Start(t)
	require.NoError(t, stores.Ping(s, "chat", "alice"))
	for score, moves := range map[float64]bool{
		0: true, 0.5: true, -0.5: true,
		253402300800000: false, -253402300800000: false, -(1 << 52): false,
		1<<52 + float64(kit.Base): false, math.Inf(1): false, math.Inf(-1): false,
	} {
		require.NoError(t, client.ZAdd(ctx, "presence:chat", redis.Z{Member: "odd", Score: score}).Err())
		require.Equal(t, lastseen.State{}, kit.Lookup(t, s, "odd")[0], score)
		records := kit.List(t, s, store.ListQuery{Ranges: kit.Everyone(), Limit: 10})
		require.Equal(t, []store.Record{{User: "alice", State: lastseen.State{At: kit.Base}}}, records, score)
		newest, err := s.Newest(ctx, "chat")
		require.NoError(t, err)
		require.Equal(t, kit.Base, newest, score)
		for _, left := range []bool{false, true} {
			write, want := s.Ping, lastseen.State{}
			if left {
				write = s.Leave
			}
			if moves {
				want = lastseen.State{At: kit.Base, Left: left}
			}
			require.NoError(t, client.ZAdd(ctx, "presence:chat", redis.Z{Member: "odd", Score: score}).Err())
			states, err := write(ctx, "chat", []store.PresenceEvent{{User: "odd", At: kit.Base}})
			require.NoError(t, err)
			require.Equal(t, want, states[0], score)
			require.Equal(t, want, kit.Lookup(t, s, "odd")[0], "the answer is what is stored: %v", score)
			if !moves {
				require.InDelta(t, score, client.ZScore(ctx, "presence:chat", "odd").Val(), 0, "unmoved")
			}
		}
	}
	kit.Ping(t, s, "alice", kit.Now(t, s))
	const beyond = float64(1<<52 + int64(kit.Base))
	require.NoError(t, client.ZAdd(ctx, "presence:chat",
		redis.Z{Member: "odd", Score: beyond}, redis.Z{Member: "zero", Score: 0}).Err())
	require.Equal(t, []int64{1, 0}, kit.Count(t, s, kit.Everyone()...))
	result, err := stores.Trim(s, time.Hour)
	require.NoError(t, err)
	require.Equal(t, store.TrimResult{Deleted: 1}, result, "the zero")
	require.InDelta(t, beyond, client.ZScore(ctx, "presence:chat", "odd").Val(), 0, "unmoved")
}

// TestMismatch: a server that would look for users in other shards refuses, and changes nothing.
func TestMismatch(t *testing.T) {
	ctx, url, client := stores.StartRedis(t)
	one, seven := stores.New(t, redisstore.Options{URL: url}), stores.New(t, redisstore.Options{URL: url, Shards: 7})
	require.NoError(t, stores.Ping(one, "one", "alice"))
	require.NoError(t, stores.Ping(seven, "seven", "alice"))
	before := stores.Contents(t, client)
	for namespace, wrong := range map[string]store.Store{"one": seven, "seven": one} {
		for range 2 {
			for name, call := range stores.AllCalls(wrong, namespace) {
				require.ErrorIs(t, call(), store.ErrMismatch, name)
			}
		}
	}
	require.Equal(t, before, stores.Contents(t, client))
	for _, s := range []store.Store{one, seven} {
		want := []store.NamespaceInfo{{Name: "one", Newest: kit.Base}, {Name: "seven", Newest: kit.Base}}
		require.Equal(t, want, kit.Namespaces(t, s, 10),
			"the newest time is looked for where it is stored")
	}
	for _, strange := range []string{
		"shards=1 unit=s hash=fnv1a64", "shards=0 unit=ms hash=x",
		"shards=65 unit=ms hash=x", "",
	} {
		require.NoError(t, client.HSet(ctx, "presence::meta", "one", strange).Err())
		require.Equal(t, []store.NamespaceInfo{{Name: "one"}, {Name: "seven", Newest: kit.Base}},
			kit.Namespaces(t, one, 10),
			"what is stored in a way of a later version does not hide the others")
	}
}

// TestPartlyFailedPing: it created the key of a deleted namespace again, but its reply is lost. The
// next ping finds the key there, and still has to bring the name back.
func TestPartlyFailedPing(t *testing.T) {
	ctx, url, client := stores.StartRedis(t)
	o := redisstore.Options{URL: url, Shards: 7}
	a, b := stores.New(t, o), stores.New(t, o)
	require.NoError(t, stores.Ping(b, "chat", "alice"))
	require.NoError(t, a.DeleteNamespace(ctx, "chat"))
	require.NoError(t, client.Set(ctx, "presence:chat:2", "a string", 0).Err()) // where bob belongs
	require.ErrorIs(t, stores.Ping(b, "chat", "alice", "bob"), store.ErrWrongType)
	require.NoError(t, client.Del(ctx, "presence:chat:2").Err())
	require.Equal(t, []string{"alice"}, client.ZRange(ctx, "presence:chat:1", 0, -1).Val())
	require.NoError(t, stores.Ping(b, "chat", "alice"))
	require.Equal(t, []store.NamespaceInfo{{Name: "chat", Newest: kit.Base}}, kit.Namespaces(t, b, 10))
}

// TestOnePageOneScript: a page that one script fills must not cost a second one.
func TestOnePageOneScript(t *testing.T) {
	ctx, client, s := stores.Start(t)
	require.NoError(t, stores.Ping(s, "chat", "a", "b", "c", "d"))
	q := store.ListQuery{Ranges: kit.Everyone(), Limit: 2}
	page, err := s.List(ctx, "chat", q) // also loads the script
	require.NoError(t, err)
	q.After = &page[1]
	stores.Eventually(t, func() bool { // what the store does once in the background comes before
		return strings.Contains(client.Info(ctx, "commandstats").Val(), "cmdstat_time:")
	})
	require.NoError(t, client.ConfigResetStat(ctx).Err())
	page = kit.List(t, s, q)
	require.Len(t, page, 2)
	require.Contains(t, client.Info(ctx, "commandstats").Val(), "cmdstat_evalsha:calls=1,")
}

// TestUnevenShards: when nearly all of a page comes from one shard, it is read on until it is full.
func TestUnevenShards(t *testing.T) {
	ctx, url, client := stores.StartRedis(t)
	s := stores.New(t, redisstore.Options{URL: url, Shards: 7})
	require.NoError(t, stores.Ping(s, "chat", "alice"))
	var want []string
	for i := range 500 { // written past the store, all into alice's shard
		user := fmt.Sprintf("u%04d", 9999-i)
		want = append(want, user)
		require.NoError(t, client.ZAdd(ctx, "presence:chat:1", redis.Z{Member: user, Score: float64(kit.Base)}).Err())
	}
	want = append(want, "alice")
	for _, limit := range []int{7, 100, 501, 1001} {
		got := kit.Users(kit.Walk(t, s, store.ListQuery{Ranges: kit.Everyone(), Limit: limit}))
		require.Equal(t, want, got, "pages of %d", limit)
	}
}
