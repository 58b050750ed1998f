package redisstore_test

import (
	"context"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore"
)

// TestFeaturesActAtOnce: what one server does, another one that has used the namespace before sees with its next call.
func TestFeaturesActAtOnce(t *testing.T) {
	ctx, url, client := start(t)
	for _, shards := range []int{1, 7} {
		o := redisstore.Options{URL: url, Shards: shards}
		a, b := newStore(t, o), newStore(t, o)
		now := nowOf(t, a)
		for _, s := range []store.Store{a, b} {
			pingAt(t, s, "alice", now)
			pingAt(t, s, "bob", now)
			require.Zero(t, described(t, s, "alice"))
		}
		say(t, a, "bob", inMeeting)
		require.Equal(t, inMeeting, described(t, b, "bob").Said)
		state := say(t, a, "alice", invisible)
		require.True(t, state.Left)
		require.Equal(t, state, pingAt(t, b, "alice", nowOf(t, b)))
		require.Equal(t, state, record(t, b, onDevice("alice", "tab", nowOf(t, b))))

		require.NoError(t, a.RecordChanges(ctx, "chat", hours))
		r := newReader(t, b, "bob")
		now = nowOf(t, a) + 1 // of one store: readings of the clock of Redis differ by milliseconds
		leaveAt(t, b, now, "bob")
		r.requireTruth()
		require.Equal(t, []lastseen.Status{lastseen.Grey}, r.of("bob"))
		require.Zero(t, r.resets)
		record(t, a, onDevice("carol", "tab", now))
		leaveAt(t, b, now+1, "carol")
		live, gone := devicesOf(t, a, "carol")
		require.Empty(t, live)
		require.Equal(t, []string{"tab"}, gone, "a leave on the other server marks the device")
		require.NoError(t, b.DeleteNamespace(ctx, "chat"))
		require.Empty(t, client.Keys(ctx, "*").Val())
	}
}

// TestLostHash: no hash is not "nothing". The next call of each kind looks, and writes it again.
func TestLostHash(t *testing.T) {
	ctx, client, s := startStore(t)
	now := nowOf(t, s)
	say(t, s, "bob", inMeeting)
	record(t, s, onDevice("carol", "tab", now))
	state := say(t, s, "alice", invisible)
	require.NoError(t, s.RecordChanges(ctx, "chat", hours))
	require.NoError(t, s.SetContacts(ctx, "chat", "alice", []string{"bob"}))
	leaveAt(t, s, now, "dave")
	const all = "-cdfhprsu"
	require.Equal(t, all, sidesOf(t, client))
	for name, call := range map[string]func(){
		"Ping":     func() { require.Equal(t, state, pingAt(t, s, "alice", nowOf(t, s))) },
		"Leave":    func() { leaveAt(t, s, now+1, "erin") },
		"Devices":  func() { record(t, s, onDevice("carol", "tab", now+1)) },
		"Describe": func() { require.Equal(t, inMeeting, described(t, s, "bob").Said); pingAt(t, s, "x", now) },
		"Say":      func() { say(t, s, "bob", inMeeting) },
		"Changes":  func() { newReader(t, s, "bob") },
		"Forget":   func() { require.NoError(t, s.Forget(ctx, "chat", "nobody")) },
		"Contacts": func() { require.NoError(t, s.SetContacts(ctx, "chat", "alice", []string{"bob"})) },
	} {
		for _, lose := range []func() error{
			func() error { return client.Del(ctx, sidesKey(chat)).Err() },
			func() error { return client.HSet(ctx, sidesKey(chat), "keys", "-").Err() },
		} {
			require.NoError(t, lose())
			for range 6 { // a minute
				s.ExpireAgreements()
			}
			call()
			require.Equal(t, all, sidesOf(t, client), name)
		}
	}
}

// TestEmptiedSideKeysLeaveTheHash: the script that empties a side key takes its letter out.
func TestEmptiedSideKeysLeaveTheHash(t *testing.T) {
	ctx, client, s := startStore(t)
	now := nowOf(t, s)
	requireSides := func(want string) {
		t.Helper()
		require.Equal(t, want, sidesOf(t, client))
	}
	pingAt(t, s, "alice", now)
	requireSides("-")
	say(t, s, "alice", lastseen.Said{Note: "x", Until: now + hour})
	requireSides("-de")
	say(t, s, "alice", lastseen.Said{})
	requireSides("-")
	device := onDevice("alice", "tab", now)
	device.Meta, device.Idle = "{}", now-1
	record(t, s, device)
	requireSides("-dmr")
	require.NoError(t, s.SetContacts(ctx, "chat", "alice", []string{"bob"}))
	say(t, s, "alice", invisible)
	requireSides("-chmpru")
	require.NoError(t, s.SetContacts(ctx, "chat", "alice", nil))
	requireSides("-hmpr")
	require.NoError(t, s.Forget(ctx, "chat", "alice"))
	requireSides("-r") // leaves still concern devices
	removed, err := s.RemoveEmpty(ctx, "chat")
	require.NoError(t, err)
	require.True(t, removed)
	require.Empty(t, client.Keys(ctx, "*").Val(), "the hash goes with the last key")
}

// TestOldLayout: data of an earlier version is served as it is, its meta is upgraded, and its bits are deleted.
func TestOldLayout(t *testing.T) {
	ctx, url, client := start(t)
	old := newStore(t, redisstore.Options{URL: url})
	say(t, old, "bob", inMeeting)
	state := say(t, old, "alice", invisible)
	require.NoError(t, old.RecordChanges(ctx, "chat", hours))
	require.NoError(t, old.Close())
	meta := client.HGet(ctx, "presence::meta", "chat").Val()
	before, isNew := strings.CutSuffix(meta, " layout=2")
	require.True(t, isNew)
	require.NoError(t, client.HSet(ctx, "presence::meta", "chat", before, "chat:changes", 1, "chat:hidden", 1,
		"chat:details", 1, "chat:devices", 1).Err())
	require.NoError(t, client.Del(ctx, sidesKey(chat)).Err())

	s := newStore(t, redisstore.Options{URL: url})
	require.Equal(t, state, pingAt(t, s, "alice", nowOf(t, s)))
	require.Equal(t, inMeeting, described(t, s, "bob").Said)
	require.Equal(t, map[string]string{"chat": meta}, client.HGetAll(ctx, "presence::meta").Val())
	require.Equal(t, "-dfhps", sidesOf(t, client))
	newReader(t, s, "bob").requireTruth()
}

// TestNewerLayout: a server refuses a namespace with another layout, as servers before layouts refuse this one.
func TestNewerLayout(t *testing.T) {
	ctx, client, s := startStore(t)
	pingAt(t, s, "alice", base)
	require.NoError(t, client.HSet(ctx, "presence::meta", "chat", "shards=1 unit=ms hash=fnv1a64 layout=3").Err())
	s.ExpireAgreements()
	require.ErrorIs(t, ping(s, "chat", "alice"), store.ErrMismatch)
}

// TestShardIsDeletedInOneScript: with all of its side keys.
func TestShardIsDeletedInOneScript(t *testing.T) {
	ctx, client, s := startStore(t)
	fillAll(t, s)
	require.Greater(t, len(sidesOf(t, client)), 8)
	require.NoError(t, client.ConfigResetStat(ctx).Err())
	require.NoError(t, s.DeleteNamespace(ctx, "chat"))
	require.Empty(t, client.Keys(ctx, "*").Val())
	stats := client.Info(ctx, "commandstats").Val()
	require.Regexp(t, `cmdstat_unlink:calls=(9|10),`, stats, "one for the shard, and the keys of calls")
}

// TestPlainNamespaceNamesTwoKeys: a ping, a leave and a lookup of a namespace without features.
func TestPlainNamespaceNamesTwoKeys(t *testing.T) {
	var keys []string
	_, url, _ := start(t)
	s := newStore(t, redisstore.Options{URL: url, Instrument: func(c redis.UniversalClient) error {
		c.AddHook(redisstore.AroundCommands{After: func(cmd redis.Cmder) {
			if args := cmd.Args(); cmd.Name() == "evalsha" {
				n := args[2].(int)
				keys = nil
				for _, key := range args[3 : 3+n] {
					keys = append(keys, key.(string))
				}
			}
		}})
		return nil
	}})
	pingAt(t, s, "alice", base)
	pingAt(t, s, "alice", base+1)
	require.Equal(t, []string{chat, sidesKey(chat)}, keys)
	keys = nil
	leaveAt(t, s, base+2, "alice")
	require.Equal(t, []string{chat, sidesKey(chat)}, keys)
}

// TestInvisibleNeedsARedisThatKeepsKeys: one that evicts any key could show a user who is invisible.
func TestInvisibleNeedsARedisThatKeepsKeys(t *testing.T) {
	ctx, client, s := startStore(t)
	for _, policy := range []string{"allkeys-lru", "noeviction", "allkeys-random", "volatile-lru"} {
		require.NoError(t, client.ConfigSet(ctx, "maxmemory-policy", policy).Err())
		s.Monitor(ctx)
		_, err := s.SetAvailability(ctx, "chat", "alice", invisible, nowOf(t, s))
		if strings.HasPrefix(policy, "allkeys-") {
			require.ErrorIs(t, err, store.ErrEvicts, policy)
		} else {
			require.NoError(t, err, policy)
		}
		say(t, s, "bob", inMeeting)
	}
}

// TestOlderHash: if Redis has an older hash of side keys, a server that looked up a user before hides who is invisible.
func TestOlderHash(t *testing.T) {
	ctx, url, client := start(t)
	s := newStore(t, redisstore.Options{URL: url})
	pingAt(t, s, "bob", nowOf(t, s))
	dump := client.Dump(ctx, sidesKey(chat)).Val()
	state := say(t, s, "alice", invisible)
	for _, server := range []*redisstore.Store{s, newStore(t, redisstore.Options{URL: url})} {
		lose["older"](t, client, sidesKey(chat), dump)
		described(t, server, "bob")
		require.Equal(t, state, pingAt(t, server, "alice", nowOf(t, server)+1))
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
	ctx, url, client := start(t)
	o := redisstore.Options{URL: url}
	s, other := newStore(t, o), newStore(t, o)
	crowd := numbered("u", 1200) // more than two steps
	for _, user := range crowd {
		say(t, s, user, invisible)
	}
	for _, key := range []string{hiddenOfChat, privateOfChat} {
		for name, lose := range lose {
			t.Run(key+" "+name, func(t *testing.T) {
				now := nowOf(t, s)
				say(t, s, "alice", lastseen.Said{})
				for _, user := range []string{"bob", "dave", "erin"} {
					sayAt(t, s, user, invisible, now-1000)
				}
				dump := client.Dump(ctx, key).Val()
				for _, user := range []string{"bob", "dave"} {
					sayAt(t, s, user, lastseen.Said{}, now-500)
				}
				require.NoError(t, s.Forget(ctx, "chat", "erin"))
				hidden := append([]string{"alice"}, crowd...)
				alice := say(t, s, "alice", invisible)
				pingAt(t, other, "bob", nowOf(t, other))
				require.NoError(t, client.ConfigResetStat(ctx).Err())

				lose(t, client, key, dump)
				for _, state := range must(other.Ping(ctx, "chat", sightingsAt(nowOf(t, other)+1, hidden...)))(t) {
					require.True(t, state.Left)
				}
				for _, user := range []string{"bob", "erin"} {
					require.False(t, pingAt(t, other, user, nowOf(t, other)).Left, user)
				}
				require.True(t, pingAt(t, other, "dave", now-501).Left, "a ping from the hidden time arrives late")
				require.Equal(t, alice, pingAt(t, s, "alice", nowOf(t, s)))
				require.Equal(t, lastseen.Invisible, saying(t, s, "alice").Availability)
				require.Regexp(t, `cmdstat_[hz]scan:calls=([3-9]|1\d),`, client.Info(ctx, "commandstats").Val())
				require.Equal(t, client.ZCard(ctx, hiddenOfChat).Val(), client.HLen(ctx, privateOfChat).Val())
				say(t, other, "alice", lastseen.Said{})
				require.False(t, pingAt(t, other, "alice", nowOf(t, other)+1).Left)
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
	ctx, url, client := start(t)
	for _, key := range []string{hiddenOfChat, privateOfChat, "none"} {
		s := newStore(t, redisstore.Options{URL: url})
		require.NoError(t, s.DeleteNamespace(ctx, "chat"))
		now := nowOf(t, s)
		sayAt(t, s, "alice", invisible, now-1000)
		sayAt(t, s, "bob", invisible, now-1000)
		sayAt(t, s, "bob", lastseen.Said{}, now-500) // before the present also by the clock of Redis
		require.NoError(t, client.ZRem(ctx, hiddenOfChat, "").Err())
		require.NoError(t, client.HDel(ctx, privateOfChat, "", "bob").Err())
		require.NoError(t, client.Del(ctx, key).Err())
		require.True(t, pingAt(t, s, "alice", now).Left, key)
		require.False(t, pingAt(t, s, "bob", now).Left, key)
		say(t, s, "alice", lastseen.Said{})
		require.False(t, pingAt(t, s, "alice", nowOf(t, s)+1).Left, key)
	}
}
