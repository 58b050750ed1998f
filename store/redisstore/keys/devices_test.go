package keys

import (
	"context"
	"fmt"
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
	"github.com/lastseen/lastseen/store/storetest/devices"
	"github.com/lastseen/lastseen/store/storetest/kit"
	"github.com/lastseen/lastseen/store/storetest/redistest"
	"github.com/lastseen/lastseen/store/storetest/redistest/stores"
)

// unaware returns two servers, of which the second one checked the namespace before the first one recorded a device of
// alice, at base.
func unaware(t *testing.T, o redisstore.Options) (aware, other *redisstore.Store) {
	t.Helper()
	require.NoError(t, stores.NewClient(t, o.URL).FlushAll(context.Background()).Err())
	aware, other = stores.New(t, o), stores.New(t, o)
	require.NoError(t, stores.Ping(other, "chat", "somebody"))
	stores.Record(t, aware, stores.OnDevice("alice", "tab", kit.Base))
	return aware, other
}

// TestServerThatDoesNotKnowOfDevices: until it checks the namespace again, its leaves do not mark records. They count
// all the same, and what it deletes or reads is right.
func TestServerThatDoesNotKnowOfDevices(t *testing.T) {
	t.Parallel()
	ctx, url := context.Background(), redistest.Start(t)
	for _, shards := range testenv.Variants(7, 1) {
		o := redisstore.Options{URL: url, Shards: shards}
		aware, other := unaware(t, o)
		require.Equal(t, lastseen.State{At: kit.Base + 5, Left: true}, kit.Leave(t, other, "alice", kit.Base+5))
		live, gone := stores.Devices(t, aware, "alice")
		require.Empty(t, live)
		require.Equal(t, []string{"tab"}, gone)
		require.Equal(t, kit.Here(kit.Base+6), stores.Record(t, aware, stores.OnDevice("alice", "phone", kit.Base+6)))
		require.True(t, stores.Record(t, aware, stores.ByeOnDevice("phone", kit.Base+7)).Left, "the tab does not count")

		_, other = unaware(t, o)
		live, _ = stores.Devices(t, other, "alice")
		require.Equal(t, []string{"tab"}, live, "it sees what others wrote")
		aware, other = unaware(t, o)
		require.NoError(t, other.Forget(ctx, "chat", "alice"))
		require.NoError(t, stores.Ping(other, "chat", "alice"))
		live, gone = stores.Devices(t, aware, "alice")
		require.Empty(t, live)
		require.Empty(t, gone)
		aware, other = unaware(t, o)
		_, err := stores.Trim(other, time.Hour)
		require.NoError(t, err)
		require.NoError(t, stores.Ping(other, "chat", "alice"))
		live, _ = stores.Devices(t, aware, "alice")
		require.Empty(t, live)
	}
}

// TestRecordsWithoutUser: what is left of a user who is not in the set any longer does not count, and is deleted with
// the next device.
func TestRecordsWithoutUser(t *testing.T) {
	ctx, client, s := stores.Start(t)
	item := stores.OnDevice("alice", "tab", kit.Base)
	item.Meta = "{}"
	stores.Record(t, s, item, stores.OnDevice("bob", "tab", kit.Base))
	require.NoError(t, client.ZRem(ctx, "presence:chat", "alice").Err())
	live, gone := stores.Devices(t, s, "alice")
	require.Empty(t, live)
	require.Empty(t, gone)
	require.Equal(t, kit.Left(kit.Base+1), stores.Record(t, s, stores.ByeOnDevice("phone", kit.Base+1)))
	live, gone = stores.Devices(t, s, "alice")
	require.Empty(t, live)
	require.Equal(t, []string{"phone"}, gone)
	require.Zero(t, client.Exists(ctx, stores.MetasOfChat).Val())
}

// TestDevicesAndInvalidScores: scores beyond any time stay as they are.
func TestDevicesAndInvalidScores(t *testing.T) {
	ctx, client, s := stores.Start(t)
	stores.Record(t, s, stores.OnDevice("alice", "tab", kit.Base))
	for _, score := range []string{"4503599627370496", "6203599627370496", "-4503599627370496", "inf", "-inf"} {
		require.NoError(t, client.Do(ctx, "ZADD", "presence:chat", score, "alice").Err())
		before := stores.Contents(t, client)
		require.Equal(t, lastseen.State{}, stores.Record(t, s, stores.OnDevice("alice", "tab", kit.Base+1)), score)
		require.Equal(t, lastseen.State{}, stores.Record(t, s, stores.ByeOnDevice("tab", kit.Base+2)), score)
		require.Equal(t, lastseen.State{}, kit.Leave(t, s, "alice", kit.Base+3))
		live, gone := stores.Devices(t, s, "alice")
		require.Empty(t, live)
		require.Empty(t, gone)
		require.Equal(t, before, stores.Contents(t, client), score)
	}
	require.NoError(t, client.Do(ctx, "ZADD", "presence:chat", "1700000000000.5", "alice").Err())
	require.Equal(t, lastseen.State{At: kit.Base}, stores.Record(t, s, stores.OnDevice("alice", "tab", kit.Base)))
	require.Equal(t, lastseen.State{At: kit.Base + 1}, stores.Record(t, s, stores.OnDevice("alice", "tab", kit.Base+1)))
}

// TestMostDevices: of more than MaxDevices that are live those active last are kept, and at one time those with the
// lower IDs, byte for byte.
func TestMostDevices(t *testing.T) {
	ctx, client, s := stores.Start(t)
	var want []string
	for _, id := range append([]string{"A", "B", "Z", "a", "aa", "b", "é", "😀"}, stores.Numbered("c", 40)...) {
		item := stores.OnDevice("alice", id, kit.Base)
		item.Meta = "{}"
		require.Equal(t, lastseen.State{At: kit.Base}, stores.Record(t, s, item))
		want = append(want, id)
		slices.Sort(want)
		want = want[:min(len(want), lastseen.MaxDevices)]
		text := client.HGet(ctx, stores.DevicesOfChat, "alice").Val()
		require.Equal(t, "600000 0\nweb "+strings.Join(want, "\t0 0 1700000000000 1700000000000\nweb ")+
			"\t0 0 1700000000000 1700000000000", text)
		require.Len(t, client.HKeys(ctx, stores.MetasOfChat).Val(), len(want))
	}
	require.NoError(t, s.Forget(ctx, "chat", "alice"))
	require.Zero(t, client.Exists(ctx, stores.MetasOfChat).Val())
}

// withDevices gives users as many devices as a user can have, with a meta if it is not empty. It copies what the store
// wrote for the first of them, which is much faster.
func withDevices(t *testing.T, s store.Store, client *redis.Client, users []string, meta string) {
	t.Helper()
	ctx, first := context.Background(), users[0]
	for i := range lastseen.MaxDevices {
		item := stores.OnDevice(first, fmt.Sprintf("01234567-89ab-cdef-%02d~abcdefgh", i), kit.Base+lastseen.Instant(i))
		item.Meta = meta
		stores.Record(t, s, item)
	}
	text := client.HGet(ctx, stores.DevicesOfChat, first).Val()
	metas := client.HGetAll(ctx, stores.MetasOfChat).Val()
	score := client.ZScore(ctx, "presence:chat", first).Val()
	_, err := client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, user := range users[1:] {
			p.ZAdd(ctx, "presence:chat", redis.Z{Score: score, Member: user})
			p.HSet(ctx, stores.DevicesOfChat, user, text)
			var fields []any
			for field, meta := range metas {
				fields = append(fields, user+strings.TrimPrefix(field, first), meta)
			}
			if meta != "" {
				p.HSet(ctx, stores.MetasOfChat, fields...)
			}
		}
		return nil
	})
	require.NoError(t, err)
}

// TestLeavesAtTheLimit: a bulk leave of as many users as a request can have, with as many devices as they can have,
// changes the first line of their records alone. Else it would take Redis most of a second.
func TestLeavesAtTheLimit(t *testing.T) {
	testenv.SkipWithRace(t, "it is about what Redis does")
	ctx, client, s := stores.Start(t)
	users := stores.Numbered("u", 10_000)
	withDevices(t, s, client, users, "")
	records := stores.DevicesOfChat
	_, lines, _ := strings.Cut(client.HGet(ctx, records, users[0]).Val(), "\n")

	for range 2 { // the second one changes nothing
		states := kit.Write(s.Leave).In(t, "chat", kit.Base+100, users...)
		for i, text := range client.HMGet(ctx, records, users...).Val() {
			require.Equal(t, "600000 1700000000100\n"+lines, text)
			require.Equal(t, lastseen.State{At: kit.Base + 100, Left: true}, states[i])
		}
	}
	live, gone := stores.Devices(t, s, users[9999])
	require.Empty(t, live)
	require.Len(t, gone, lastseen.MaxDevices)
	require.NoError(t, stores.Ping(s, "chat", users[9999]))
	live, _ = stores.Devices(t, s, users[9999])
	require.Empty(t, live, "a ping without a device does not bring them back")
}

// TestTrimAtTheLimit: Redis serves others between the parts of a trim of users with devices.
func TestTrimAtTheLimit(t *testing.T) {
	testenv.SkipWithRace(t, "it is about what Redis does")
	ctx, client, s := stores.Start(t)
	users := stores.Numbered("u", store.MaxTrim+10)
	withDevices(t, s, client, users, "{}")
	for _, want := range []int{store.MaxTrim, 10, 0} {
		result, err := stores.Trim(s, time.Hour)
		require.NoError(t, err)
		require.Equal(t, store.TrimResult{Deleted: want}, result)
	}
	stats := client.Info(ctx, "commandstats").Val()
	require.Contains(t, stats, "cmdstat_zremrangebyrank:calls=11,", "each of at most 100")
	require.Zero(t, client.Exists(ctx, "presence:chat", stores.MetasOfChat).Val())
	require.Equal(t, []string{""}, client.HKeys(ctx, stores.DevicesOfChat).Val())
}

// TestRecordsThatAreTooOld: a ping of another device leaves them in the text, where they do not exist any longer: a
// device that is active again has a new record.
func TestRecordsThatAreTooOld(t *testing.T) {
	ctx, client, s := stores.Start(t)
	tab, late := stores.OnDevice("alice", "tab", kit.Base), kit.Base.Add(stores.Window)
	tab.Meta = "{}"
	stores.Record(t, s, tab, stores.OnDevice("alice", "phone", kit.Base))
	stores.Record(t, s, stores.OnDevice("alice", "phone", late+1))
	require.Contains(t, client.HGet(ctx, stores.DevicesOfChat, "alice").Val(), "tab")
	live, _ := stores.Devices(t, s, "alice")
	require.Equal(t, []string{"phone"}, live)
	stores.Record(t, s, stores.OnDevice("alice", "tab", late+2))
	devices := devices.Of(t, s, "alice")
	require.Equal(t, "tab", devices.Records[0].ID)
	require.Equal(t, late+2, devices.Records[0].Since)
	require.Equal(t, []string{"", ""}, devices.Meta)
}
