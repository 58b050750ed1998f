package redisstore_test

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
)

// TestKeysOfDevices: operators back them up, allow them and read them. See docs/decisions/redis-keys.md.
func TestKeysOfDevices(t *testing.T) {
	ctx, client, s := startStore(t)
	require.NoError(t, ping(s, "chat", "alice"))
	require.Len(t, client.Keys(ctx, "*").Val(), 4, "a namespace without devices has no keys for them")
	require.Len(t, client.HGetAll(ctx, "presence::meta").Val(), 1)

	tab := onDevice("alice", "tab 1", base+10)
	tab.Meta, tab.Idle = `{"app":"1.2"}`, base+4
	record(t, s, tab, byeOnDevice("phone", base+5), onDevice("carol d", "x", base))
	leaveAt(t, s, base+7, "bob")
	record(t, s, onDevice("alice", "tab 1", base+20))
	records, metas := recordsKey("presence:chat"), metasKey
	require.ElementsMatch(t,
		[]string{"presence:chat", "presence::namespaces", "presence::meta", sidesKey(chat), records, metas},
		client.Keys(ctx, "*").Val())
	require.Equal(t, map[string]string{
		"alice": "600000 0\n" +
			"web tab 1\t0 0 1700000000010 1700000000020\n" +
			"web phone\t1 0 1700000000005 1700000000005",
		"bob":     "0 1700000000007",
		"carol d": "600000 0\nweb x\t0 0 1700000000000 1700000000000",
	}, client.HGetAll(ctx, records).Val())
	require.Equal(t, map[string]string{"alice\ntab 1": `{"app":"1.2"}`}, client.HGetAll(ctx, metas).Val())
	require.Equal(t, "-mr", sidesOf(t, client))

	require.NoError(t, s.Forget(ctx, "chat", "alice"))
	require.Equal(t, []string{"bob", "carol d"}, client.ZRange(ctx, "presence:chat", 0, -1).Val())
	require.ElementsMatch(t, []string{"bob", "carol d"}, client.HKeys(ctx, records).Val())
	require.Zero(t, client.Exists(ctx, metas).Val())
	_, err := trim(s, time.Hour)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"": ""}, client.HGetAll(ctx, records).Val(), "leaves still concern devices")
	removed, err := s.RemoveEmpty(ctx, "chat")
	require.NoError(t, err)
	require.True(t, removed)
	require.Empty(t, client.Keys(ctx, "*").Val())
}

// TestDevicesAreDeleted: nothing is left of them with the namespace.
func TestDevicesAreDeleted(t *testing.T) {
	ctx, url, client := start(t)
	for _, shards := range []int{1, 7} {
		o := redisstore.Options{URL: url, Shards: shards}
		s, other := newStore(t, o), newStore(t, o)
		record50 := func() {
			for _, user := range numbered("u", 50) {
				item := onDevice(user, "tab", base)
				item.Meta = "{}"
				record(t, s, item)
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
		removed, err := other.RemoveEmpty(ctx, "chat")
		require.NoError(t, err)
		require.True(t, removed)
		require.Empty(t, client.Keys(ctx, "*").Val())
	}
}

// TestRemoveEmptyKeepsDevices: of a namespace that has users, all stays.
func TestRemoveEmptyKeepsDevices(t *testing.T) {
	ctx, url, client := start(t)
	s := newStore(t, redisstore.Options{URL: url, Shards: 7})
	record(t, s, onDevice("alice", "tab", base))
	before := contents(t, client)
	removed, err := s.RemoveEmpty(ctx, "chat")
	require.NoError(t, err)
	require.False(t, removed)
	require.Equal(t, before, contents(t, client))
}

// TestForeignRecords: text that we would not write counts as no devices, is logged once, and is replaced.
func TestForeignRecords(t *testing.T) {
	testenv.SkipWithRace(t, "it is about what Redis does")
	ctx, url, client := start(t)
	line := func(id string, at lastseen.Instant) string { return fmt.Sprintf("\nweb %s\t0 0 1 %d", id, at) }
	many := "600000 0"
	for i := range lastseen.MaxDevices + 1 {
		many += line(fmt.Sprint(i), base)
	}
	for _, text := range []string{
		"", " ", "x", "600000", "600000 0 ", "600000 x", "-1 0", "600000 0\n", "600000 0\nweb tab",
		"600000 0" + line("tab", base) + "\n",
		"600000 0" + line("tab", base) + "x", "600000 0\nweb tab\t2 0 1 1", "600000 0\nweb tab\t0 0 1700000000000", "600000 0" + line("", base),
		"600000 0" + line("a", base) + line("tab", base+1), "600000 0" + line("tab", 1e15), many,
		"600000 0" + line(strings.Repeat("tab", 3000), base), "\x00\xff", "600000 0\nweb tab\t0 0 1 1700000000000\t0 0 1 5",
		"99999999999999999999 0" + line("tab", base),
	} {
		s, log := newLoggedStore(t, redisstore.Options{URL: url})
		require.NoError(t, s.DeleteNamespace(ctx, "chat"))
		record(t, s, onDevice("bob", "tab", base))
		for _, user := range []string{"alice", "carol"} {
			require.NoError(t, ping(s, "chat", user))
			require.NoError(t, client.HSet(ctx, recordsKey("presence:chat"), user, text).Err())
			live, gone := devicesOf(t, s, user)
			require.Empty(t, live, "%q", text)
			require.Empty(t, gone, "%q", text)
		}
		require.True(t, record(t, s, byeOnDevice("other", base+2)).Left, "%q", text)
		require.Equal(t, lastseen.State{At: base + 2}, record(t, s, onDevice("carol", "new", base+2)), "%q", text)
		live, _ := devicesOf(t, s, "carol")
		require.Equal(t, []string{"new"}, live)
		live, gone := devicesOf(t, s, "alice")
		require.Empty(t, live)
		require.Equal(t, []string{"other"}, gone)
		require.NoError(t, s.Forget(ctx, "chat", "carol"))
		require.NoError(t, s.Close())
		require.Equal(t, 1, log.count("cannot be read"), "%q: %s", text, log)
	}
}

// TestSizeOfRecords: docs/operations.md names it.
func TestSizeOfRecords(t *testing.T) {
	testenv.SkipWithRace(t, "it is about what Redis does")
	ctx, client, s := startStore(t)
	const n = 10_000
	var batch []store.DeviceSighting
	for i := range n {
		batch = append(batch, onDevice(fmt.Sprintf("u%07d", i), "01234567-89ab-cdef-0123-456789abcdef~abcdefgh", base))
	}
	record(t, s, batch...)
	one := client.MemoryUsage(ctx, recordsKey("presence:chat"), 0).Val()
	for i := range batch {
		batch[i].ID += "2"
	}
	record(t, s, batch...)
	two := client.MemoryUsage(ctx, recordsKey("presence:chat"), 0).Val()
	t.Logf("%.0f bytes for a user with one device, %.0f more for another one", float64(one)/n, float64(two-one)/n)
	require.LessOrEqual(t, one, int64(300*n))
	require.LessOrEqual(t, two-one, int64(150*n))
}

// TestLostDevices: if Redis loses the records of devices, the leave of one device is not the user's for the window,
// since others may be live. A leave on all devices is.
func TestLostDevices(t *testing.T) {
	ctx, url, client := start(t)
	for _, looks := range []bool{false, true} {
		a, b := newStore(t, redisstore.Options{URL: url}), newStore(t, redisstore.Options{URL: url})
		require.NoError(t, a.DeleteNamespace(ctx, "chat"))
		now := nowOf(t, a)
		pingAt(t, a, "bob", now)
		require.NoError(t, client.ZAdd(ctx, chat, redis.Z{Score: 9e15, Member: "bob"}).Err())
		record(t, a, onDevice("bob", "tab", now)) // makes no record, so none is lost
		require.True(t, record(t, b, byeOnDevice("tab", now-1)).Left)
		record(t, a, onDevice("alice", "tab", now), onDevice("alice", "phone", now), onDevice("alice", "pad", now))
		require.Equal(t, lastseen.State{At: now}, pingAt(t, b, "alice", now))
		require.NoError(t, client.Del(ctx, recordsKey(chat)).Err())
		if looks { // another server finds the loss, and corrects the hash
			pingAt(t, newStore(t, redisstore.Options{URL: url}), "alice", now)
		}
		require.Equal(t, lastseen.State{At: now + 1}, record(t, b, byeOnDevice("tab", now+1)))
		require.Equal(t, lastseen.State{At: now + 2}, record(t, a, byeOnDevice("phone", now+2)))
		require.True(t, leaveAt(t, b, now+3, "alice")[0].Left)
		require.Eventually(t, func() bool {
			now = max(now+1, nowOf(t, a))
			states, err := a.RecordDevices(ctx, "chat", 20*time.Millisecond, []store.DeviceSighting{
				onDevice("alice", "new", now), byeOnDevice("new", now+1),
			})
			require.NoError(t, err)
			return states[1].Left
		}, longTimeout, time.Millisecond)
	}
}
