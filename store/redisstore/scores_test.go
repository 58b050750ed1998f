package redisstore_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/storetest/kit"
	"github.com/lastseen/lastseen/store/storetest/redistest"
	"github.com/lastseen/lastseen/store/storetest/redistest/stores"
)

// TestUnitOfSetsWithoutMeta: whether or not a set is declared as shared, its newest score decides which
// unit it may be served in.
func TestUnitOfSetsWithoutMeta(t *testing.T) {
	testenv.SkipWithRace(t, "it is about what Redis does")
	const seconds, millis, micros, nanos = 1_700_000_000, 1_700_000_000_000, 1.7e15, 1.7e18
	ctx, url := context.Background(), redistest.Start(t)
	client := stores.NewClient(t, url)
	both := []redisstore.Unit{redisstore.Milliseconds, redisstore.Seconds}
	for i, c := range []struct {
		scores []float64
		served []redisstore.Unit
	}{
		{[]float64{seconds}, both[1:]},
		{[]float64{millis}, both[:1]},
		{[]float64{-seconds}, both[1:]}, // everyone has left
		{[]float64{-millis}, both[:1]},
		{[]float64{seconds, -millis}, both[:1]}, // the newest has left
		{[]float64{millis, -seconds}, both[:1]},
		{[]float64{100_123, 0}, both[1:]},
		{[]float64{99_999_999_999}, both[1:]},
		{[]float64{100_000_000_001}, both[:1]},
		{[]float64{100_000_000_000}, both},
		{[]float64{0}, both}, // not a time
		{[]float64{0, 0.25, -0.0001}, both},
		{[]float64{millis, micros, nanos}, both[:1]}, // strays
		{[]float64{micros}, nil},
		{[]float64{-nanos, 0}, nil},
		{[]float64{1<<52 + millis, seconds}, both[1:]}, // beyond any time
	} {
		for _, unit := range both {
			for _, declared := range []bool{false, true} {
				for _, shards := range []int{1, 3} {
					t.Run(fmt.Sprint(c.scores, unit, declared, shards), func(t *testing.T) {
						o := redisstore.Options{
							URL: url, Prefix: fmt.Sprint(i, unit, declared, shards, ":"),
							Shards: shards, Unit: unit,
						}
						if declared {
							o.Layouts = map[string]redisstore.Layout{"chat": {Unit: unit}}
						}
						for k, score := range c.scores {
							key := o.Prefix + "chat"
							if shards > 1 {
								key += fmt.Sprint(":", k%shards)
							}
							require.NoError(t, client.ZAdd(ctx, key,
								redis.Z{Member: fmt.Sprint("u", k), Score: score}).Err())
						}
						if slices.Contains(c.served, unit) {
							require.NoError(t, stores.New(t, o).Register(ctx, []string{"chat"}))
							require.NoError(t, stores.Ping(stores.New(t, o), "chat", "alice"))
						} else {
							refuses(t, client, stores.New(t, o))
						}
					})
				}
			}
		}
	}
}

// refuses checks that the namespace chat is served in no way and that nothing is written.
func refuses(t *testing.T, client *redis.Client, s *redisstore.Store) {
	t.Helper()
	before := stores.Contents(t, client)
	all := stores.Calls(s)
	all["Register"] = func() error { return s.Register(context.Background(), []string{"chat"}) }
	all["RemoveEmpty"] = func() error { _, err := s.RemoveEmpty(context.Background(), "chat"); return err }
	for name, call := range all {
		err := call()
		require.ErrorIs(t, err, store.ErrMismatch, name)
		var mismatch *store.MismatchError
		require.ErrorAs(t, err, &mismatch, name)
		require.Equal(t, []string{"redis-score-unit"}, mismatch.Settings)
	}
	require.Equal(t, before, stores.Contents(t, client))
}

// TestOwnSetsAreTrusted: a set with a meta may hold any times, such as those that a caller sent with its pings.
func TestOwnSetsAreTrusted(t *testing.T) {
	ctx, url := context.Background(), redistest.Start(t)
	for _, layouts := range []map[string]redisstore.Layout{nil, {"chat": {Unit: redisstore.Milliseconds}}} {
		o := redisstore.Options{URL: url, Prefix: fmt.Sprint(len(layouts), ":"), Layouts: layouts}
		_, err := stores.New(t, o).Ping(ctx, "chat", []store.PresenceEvent{{User: "alice", At: 5}})
		require.NoError(t, err)
		_, err = stores.New(t, o).Ping(ctx, "chat", []store.PresenceEvent{{User: "bob", At: 7}})
		require.NoError(t, err)
	}
}

// TestUnitIsCheckedAgain: what other programs write later is looked at, too. One stray score is enough, and
// the set is served at once when it is gone.
func TestUnitIsCheckedAgain(t *testing.T) {
	ctx, url, client := stores.StartRedis(t)
	seconds := map[string]redisstore.Layout{"chat": {Unit: redisstore.Seconds}}
	s := stores.New(t, redisstore.Options{URL: url, Layouts: seconds})
	require.NoError(t, stores.Ping(s, "chat", "alice"))
	require.NoError(t, client.ZAdd(ctx, "presence:chat", redis.Z{Member: "stray", Score: 1_700_000_000_000}).Err())
	s.ExpireMetaCache()
	refuses(t, client, s)
	require.NoError(t, client.ZRem(ctx, "presence:chat", "stray").Err())
	require.NoError(t, stores.Ping(s, "chat", "alice"))
}

// TestMismatchNamesTheSetting: the error says which setting to change.
func TestMismatchNamesTheSetting(t *testing.T) {
	url := redistest.Start(t)
	require.NoError(t, stores.Ping(stores.New(t, redisstore.Options{URL: url}), "chat", "alice"))
	for setting, o := range map[string]redisstore.Options{
		"redis-shards":     {Shards: 7},
		"redis-score-unit": {Unit: redisstore.Seconds},
		"redis-key":        {Layouts: map[string]redisstore.Layout{"chat": {Key: "other"}}},
	} {
		o.URL = url
		var mismatch *store.MismatchError
		require.ErrorAs(t, stores.Ping(stores.New(t, o), "chat", "alice"), &mismatch)
		require.Equal(t, []string{setting}, mismatch.Settings)
	}
}

// TestUnknownNamespacesAreCheap: a lookup of an unused name does not make Redis check the scores of each shard.
func TestUnknownNamespacesAreCheap(t *testing.T) {
	const names, shards = 100, redisstore.MaxShards
	ctx, url := context.Background(), redistest.Start(t)
	client := stores.NewClient(t, url)
	s := stores.New(t, redisstore.Options{URL: url, Shards: shards})
	require.NoError(t, stores.Ping(s, "chat", "alice"))
	commands := func() int {
		info, err := client.Info(ctx, "stats").Result()
		require.NoError(t, err)
		_, after, _ := strings.Cut(info, "total_commands_processed:")
		n, err := strconv.Atoi(strings.Fields(after)[0])
		require.NoError(t, err)
		return n
	}
	before := commands()
	for i := range names {
		states, _, err := s.Describe(ctx, fmt.Sprint("nobody-", i), []string{"alice"})
		require.NoError(t, err)
		require.False(t, states[0].Known())
	}
	require.Less(t, commands()-before, 10*names)
}

// TestLocale: Lua compares strings as the server's locale does, and German puts b before C. Positions
// whose member is gone are still found bytewise.
func TestLocale(t *testing.T) {
	testenv.SkipWithRace(t, "it is about what Redis does")
	t.Run("C", func(t *testing.T) {
		t.Setenv("LC_ALL", "C")
		testPositionsThatAreGone(t)
	})
	t.Run("de_DE", func(t *testing.T) {
		dir := t.TempDir()
		out, err := testenv.Command("localedef", "-i", "de_DE", "-f", "UTF-8",
			filepath.Join(dir, "de_DE.UTF-8")).CombinedOutput()
		if err != nil {
			t.Skipf("no German locale can be made here: %v %s", err, out)
		}
		t.Setenv("LOCPATH", dir)
		t.Setenv("LC_ALL", "de_DE.UTF-8")
		testPositionsThatAreGone(t)
	})
}

func testPositionsThatAreGone(t *testing.T) {
	ctx, server := context.Background(), redistest.StartProcess(t)
	s := stores.New(t, redisstore.Options{URL: server.URL()})
	ascending := []string{
		"A", "B", "C", "Z", "a", "aa", "b", "z", "~", "ß", "ä", "é", "z\u0308",
		"Ω", "€", "😀",
	}
	slices.Sort(ascending)
	require.NoError(t, stores.Ping(s, "chat", ascending...))
	for i, gone := range ascending {
		require.NoError(t, s.Forget(ctx, "chat", gone))
		for order, want := range map[store.Order][]string{
			store.Oldest: ascending[i+1:],
			store.Newest: reversed(ascending[:i]),
		} {
			after := store.Record{User: gone}
			after.At = kit.Base
			records, err := s.List(ctx, "chat",
				store.ListQuery{Ranges: kit.Everyone(), Order: order, After: &after, Limit: 100})
			require.NoError(t, err)
			got := []string{}
			for _, r := range records {
				got = append(got, r.User)
			}
			require.Equal(t, want, got, "after %q, order %v", gone, order)
		}
		require.NoError(t, stores.Ping(s, "chat", gone))
	}
}

func reversed(names []string) []string {
	names = slices.Clone(names)
	slices.Reverse(names)
	return names
}
