package keys

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/storetest/availability"
	"github.com/lastseen/lastseen/store/storetest/kit"
	"github.com/lastseen/lastseen/store/storetest/redistest/stores"
)

const (
	detailsOfChat = "presence:details:{presence:chat}"
	endsOfChat    = "presence:ends:{presence:chat}"
)

// TestKeysOfAvailability: operators back them up, allow them and read them. See docs/decisions/redis-keys.md.
func TestKeysOfAvailability(t *testing.T) {
	ctx, client, s := stores.Start(t)
	require.NoError(t, stores.Ping(s, "chat", "alice"))
	require.Len(t, client.Keys(ctx, "*").Val(), 4, "a namespace in which no user says anything has no keys for it")

	now := kit.Now(t, s)
	end := now.Add(time.Hour)
	availability.Set(t, s, "alice", availability.Busy)
	availability.Set(t, s, "bob", lastseen.AvailabilityState{Note: "back  soon", Until: end})
	idle := stores.OnDevice("carol", "tab", now)
	idle.Idle = now - 5
	stores.Record(t, s, idle)
	availability.SetAt(t, s, "alice", availability.Invisible, now)
	availability.SetAt(t, s, "dave", lastseen.AvailabilityState{Availability: lastseen.Invisible, Until: end}, now)
	availability.SetAt(t, s, "erin", availability.Invisible, now)
	availability.SetAt(t, s, "erin", lastseen.AvailabilityState{}, now+1)
	require.Equal(t, map[string]string{
		"alice": "0 busy 0 in a meeting", "bob": fmt.Sprintf("0 - %d back  soon", end),
		"carol": fmt.Sprintf("%d - 0 ", now-5),
	}, client.HGetAll(ctx, detailsOfChat).Val())
	require.Equal(t, []redis.Z{{Member: "bob", Score: float64(end)}},
		client.ZRangeWithScores(ctx, endsOfChat, 0, -1).Val())
	hidden := client.ZRangeWithScores(ctx, stores.HiddenOfChat, 0, -1).Val()
	require.Equal(t, []redis.Z{
		{Member: "", Score: hidden[0].Score}, // of the last change
		{Member: "erin", Score: float64(now + 1)},
		{Member: "dave", Score: float64(end)},
		{Member: "alice", Score: math.Inf(1)},
	}, hidden)
	require.InDelta(t, -float64(now), hidden[0].Score, 60_000, "milliseconds of the clock of Redis")
	require.Equal(t, map[string]string{
		"alice": "0 not here", "dave": fmt.Sprintf("%d ", end), "erin": fmt.Sprint(int64(now + 1)),
		"": strconv.FormatFloat(hidden[0].Score, 'f', 0, 64),
	}, client.HGetAll(ctx, stores.PrivateOfChat).Val())
	require.Equal(t, "-dehpr", stores.Sides(t, client))
	require.Equal(t, []string{"chat"}, client.HKeys(ctx, "presence::meta").Val())
}

// TestAvailabilityIsDeleted: nothing is left of the availability of users with the namespace, and only what is hidden
// of one that is empty.
func TestAvailabilityIsDeleted(t *testing.T) {
	ctx, url, client := stores.StartRedis(t)
	for _, shards := range []int{1, 7} {
		s := stores.New(t, redisstore.Options{URL: url, Shards: shards})
		users := stores.Numbered("u", 40)
		talk := func() {
			now := kit.Now(t, s)
			for i, user := range users {
				end := now.Add(time.Duration(i%2) * time.Hour)
				availability.SetAt(t, s, user, lastseen.AvailabilityState{Note: "x", Until: end}, now-1)
				availability.SetAt(t, s, user, availability.Invisible, now)
			}
		}
		talk()
		require.Greater(t, len(client.Keys(ctx, "*").Val()), 3*shards)
		require.NoError(t, s.DeleteNamespace(ctx, "chat"))
		require.Empty(t, client.Keys(ctx, "*").Val())

		talk()
		now := kit.Now(t, s)
		_, err := s.Trim(ctx, "chat", store.TrimQuery{Age: -time.Hour, Now: now, All: true})
		require.NoError(t, err)
		removed := kit.RemoveEmpty(t, s, "chat")
		require.False(t, removed, "some say something")
		for _, user := range users {
			require.NoError(t, s.Forget(ctx, "chat", user))
		}
		availability.Set(t, s, "u1", availability.Invisible)
		require.NoError(t, client.Del(ctx, "presence:chat", "presence:chat:0", "presence:chat:1", "presence:chat:2",
			"presence:chat:3", "presence:chat:4", "presence:chat:5", "presence:chat:6").Err())
		removed = kit.RemoveEmpty(t, s, "chat")
		require.True(t, removed)
		keys := client.Keys(ctx, "*").Val()
		require.Len(t, keys, 3, "the user's end, what the user says, and the hash: %s", keys)
		require.NoError(t, s.Forget(ctx, "chat", "u1"))
		kit.RemoveEmpty(t, s, "chat")
		require.Empty(t, client.Keys(ctx, "*").Val())
	}
}

// TestForeignDetails: text that we would not write counts as nothing, is logged once, and is replaced.
func TestForeignDetails(t *testing.T) {
	testenv.SkipWithRace(t, "it is about what Redis does")
	ctx, url, client := stores.StartRedis(t)
	for _, text := range []string{
		"", " ", "x", "0", "0 busy", "0 busy 0", "x busy 0 ", "0 lazy 0 ", "0 invisible 0 ", "0 busy x ", "-1 busy 0 ",
		"0 busy -1 ",
		"0 busy 99999999999999999999 ", "9999999999999999 busy 0 ", "0 busy 0 " + strings.Repeat("x", 2000), "\x00\xff",
		"0 busy 0 a\nb", "0 busy 0 a\x7f",
	} {
		s, log := stores.NewLogged(t, redisstore.Options{URL: url})
		require.NoError(t, s.DeleteNamespace(ctx, "chat"))
		require.NoError(t, stores.Ping(s, "chat", "alice", "carol"))
		availability.Set(t, s, "bob", availability.Busy)
		require.NoError(t, client.HSet(ctx, detailsOfChat, "alice", text, "carol", text).Err())
		for _, user := range []string{"alice", "carol"} {
			require.Zero(t, availability.Details(t, s, user)[user], "%q", text)
			require.Zero(t, availability.Get(t, s, user, kit.Now(t, s)), "%q", text)
		}
		require.Equal(t, availability.Busy, availability.Details(t, s, "bob")["bob"].Availability)
		idle := stores.OnDevice("carol", "tab", kit.Base+1)
		idle.Idle = kit.Base
		stores.Record(t, s, idle)
		require.Equal(t, store.Details{IdleSince: kit.Base}, availability.Details(t, s, "carol")["carol"], "%q", text)
		availability.Set(t, s, "alice", availability.Busy)
		require.Equal(t, availability.Busy, availability.Details(t, s, "alice")["alice"].Availability, "%q", text)
		require.NoError(t, s.Close())
		require.Equal(t, 1, log.Count("cannot be read"), "%q: %s", text, log)
	}
}

// TestVersionsAreDeleted: earlier versions kept versions of details in a field without a name. The next write deletes
// it.
func TestVersionsAreDeleted(t *testing.T) {
	ctx, client, s := stores.Start(t)
	availability.Set(t, s, "alice", availability.Busy)
	for _, state := range []lastseen.AvailabilityState{{Note: "another"}, {}} {
		require.NoError(t, client.HSet(ctx, detailsOfChat, "", strings.Repeat("v", 64)).Err())
		require.NotZero(t, availability.Details(t, s, "alice")["alice"])
		require.Zero(t, availability.Details(t, s, "bob")["bob"])
		availability.Set(t, s, "alice", state)
		require.Equal(t, state, availability.Details(t, s, "alice")["alice"].Availability)
		require.False(t, client.HExists(ctx, detailsOfChat, "").Val())
	}
	require.Zero(t, client.Exists(ctx, detailsOfChat).Val())
}

// TestForeignPrivate: the same of an invisible user's availability.
func TestForeignPrivate(t *testing.T) {
	ctx, client, s := stores.Start(t)
	for i, text := range []string{"", "x", "x y", "-1 ", "0 a\nb", "99999999999999999999 ", "0 \xff"} {
		availability.Set(t, s, "alice", availability.Invisible)
		require.NoError(t, client.HSet(ctx, stores.PrivateOfChat, "alice", text).Err())
		require.Zero(t, availability.Get(t, s, "alice", kit.Now(t, s)), "%q", text)
		require.True(t, kit.Ping(t, s, "alice", kit.Now(t, s)).Left, "hidden until the user says something")
		end := kit.Now(t, s)
		availability.SetAt(t, s, "alice", lastseen.AvailabilityState{}, end)
		later := end.Add(time.Duration(i+1) * time.Second / 2) // after the time before, also in the same millisecond
		require.Equal(t, lastseen.State{At: later}, kit.Ping(t, s, "alice", later), "%q", text)
	}
}

// TestSizeOfDetails: docs/capacity.md names it.
func TestSizeOfDetails(t *testing.T) {
	testenv.SkipWithRace(t, "it is about what Redis does")
	ctx, client, s := stores.Start(t)
	n := testenv.Choose(2000, 600) // more than a listpack holds
	now := kit.Now(t, s)
	size := func(keys ...string) (sum int64) {
		for _, key := range keys {
			sum += client.MemoryUsage(ctx, key, 0).Val()
		}
		return sum / int64(n)
	}
	all := func(state lastseen.AvailabilityState) {
		for i := range n {
			availability.SetAt(t, s, fmt.Sprintf("%032d", i), state, now)
		}
	}
	busy := lastseen.AvailabilityState{Availability: lastseen.Busy}
	all(busy)
	said := size(detailsOfChat)
	busy.Note = "in a meeting until 3" // 20 characters
	all(busy)
	noted := size(detailsOfChat)
	busy.Until = now.Add(time.Hour)
	all(busy)
	ending := size(detailsOfChat, endsOfChat)
	all(availability.Invisible)
	hidden := size(stores.HiddenOfChat, stores.PrivateOfChat)
	const text = "busy: %d bytes, with a note of 20 characters: %d, with an end, too: %d; invisible: %d"
	t.Logf(text, said, noted, ending, hidden)
	require.LessOrEqual(t, said, int64(200))
	require.LessOrEqual(t, noted, int64(250))
	require.LessOrEqual(t, ending, int64(400))
	require.LessOrEqual(t, hidden, int64(350))
}
