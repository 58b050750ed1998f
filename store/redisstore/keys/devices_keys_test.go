package keys

import (
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
	"github.com/lastseen/lastseen/store/storetest/kit"
	"github.com/lastseen/lastseen/store/storetest/redistest/stores"
)

// TestKeysOfDevices: operators back them up, allow them and read them. See docs/decisions/redis-keys.md.
func TestKeysOfDevices(t *testing.T) {
	ctx, client, s := stores.Start(t)
	require.NoError(t, stores.Ping(s, "chat", "alice"))
	require.Len(t, client.Keys(ctx, "*").Val(), 4, "a namespace without devices has no keys for them")
	require.Len(t, client.HGetAll(ctx, "presence::meta").Val(), 1)

	tab := stores.OnDevice("alice", "tab 1", kit.Base+10)
	tab.Meta, tab.Idle = `{"app":"1.2"}`, kit.Base+4
	stores.Record(t, s, tab, stores.ByeOnDevice("phone", kit.Base+5), stores.OnDevice("carol d", "x", kit.Base))
	kit.Leave(t, s, "bob", kit.Base+7)
	stores.Record(t, s, stores.OnDevice("alice", "tab 1", kit.Base+20))
	records, metas := stores.DevicesOfChat, stores.MetasOfChat
	require.ElementsMatch(t, []string{
		"presence:chat", "presence::namespaces", "presence::meta", stores.SideKey("keys", stores.Chat), records, metas,
	}, client.Keys(ctx, "*").Val())
	require.Equal(t, map[string]string{
		"alice": "600000 0\n" +
			"web tab 1\t0 0 1700000000010 1700000000020\n" +
			"web phone\t1 0 1700000000005 1700000000005",
		"bob":     "0 1700000000007",
		"carol d": "600000 0\nweb x\t0 0 1700000000000 1700000000000",
	}, client.HGetAll(ctx, records).Val())
	require.Equal(t, map[string]string{"alice\ntab 1": `{"app":"1.2"}`}, client.HGetAll(ctx, metas).Val())
	require.Equal(t, "-mr", stores.Sides(t, client))

	require.NoError(t, s.Forget(ctx, "chat", "alice"))
	require.Equal(t, []string{"bob", "carol d"}, client.ZRange(ctx, "presence:chat", 0, -1).Val())
	require.ElementsMatch(t, []string{"bob", "carol d"}, client.HKeys(ctx, records).Val())
	require.Zero(t, client.Exists(ctx, metas).Val())
	_, err := stores.Trim(s, time.Hour)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"": ""}, client.HGetAll(ctx, records).Val(), "leaves still concern devices")
	require.True(t, kit.RemoveEmpty(t, s, "chat"))
	require.Empty(t, client.Keys(ctx, "*").Val())
}

// TestDevicesAreDeleted: nothing is left of them with the namespace.
func TestDevicesAreDeleted(t *testing.T) {
	ctx, url, client := stores.StartRedis(t)
	for _, shards := range []int{1, 7} {
		o := redisstore.Options{URL: url, Shards: shards}
		s, other := stores.New(t, o), stores.New(t, o)
		record50 := func() {
			for _, user := range stores.Numbered("u", 50) {
				item := stores.OnDevice(user, "tab", kit.Base)
				item.Meta = "{}"
				stores.Record(t, s, item)
			}
			require.Len(t, client.Keys(ctx, "*").Val(), 4*shards+2)
		}
		record50()
		require.NoError(t, other.DeleteNamespace(ctx, "chat"))
		require.Empty(t, client.Keys(ctx, "*").Val())

		record50()
		for k := range shards { // as by a server that does not know of devices
			key := "presence:chat"
			if shards > 1 {
				key += fmt.Sprint(":", k)
			}
			require.NoError(t, client.Del(ctx, key).Err())
		}
		require.True(t, kit.RemoveEmpty(t, other, "chat"))
		require.Empty(t, client.Keys(ctx, "*").Val())
	}
}

// TestRemoveEmptyKeepsDevices: of a namespace that has users, all stays.
func TestRemoveEmptyKeepsDevices(t *testing.T) {
	_, url, client := stores.StartRedis(t)
	s := stores.New(t, redisstore.Options{URL: url, Shards: 7})
	stores.Record(t, s, stores.OnDevice("alice", "tab", kit.Base))
	before := stores.Contents(t, client)
	require.False(t, kit.RemoveEmpty(t, s, "chat"))
	require.Equal(t, before, stores.Contents(t, client))
}

// TestForeignRecords: text that we would not write counts as no devices, is logged once, and is replaced.
func TestForeignRecords(t *testing.T) {
	testenv.SkipWithRace(t, "it is about what Redis does")
	ctx, url, client := stores.StartRedis(t)
	line := func(id string, at lastseen.Instant) string { return fmt.Sprintf("\nweb %s\t0 0 1 %d", id, at) }
	many := "600000 0"
	for i := range lastseen.MaxDevices + 1 {
		many += line(fmt.Sprint(i), kit.Base)
	}
	for _, text := range []string{
		"", " ", "x", "600000", "600000 0 ", "600000 x", "-1 0", "600000 0\n", "600000 0\nweb tab",
		"600000 0" + line("tab", kit.Base) + "\n",
		"600000 0" + line("tab", kit.Base) + "x", "600000 0\nweb tab\t2 0 1 1", "600000 0\nweb tab\t0 0 1700000000000", "600000 0" + line("", kit.Base),
		"600000 0" + line("a", kit.Base) + line("tab", kit.Base+1), "600000 0" + line("tab", 1e15), many,
		"600000 0" + line(strings.Repeat("tab", 3000), kit.Base), "\x00\xff", "600000 0\nweb tab\t0 0 1 1700000000000\t0 0 1 5",
		"99999999999999999999 0" + line("tab", kit.Base),
	} {
		s, log := stores.NewLogged(t, redisstore.Options{URL: url})
		require.NoError(t, s.DeleteNamespace(ctx, "chat"))
		stores.Record(t, s, stores.OnDevice("bob", "tab", kit.Base))
		for _, user := range []string{"alice", "carol"} {
			require.NoError(t, stores.Ping(s, "chat", user))
			require.NoError(t, client.HSet(ctx, stores.DevicesOfChat, user, text).Err())
			live, gone := stores.Devices(t, s, user)
			require.Empty(t, live, "%q", text)
			require.Empty(t, gone, "%q", text)
		}
		require.True(t, stores.Record(t, s, stores.ByeOnDevice("other", kit.Base+2)).Left, "%q", text)
		state := stores.Record(t, s, stores.OnDevice("carol", "new", kit.Base+2))
		require.Equal(t, kit.Here(kit.Base+2), state, "%q", text)
		live, _ := stores.Devices(t, s, "carol")
		require.Equal(t, []string{"new"}, live)
		live, gone := stores.Devices(t, s, "alice")
		require.Empty(t, live)
		require.Equal(t, []string{"other"}, gone)
		require.NoError(t, s.Forget(ctx, "chat", "carol"))
		require.NoError(t, s.Close())
		require.Equal(t, 1, log.Count("cannot be read"), "%q: %s", text, log)
	}
}

// TestSizeOfRecords: docs/capacity.md names it.
func TestSizeOfRecords(t *testing.T) {
	testenv.SkipWithRace(t, "it is about what Redis does")
	ctx, client, s := stores.Start(t)
	const n = 10_000
	var batch []store.DeviceEvent
	for i := range n {
		batch = append(batch, stores.OnDevice(fmt.Sprintf("u%07d", i), "01234567-89ab-cdef-0123-456789abcdef~abcdefgh", kit.Base))
	}
	stores.Record(t, s, batch...)
	one := client.MemoryUsage(ctx, stores.DevicesOfChat, 0).Val()
	for i := range batch {
		batch[i].ID += "2"
	}
	stores.Record(t, s, batch...)
	two := client.MemoryUsage(ctx, stores.DevicesOfChat, 0).Val()
	t.Logf("%.0f bytes for a user with one device, %.0f more for another one", float64(one)/n, float64(two-one)/n)
	require.LessOrEqual(t, one, int64(300*n))
	require.LessOrEqual(t, two-one, int64(150*n))
}

// TestLostDevices: if Redis loses the records of devices, the leave of one device is not the user's for the window,
// since others may be live. A leave on all devices is.
func TestLostDevices(t *testing.T) {
	ctx, url, client := stores.StartRedis(t)
	for _, looks := range []bool{false, true} {
		a, b := stores.New(t, redisstore.Options{URL: url}), stores.New(t, redisstore.Options{URL: url})
		require.NoError(t, a.DeleteNamespace(ctx, "chat"))
		now := kit.Now(t, a)
		kit.Ping(t, a, "bob", now)
		require.NoError(t, client.ZAdd(ctx, stores.Chat, redis.Z{Score: 9e15, Member: "bob"}).Err())
		stores.Record(t, a, stores.OnDevice("bob", "tab", now)) // makes no record, so none is lost
		require.True(t, stores.Record(t, b, stores.ByeOnDevice("tab", now-1)).Left)
		for _, id := range []string{"tab", "phone", "pad"} {
			stores.Record(t, a, stores.OnDevice("alice", id, now))
		}
		require.Equal(t, lastseen.State{At: now}, kit.Ping(t, b, "alice", now))
		require.NoError(t, client.Del(ctx, stores.DevicesOfChat).Err())
		if looks { // another server finds the loss, and corrects the hash
			kit.Ping(t, stores.New(t, redisstore.Options{URL: url}), "alice", now)
		}
		require.Equal(t, lastseen.State{At: now + 1}, stores.Record(t, b, stores.ByeOnDevice("tab", now+1)))
		require.Equal(t, lastseen.State{At: now + 2}, stores.Record(t, a, stores.ByeOnDevice("phone", now+2)))
		require.True(t, kit.Leave(t, b, "alice", now+3).Left)
		stores.Eventually(t, func() bool {
			now = max(now+1, kit.Now(t, a))
			states, err := a.RecordDevices(ctx, "chat", 20*time.Millisecond, []store.DeviceEvent{
				stores.OnDevice("alice", "new", now), stores.ByeOnDevice("new", now+1),
			})
			require.NoError(t, err)
			return states[1].Left
		})
	}
}
