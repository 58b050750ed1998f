package redisstore_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// unaware returns two servers, of which the second one checked the namespace before the first one recorded a device of
// alice, at base.
func unaware(t *testing.T, o redisstore.Options) (aware, other *redisstore.Store) {
	t.Helper()
	require.NoError(t, newClient(t, o.URL).FlushAll(context.Background()).Err())
	aware, other = newStore(t, o), newStore(t, o)
	require.NoError(t, ping(other, "chat", "somebody"))
	record(t, aware, onDevice("alice", "tab", base))
	return aware, other
}

// TestServerThatDoesNotKnowOfDevices: until it checks the namespace again, its leaves do not mark records. They count
// all the same, and what it deletes or reads is right.
func TestServerThatDoesNotKnowOfDevices(t *testing.T) {
	t.Parallel()
	ctx, url := context.Background(), redistest.Start(t)
	for _, shards := range []int{1, 7} {
		o := redisstore.Options{URL: url, Shards: shards}
		aware, other := unaware(t, o)
		states, err := other.Leave(ctx, "chat", sightingsAt(base+5, "alice"))
		require.NoError(t, err)
		require.Equal(t, []lastseen.State{{At: base + 5, Left: true}}, states)
		live, gone := devicesOf(t, aware, "alice")
		require.Empty(t, live)
		require.Equal(t, []string{"tab"}, gone)
		require.Equal(t, lastseen.State{At: base + 6}, record(t, aware, onDevice("alice", "phone", base+6)))
		require.True(t, record(t, aware, byeOnDevice("alice", "phone", base+7)).Left, "the tab does not count")

		_, other = unaware(t, o)
		live, _ = devicesOf(t, other, "alice")
		require.Equal(t, []string{"tab"}, live, "it sees what others wrote")
		aware, other = unaware(t, o)
		require.NoError(t, other.Forget(ctx, "chat", "alice"))
		require.NoError(t, ping(other, "chat", "alice"))
		live, gone = devicesOf(t, aware, "alice")
		require.Empty(t, live)
		require.Empty(t, gone)
		aware, other = unaware(t, o)
		_, err = trim(other, "chat", time.Hour)
		require.NoError(t, err)
		require.NoError(t, ping(other, "chat", "alice"))
		live, _ = devicesOf(t, aware, "alice")
		require.Empty(t, live)
	}
}

// TestRecordsWithoutUser: what is left of a user who is not in the set any longer does not count, and is deleted with
// the next device.
func TestRecordsWithoutUser(t *testing.T) {
	t.Parallel()
	ctx, url := context.Background(), redistest.Start(t)
	client := newClient(t, url)
	s := newStore(t, redisstore.Options{URL: url})
	item := onDevice("alice", "tab", base)
	item.Meta = "{}"
	record(t, s, item, onDevice("bob", "tab", base))
	require.NoError(t, client.ZRem(ctx, "presence:chat", "alice").Err())
	live, gone := devicesOf(t, s, "alice")
	require.Empty(t, live)
	require.Empty(t, gone)
	require.Equal(t, lastseen.State{At: base + 1, Left: true}, record(t, s, byeOnDevice("alice", "phone", base+1)))
	live, gone = devicesOf(t, s, "alice")
	require.Empty(t, live)
	require.Equal(t, []string{"phone"}, gone)
	require.Zero(t, client.Exists(ctx, metasKey("presence:chat")).Val())
}

// TestDevicesAfterFlush: Redis lost everything, and servers still think that it has the namespace and its bit.
func TestDevicesAfterFlush(t *testing.T) {
	t.Parallel()
	ctx, url := context.Background(), redistest.Start(t)
	client := newClient(t, url)
	for _, shards := range []int{1, 7} {
		s := newStore(t, redisstore.Options{URL: url, Shards: shards})
		for range 3 {
			item := onDevice("alice", "tab", base)
			item.Meta = "{}"
			record(t, s, item, onDevice("bob", "tab", base))
			require.True(t, client.HExists(ctx, "presence::meta", devicesBit).Val())
			infos, err := s.Namespaces(ctx, "", 10)
			require.NoError(t, err)
			require.Equal(t, []store.NamespaceInfo{{Name: "chat", Newest: base}}, infos)
			require.NoError(t, client.FlushAll(ctx).Err())
			live, gone := devicesOf(t, s, "alice")
			require.Empty(t, live)
			require.Empty(t, gone)
		}
	}
}

// TestLostDevicesBit: Redis has lost the bit, but not the devices. The next device brings it back.
func TestLostDevicesBit(t *testing.T) {
	t.Parallel()
	ctx, url := context.Background(), redistest.Start(t)
	client := newClient(t, url)
	s := newStore(t, redisstore.Options{URL: url})
	record(t, s, onDevice("alice", "tab", base), onDevice("alice", "phone", base))
	require.NoError(t, client.HDel(ctx, "presence::meta", devicesBit).Err())
	s.ExpireAgreements() // as after ten seconds
	live, _ := devicesOf(t, s, "alice")
	require.Equal(t, []string{"phone", "tab"}, live)
	require.NoError(t, s.Forget(ctx, "chat", "nobody"))
	require.Equal(t, lastseen.State{At: base + 1}, record(t, s, byeOnDevice("alice", "tab", base+1)))
	require.True(t, client.HExists(ctx, "presence::meta", devicesBit).Val())
}

// TestDevicesWithLeastRights: the commands of devices are among those that every server needs. Those of feeds are not,
// and the feed ends if they are missing.
func TestDevicesWithLeastRights(t *testing.T) {
	t.Parallel()
	ctx, url := context.Background(), redistest.Start(t)
	admin := newClient(t, url)
	for _, streams := range []bool{false, true} {
		require.NoError(t, admin.FlushAll(ctx).Err())
		restrict(t, admin)
		full := newStore(t, redisstore.Options{URL: url})
		require.NoError(t, ping(full, "chat", "somebody"))
		require.NoError(t, full.RecordChanges(ctx, "chat", hours))
		setStreams(t, admin, streams)
		s := newStore(t, redisstore.Options{URL: asApp(url)})
		s.Monitor(ctx)
		item := onDevice("alice", "tab", base)
		item.Meta = "{}"
		record(t, s, item, onDevice("alice", "phone", base))
		require.Equal(t, lastseen.State{At: base + 1}, record(t, s, byeOnDevice("alice", "tab", base+1)))
		_, err := s.Leave(ctx, "chat", sightingsAt(base+2, "alice", "bob"))
		require.NoError(t, err)
		live, gone := devicesOf(t, s, "alice")
		require.Empty(t, live)
		require.Equal(t, []string{"tab", "phone"}, gone)
		require.NoError(t, s.Forget(ctx, "chat", "alice"))
		_, err = trim(s, "chat", time.Hour)
		require.NoError(t, err)
		require.Equal(t, streams, admin.Exists(ctx, feedKey("presence:chat")).Val() == 1)
		require.NoError(t, s.DeleteNamespace(ctx, "chat"))
	}
}

// TestNoDevices: sets that other programs write have none, nor contacts or calls; nor do prefixes with braces.
func TestNoDevices(t *testing.T) {
	t.Parallel()
	ctx, url := context.Background(), redistest.Start(t)
	requireNone := func(s *redisstore.Store) {
		for name, call := range allCalls(s, "chat") {
			switch {
			case strings.HasSuffix(name, "Devices"):
				require.ErrorIs(t, call(), store.ErrNoDevices)
			case strings.HasSuffix(name, "Contacts"):
				require.ErrorIs(t, call(), store.ErrNoContacts)
			case strings.Contains(name, "Call"):
				require.ErrorIs(t, call(), store.ErrNoCalls)
			default:
				require.NoError(t, call(), name)
			}
		}
		_, err := s.RecordDevices(ctx, "chat", window, nil)
		require.ErrorIs(t, err, store.ErrNoDevices)
		require.Empty(t, newClient(t, url).Keys(ctx, "*device*").Val())
		require.NoError(t, newClient(t, url).FlushAll(ctx).Err())
	}
	for _, layout := range []redisstore.Layout{
		{Key: "presence"}, {Unit: redisstore.Milliseconds}, {Unit: redisstore.Seconds},
	} {
		requireNone(newSharedStore(t, url, layout))
	}
	for _, prefix := range []string{"{app}:", "app{", "app}:", "{}"} {
		var log bytes.Buffer
		s, err := redisstore.Open(redisstore.Options{
			URL: url, Prefix: prefix, Timeout: longTimeout, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		})
		require.NoError(t, err)
		requireNone(s)
		require.NoError(t, s.Close())
		require.Contains(t, log.String(), "devices, availability and contacts")
	}
}

// TestDevicesAndInvalidScores: scores beyond any time stay as they are.
func TestDevicesAndInvalidScores(t *testing.T) {
	t.Parallel()
	ctx, url := context.Background(), redistest.Start(t)
	client := newClient(t, url)
	s := newStore(t, redisstore.Options{URL: url})
	record(t, s, onDevice("alice", "tab", base))
	for _, score := range []string{"4503599627370496", "6203599627370496", "-4503599627370496", "inf", "-inf"} {
		require.NoError(t, client.Do(ctx, "ZADD", "presence:chat", score, "alice").Err())
		before := contents(t, client)
		require.Equal(t, lastseen.State{}, record(t, s, onDevice("alice", "tab", base+1)), score)
		require.Equal(t, lastseen.State{}, record(t, s, byeOnDevice("alice", "tab", base+2)), score)
		states, err := s.Leave(ctx, "chat", sightingsAt(base+3, "alice"))
		require.NoError(t, err)
		require.Equal(t, []lastseen.State{{}}, states)
		live, gone := devicesOf(t, s, "alice")
		require.Empty(t, live)
		require.Empty(t, gone)
		require.Equal(t, before, contents(t, client), score)
	}
	require.NoError(t, client.Do(ctx, "ZADD", "presence:chat", "1700000000000.5", "alice").Err())
	require.Equal(t, lastseen.State{At: base}, record(t, s, onDevice("alice", "tab", base)))
	require.Equal(t, lastseen.State{At: base + 1}, record(t, s, onDevice("alice", "tab", base+1)))
}

// TestMostDevices: of more than MaxDevices those heard last are kept, and at one time those with the lower IDs, byte
// for byte. Only those that are kept count.
func TestMostDevices(t *testing.T) {
	t.Parallel()
	ctx, url := context.Background(), redistest.Start(t)
	client := newClient(t, url)
	s := newStore(t, redisstore.Options{URL: url})
	var want []string
	for _, id := range append([]string{"A", "B", "Z", "a", "aa", "b", "é", "😀"}, numbered("c", 40)...) {
		item := onDevice("alice", id, base)
		item.Meta = "{}"
		require.Equal(t, lastseen.State{At: base}, record(t, s, item))
		want = append(want, id)
		slices.Sort(want)
		want = want[:min(len(want), lastseen.MaxDevices)]
		text := client.HGet(ctx, recordsKey("presence:chat"), "alice").Val()
		require.Equal(t, "600000 0\nweb "+strings.Join(want, "\t0 0 1700000000000 1700000000000\nweb ")+
			"\t0 0 1700000000000 1700000000000", text)
		require.Len(t, client.HKeys(ctx, metasKey("presence:chat")).Val(), len(want))
	}
	require.NoError(t, s.Forget(ctx, "chat", "alice"))
	require.Zero(t, client.Exists(ctx, metasKey("presence:chat")).Val())

	record(t, s, onDevice("alice", "still", base))
	for i := range lastseen.MaxDevices {
		state := record(t, s, byeOnDevice("alice", fmt.Sprint(i), base+1))
		require.Equal(t, lastseen.State{At: base + 1, Left: i == lastseen.MaxDevices-1}, state, i)
	}
}
