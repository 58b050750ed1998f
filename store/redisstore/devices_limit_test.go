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
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// withDevices gives users as many devices as a user can have, with a meta if it is not empty. It copies what the store
// wrote for the first of them, which is much faster.
func withDevices(t *testing.T, s store.Store, client *redis.Client, users []string, meta string) {
	t.Helper()
	ctx, first := context.Background(), users[0]
	for i := range lastseen.MaxDevices {
		item := onDevice(first, fmt.Sprintf("01234567-89ab-cdef-%02d~abcdefgh", i), base+lastseen.Instant(i))
		item.Meta = meta
		record(t, s, item)
	}
	text := client.HGet(ctx, recordsKey("presence:chat"), first).Val()
	metas := client.HGetAll(ctx, metasKey("presence:chat")).Val()
	score := client.ZScore(ctx, "presence:chat", first).Val()
	_, err := client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, user := range users[1:] {
			p.ZAdd(ctx, "presence:chat", redis.Z{Score: score, Member: user})
			p.HSet(ctx, recordsKey("presence:chat"), user, text)
			var fields []any
			for field, meta := range metas {
				fields = append(fields, user+strings.TrimPrefix(field, first), meta)
			}
			if meta != "" {
				p.HSet(ctx, metasKey("presence:chat"), fields...)
			}
		}
		return nil
	})
	require.NoError(t, err)
}

// TestLeavesAtTheLimit: a bulk leave of as many users as a request can have, with as many devices as they can have,
// changes the first line of their records alone. Else it would take Redis most of a second.
func TestLeavesAtTheLimit(t *testing.T) {
	t.Parallel()
	ctx, url := context.Background(), redistest.Start(t)
	client, s := newClient(t, url), newStore(t, redisstore.Options{URL: url})
	users := numbered("u", 10_000)
	withDevices(t, s, client, users, "")
	records := recordsKey("presence:chat")
	_, lines, _ := strings.Cut(client.HGet(ctx, records, users[0]).Val(), "\n")

	for range 2 { // the second one changes nothing
		states, err := s.Leave(ctx, "chat", sightingsAt(base+100, users...))
		require.NoError(t, err)
		for i, text := range client.HMGet(ctx, records, users...).Val() {
			require.Equal(t, "600000 1700000000100\n"+lines, text)
			require.Equal(t, lastseen.State{At: base + 100, Left: true}, states[i])
		}
	}
	live, gone := devicesOf(t, s, users[9999])
	require.Empty(t, live)
	require.Len(t, gone, lastseen.MaxDevices)
	require.NoError(t, ping(s, "chat", users[9999]))
	live, _ = devicesOf(t, s, users[9999])
	require.Empty(t, live, "a ping without a device does not bring them back")
}

// TestTrimAtTheLimit: Redis serves others between the parts of a trim of users with devices.
func TestTrimAtTheLimit(t *testing.T) {
	t.Parallel()
	ctx, url := context.Background(), redistest.Start(t)
	client, s := newClient(t, url), newStore(t, redisstore.Options{URL: url})
	users := numbered("u", store.MaxTrim+10)
	withDevices(t, s, client, users, "{}")
	for _, want := range []int{store.MaxTrim, 10, 0} {
		result, err := trim(s, "chat", time.Hour)
		require.NoError(t, err)
		require.Equal(t, store.TrimResult{Deleted: want}, result)
	}
	stats := client.Info(ctx, "commandstats").Val()
	require.Contains(t, stats, "cmdstat_zremrangebyrank:calls=11,", "each of at most 100")
	require.Zero(t, client.Exists(ctx, "presence:chat", recordsKey("presence:chat"), metasKey("presence:chat")).Val())
}

// TestRecordsThatAreTooOld: a ping of another device leaves them in the text, where they do not exist any longer: a
// device that is heard again has a new record.
func TestRecordsThatAreTooOld(t *testing.T) {
	t.Parallel()
	ctx, url := context.Background(), redistest.Start(t)
	client, s := newClient(t, url), newStore(t, redisstore.Options{URL: url})
	tab, late := onDevice("alice", "tab", base), base.Add(window)
	tab.Meta = "{}"
	record(t, s, tab, onDevice("alice", "phone", base))
	record(t, s, onDevice("alice", "phone", late+1))
	require.Contains(t, client.HGet(ctx, recordsKey("presence:chat"), "alice").Val(), "tab")
	live, _ := devicesOf(t, s, "alice")
	require.Equal(t, []string{"phone"}, live)
	record(t, s, onDevice("alice", "tab", late+2))
	devices, err := s.ReadDevices(ctx, "chat", "alice")
	require.NoError(t, err)
	require.Equal(t, "tab", devices.Records[0].ID)
	require.Equal(t, late+2, devices.Records[0].Since)
	require.Equal(t, []string{"", ""}, devices.Meta)
}
