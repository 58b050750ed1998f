package redisstore_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/storetest/availability"
	"github.com/lastseen/lastseen/store/storetest/kit"
	"github.com/lastseen/lastseen/store/storetest/redistest"
	"github.com/lastseen/lastseen/store/storetest/redistest/stores"
)

// TestFeaturesActAtOnce: what one server does, another one that has used the namespace before sees with its next call.
func TestFeaturesActAtOnce(t *testing.T) {
	ctx, url, client := stores.StartRedis(t)
	for _, shards := range []int{1, 7} {
		o := redisstore.Options{URL: url, Shards: shards}
		a, b := stores.New(t, o), stores.New(t, o)
		now := kit.Now(t, a)
		for _, s := range []store.Store{a, b} {
			kit.Ping(t, s, "alice", now)
			kit.Ping(t, s, "bob", now)
			require.Zero(t, described(t, s, "alice"))
		}
		availability.Set(t, a, "bob", availability.Busy)
		require.Equal(t, availability.Busy, described(t, b, "bob").Availability)
		state := availability.Set(t, a, "alice", availability.Invisible)
		require.True(t, state.Left)
		require.Equal(t, state, kit.Ping(t, b, "alice", kit.Now(t, b)))
		require.Equal(t, state, stores.Record(t, b, stores.OnDevice("alice", "tab", kit.Now(t, b))))

		require.NoError(t, a.RecordChanges(ctx, "chat", hours))
		r := newReader(t, b, "bob")
		now = kit.Now(t, a) + 1 // of one store: readings of the clock of Redis differ by milliseconds
		kit.Leave(t, b, "bob", now)
		r.requireTruth()
		require.Equal(t, []lastseen.Status{lastseen.Grey}, r.of("bob"))
		require.Zero(t, r.resets)
		stores.Record(t, a, stores.OnDevice("carol", "tab", now))
		kit.Leave(t, b, "carol", now+1)
		live, gone := stores.Devices(t, a, "carol")
		require.Empty(t, live)
		require.Equal(t, []string{"tab"}, gone, "a leave on the other server marks the device")
		require.NoError(t, b.DeleteNamespace(ctx, "chat"))
		require.Empty(t, client.Keys(ctx, "*").Val())
	}
}

// TestLostHash: no hash is not "nothing". The next call of each kind looks, and writes it again.
func TestLostHash(t *testing.T) {
	ctx, client, s := stores.Start(t)
	now := kit.Now(t, s)
	availability.Set(t, s, "bob", availability.Busy)
	stores.Record(t, s, stores.OnDevice("carol", "tab", now))
	state := availability.Set(t, s, "alice", availability.Invisible)
	require.NoError(t, s.RecordChanges(ctx, "chat", hours))
	require.NoError(t, s.SetContacts(ctx, "chat", "alice", []string{"bob"}))
	kit.Leave(t, s, "dave", now)
	const all = "-cdfhprsu"
	require.Equal(t, all, stores.Sides(t, client))
	for name, call := range map[string]func(){
		"Ping":    func() { require.Equal(t, state, kit.Ping(t, s, "alice", kit.Now(t, s))) },
		"Leave":   func() { kit.Leave(t, s, "erin", now+1) },
		"Devices": func() { stores.Record(t, s, stores.OnDevice("carol", "tab", now+1)) },
		"Describe": func() {
			require.Equal(t, availability.Busy, described(t, s, "bob").Availability)
			kit.Ping(t, s, "x", now)
		},
		"Say":      func() { availability.Set(t, s, "bob", availability.Busy) },
		"Changes":  func() { newReader(t, s, "bob") },
		"Forget":   func() { require.NoError(t, s.Forget(ctx, "chat", "nobody")) },
		"Contacts": func() { require.NoError(t, s.SetContacts(ctx, "chat", "alice", []string{"bob"})) },
	} {
		for _, lose := range []func() error{
			func() error { return client.Del(ctx, sidesKey(stores.Chat)).Err() },
			func() error { return client.HSet(ctx, sidesKey(stores.Chat), "keys", "-").Err() },
		} {
			require.NoError(t, lose())
			for range 6 { // a minute
				s.ExpireMetaCache()
			}
			call()
			require.Equal(t, all, stores.Sides(t, client), name)
		}
	}
}

// TestEmptiedSideKeysLeaveTheHash: the script that empties a side key takes its letter out.
func TestEmptiedSideKeysLeaveTheHash(t *testing.T) {
	ctx, client, s := stores.Start(t)
	now := kit.Now(t, s)
	requireSides := func(want string) {
		t.Helper()
		require.Equal(t, want, stores.Sides(t, client))
	}
	kit.Ping(t, s, "alice", now)
	requireSides("-")
	availability.Set(t, s, "alice", lastseen.AvailabilityState{Note: "x", Until: now + hour})
	requireSides("-de")
	availability.Set(t, s, "alice", lastseen.AvailabilityState{})
	requireSides("-")
	device := stores.OnDevice("alice", "tab", now)
	device.Meta, device.Idle = "{}", now-1
	stores.Record(t, s, device)
	requireSides("-dmr")
	require.NoError(t, s.SetContacts(ctx, "chat", "alice", []string{"bob"}))
	availability.Set(t, s, "alice", availability.Invisible)
	requireSides("-chmpru")
	require.NoError(t, s.SetContacts(ctx, "chat", "alice", nil))
	requireSides("-hmpr")
	require.NoError(t, s.Forget(ctx, "chat", "alice"))
	requireSides("-r") // leaves still concern devices
	require.True(t, kit.RemoveEmpty(t, s, "chat"))
	require.Empty(t, client.Keys(ctx, "*").Val(), "the hash goes with the last key")
}

// TestOldLayout: data of an earlier version is served as it is, its meta is upgraded, and its bits are deleted.
func TestOldLayout(t *testing.T) {
	ctx, url, client := stores.StartRedis(t)
	old := stores.New(t, redisstore.Options{URL: url})
	availability.Set(t, old, "bob", availability.Busy)
	state := availability.Set(t, old, "alice", availability.Invisible)
	require.NoError(t, old.RecordChanges(ctx, "chat", hours))
	require.NoError(t, old.Close())
	meta := client.HGet(ctx, "presence::meta", "chat").Val()
	before, isNew := strings.CutSuffix(meta, " layout=2")
	require.True(t, isNew)
	require.NoError(t, client.HSet(ctx, "presence::meta", "chat", before, "chat:changes", 1, "chat:hidden", 1,
		"chat:details", 1, "chat:devices", 1).Err())
	require.NoError(t, client.Del(ctx, sidesKey(stores.Chat)).Err())

	s := stores.New(t, redisstore.Options{URL: url})
	require.Equal(t, state, kit.Ping(t, s, "alice", kit.Now(t, s)))
	require.Equal(t, availability.Busy, described(t, s, "bob").Availability)
	require.Equal(t, map[string]string{"chat": meta}, client.HGetAll(ctx, "presence::meta").Val())
	require.Equal(t, "-dfhps", stores.Sides(t, client))
	newReader(t, s, "bob").requireTruth()
}

// TestNewerLayout: a server refuses a namespace with another layout, as servers before layouts refuse this one.
func TestNewerLayout(t *testing.T) {
	ctx, client, s := stores.Start(t)
	kit.Ping(t, s, "alice", kit.Base)
	require.NoError(t, client.HSet(ctx, "presence::meta", "chat", "shards=1 unit=ms hash=fnv1a64 layout=3").Err())
	s.ExpireMetaCache()
	require.ErrorIs(t, stores.Ping(s, "chat", "alice"), store.ErrMismatch)
}

// TestShardIsDeletedInOneScript: with all of its side keys.
func TestShardIsDeletedInOneScript(t *testing.T) {
	ctx, client, s := stores.Start(t)
	fillAll(t, s)
	require.Greater(t, len(stores.Sides(t, client)), 8)
	require.NoError(t, client.ConfigResetStat(ctx).Err())
	require.NoError(t, s.DeleteNamespace(ctx, "chat"))
	require.Empty(t, client.Keys(ctx, "*").Val())
	stats := client.Info(ctx, "commandstats").Val()
	require.Regexp(t, `cmdstat_unlink:calls=(9|10),`, stats, "one for the shard, and the keys of calls")
}

// TestPlainNamespaceNamesTwoKeys: a ping, a leave and a lookup of a namespace without features.
func TestPlainNamespaceNamesTwoKeys(t *testing.T) {
	var last atomic.Pointer[[]any] // the keys of the last call that named the set; the clock is read meanwhile
	_, url, _ := stores.StartRedis(t)
	s := stores.New(t, redisstore.Options{URL: url, Instrument: func(c redis.UniversalClient) error {
		c.AddHook(redistest.AroundCommands{After: func(cmd redis.Cmder) {
			if args := cmd.Args(); cmd.Name() == "evalsha" && slices.Contains(args, any(stores.Chat)) {
				keys := args[3 : 3+args[2].(int)]
				last.Store(&keys)
			}
		}})
		return nil
	}})
	kit.Ping(t, s, "alice", kit.Base)
	kit.Ping(t, s, "alice", kit.Base+1)
	require.Equal(t, []any{stores.Chat, sidesKey(stores.Chat)}, *last.Swap(nil))
	kit.Leave(t, s, "alice", kit.Base+2)
	require.Equal(t, []any{stores.Chat, sidesKey(stores.Chat)}, *last.Swap(nil))
}

// TestInvisibleNeedsARedisThatKeepsKeys: one that evicts any key could show a user who is invisible.
func TestInvisibleNeedsARedisThatKeepsKeys(t *testing.T) {
	ctx, client, s := stores.Start(t)
	for _, policy := range []string{"allkeys-lru", "noeviction", "allkeys-random", "volatile-lru"} {
		require.NoError(t, client.ConfigSet(ctx, "maxmemory-policy", policy).Err())
		s.Monitor(ctx)
		_, err := s.SetAvailability(ctx, "chat", "alice", availability.Invisible, kit.Now(t, s))
		if strings.HasPrefix(policy, "allkeys-") {
			require.ErrorIs(t, err, store.ErrEvicts, policy)
		} else {
			require.NoError(t, err, policy)
		}
		availability.Set(t, s, "bob", availability.Busy)
	}
}

// TestOlderHash: if Redis has an older hash of side keys, a server that looked up a user before hides who is invisible.
func TestOlderHash(t *testing.T) {
	ctx, url, client := stores.StartRedis(t)
	s := stores.New(t, redisstore.Options{URL: url})
	kit.Ping(t, s, "bob", kit.Now(t, s))
	dump := client.Dump(ctx, sidesKey(stores.Chat)).Val()
	state := availability.Set(t, s, "alice", availability.Invisible)
	for _, server := range []*redisstore.Store{s, stores.New(t, redisstore.Options{URL: url})} {
		lose["older"](t, client, sidesKey(stores.Chat), dump)
		described(t, server, "bob")
		require.Equal(t, state, kit.Ping(t, server, "alice", kit.Now(t, server)+1))
	}
}

// lose is how Redis loses a key: all of it, or what was written since an older dump.
var lose = map[string]func(t *testing.T, client redis.UniversalClient, key, dump string){
	"deleted": func(t *testing.T, client redis.UniversalClient, key, _ string) {
		require.NoError(t, client.Del(context.Background(), key).Err())
	},
	"older": func(t *testing.T, client redis.UniversalClient, key, dump string) {
		require.NoError(t, client.RestoreReplace(context.Background(), key, 0, dump).Err())
	},
}

// TestLostKeyOfHiddenTimes: whichever of the two keys of hidden times Redis loses, the next ping of an invisible user
// does not show the user, and users who are visible by now are shown, also on another server.
func TestLostKeyOfHiddenTimes(t *testing.T) {
	ctx, url, client := stores.StartRedis(t)
	o := redisstore.Options{URL: url}
	s, other := stores.New(t, o), stores.New(t, o)
	crowd := stores.Numbered("u", 1200) // more than two steps
	for _, user := range crowd {
		availability.Set(t, s, user, availability.Invisible)
	}
	for _, key := range []string{stores.HiddenOfChat, stores.PrivateOfChat} {
		for name, lose := range lose {
			t.Run(key+" "+name, func(t *testing.T) {
				now := kit.Now(t, s)
				availability.Set(t, s, "alice", lastseen.AvailabilityState{})
				for _, user := range []string{"bob", "dave", "erin"} {
					availability.SetAt(t, s, user, availability.Invisible, now-1000)
				}
				dump := client.Dump(ctx, key).Val()
				for _, user := range []string{"bob", "dave"} {
					availability.SetAt(t, s, user, lastseen.AvailabilityState{}, now-500)
				}
				require.NoError(t, s.Forget(ctx, "chat", "erin"))
				hidden := append([]string{"alice"}, crowd...)
				alice := availability.Set(t, s, "alice", availability.Invisible)
				kit.Ping(t, other, "bob", kit.Now(t, other))
				require.NoError(t, client.ConfigResetStat(ctx).Err())

				lose(t, client, key, dump)
				for _, state := range must(other.Ping(ctx, "chat", kit.Events(kit.Now(t, other)+1, hidden...)))(t) {
					require.True(t, state.Left)
				}
				for _, user := range []string{"bob", "erin"} {
					require.False(t, kit.Ping(t, other, user, kit.Now(t, other)).Left, user)
				}
				require.True(t, kit.Ping(t, other, "dave", now-501).Left, "a ping from the hidden time arrives late")
				require.Equal(t, alice, kit.Ping(t, s, "alice", kit.Now(t, s)))
				require.Equal(t, lastseen.Invisible, availability.Get(t, s, "alice", kit.Now(t, s)).Availability)
				require.Regexp(t, `cmdstat_[hz]scan:calls=([3-9]|1\d),`, client.Info(ctx, "commandstats").Val())
				private := client.HLen(ctx, stores.PrivateOfChat).Val()
				require.Equal(t, client.ZCard(ctx, stores.HiddenOfChat).Val(), private)
				availability.Set(t, other, "alice", lastseen.AvailabilityState{})
				require.False(t, kit.Ping(t, other, "alice", kit.Now(t, other)+1).Left)
			})
		}
	}
}

// must returns a function that returns a result, if there is no error.
func must[T any](result T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		require.NoError(t, err)
		return result
	}
}

// TestHiddenTimesWithoutMark: keys of an earlier version have none, and only the ends of those who ended a hidden time.
func TestHiddenTimesWithoutMark(t *testing.T) {
	ctx, url, client := stores.StartRedis(t)
	for _, key := range []string{stores.HiddenOfChat, stores.PrivateOfChat, "none"} {
		s := stores.New(t, redisstore.Options{URL: url})
		require.NoError(t, s.DeleteNamespace(ctx, "chat"))
		now := kit.Now(t, s)
		availability.SetAt(t, s, "alice", availability.Invisible, now-1000)
		availability.SetAt(t, s, "bob", availability.Invisible, now-1000)
		// before the present also by the clock of Redis
		availability.SetAt(t, s, "bob", lastseen.AvailabilityState{}, now-500)
		require.NoError(t, client.ZRem(ctx, stores.HiddenOfChat, "").Err())
		require.NoError(t, client.HDel(ctx, stores.PrivateOfChat, "", "bob").Err())
		require.NoError(t, client.Del(ctx, key).Err())
		require.True(t, kit.Ping(t, s, "alice", now).Left, key)
		require.False(t, kit.Ping(t, s, "bob", now).Left, key)
		availability.Set(t, s, "alice", lastseen.AvailabilityState{})
		require.False(t, kit.Ping(t, s, "alice", kit.Now(t, s)+1).Left, key)
	}
}

// described returns what others see of a user of the namespace chat besides the state.
func described(t *testing.T, s store.Store, user string) store.Details {
	t.Helper()
	_, details, err := s.Describe(context.Background(), "chat", []string{user})
	require.NoError(t, err)
	return details[user]
}
