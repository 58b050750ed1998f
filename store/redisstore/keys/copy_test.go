package keys

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/filestore"
	"github.com/lastseen/lastseen/store/memstore"
	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/storetest/redistest"
	"github.com/lastseen/lastseen/store/storetest/redistest/stores"
)

const copiedWindow = 150 * time.Second

// copiedUsers are few, so that each says and does several things.
func copiedUsers() (all []string) {
	for n := range 40 {
		all = append(all, fmt.Sprintf("user %d", n))
	}
	return all
}

// act does random things with a store.
func act(t *testing.T, s store.Store, r *rand.Rand, times int) {
	t.Helper()
	ctx, users, now := t.Context(), copiedUsers(), lastseen.InstantOf(time.Now())
	for range times {
		ns, user := []string{"chat", "game"}[r.IntN(2)], users[r.IntN(len(users))]
		at := now.Add(-time.Duration(r.IntN(600)) * time.Second)
		var err error
		switch r.IntN(12) {
		case 0, 1:
			_, err = s.Ping(ctx, ns, []store.PresenceEvent{{User: user, At: at}})
		case 2:
			_, err = s.Leave(ctx, ns, []store.PresenceEvent{{User: user, At: at}})
		case 3, 4, 5:
			e := store.DeviceEvent{
				User: user, ID: fmt.Sprint("device ", r.IntN(4)), Kind: lastseen.DeviceKinds()[r.IntN(5)], At: at,
				Gone: r.IntN(4) == 0,
			}
			if r.IntN(3) == 0 {
				e.Idle = at - 1000
			}
			if r.IntN(2) == 0 {
				e.Meta = fmt.Sprintf(`{"n":%d}`, r.IntN(100))
			}
			_, err = s.RecordDevices(ctx, ns, copiedWindow, []store.DeviceEvent{e})
		case 6, 7, 8:
			a := lastseen.AvailabilityState{
				Availability: append(lastseen.Availabilities(), "")[r.IntN(4)],
				Note:         []string{"", "at lunch "}[r.IntN(2)],
			}
			if r.IntN(2) == 0 {
				a.Until = now.Add(time.Duration(r.IntN(7200)) * time.Second)
			}
			_, err = s.SetAvailability(ctx, ns, user, a, now)
		case 9, 10:
			add := []string{users[r.IntN(len(users))], users[r.IntN(len(users))]}
			slices.Sort(add)
			err = s.ChangeContacts(ctx, ns, user, slices.Compact(add), []string{users[r.IntN(len(users))] + "?"})
		default:
			err = s.Forget(ctx, ns, user)
		}
		require.NoError(t, err)
	}
}

// importAll copies what tables keep to Redis.
func importAll(t *testing.T, s *redisstore.Store, from *memstore.Tables) (changes int) {
	t.Helper()
	ctx, importers := t.Context(), map[string]*redisstore.Importer{}
	export := func(keep func(namespace, user string, k store.Kept) error) error {
		return redisstore.Export(ctx, s, keep)
	}
	listed, _ := from.Names()
	_, _, err := from.Compare(export, func(name string, c store.KeptChange) (err error) {
		changes++
		i, ok := importers[name]
		if !ok {
			i, err = redisstore.NewImporter(ctx, s, name, slices.Contains(listed, name))
			require.NoError(t, err)
			importers[name] = i
		}
		return i.Change(ctx, c)
	})
	require.NoError(t, err)
	for _, i := range importers {
		require.NoError(t, i.Close(ctx))
	}
	return changes
}

func exportAll(t *testing.T, s *redisstore.Store) *memstore.Tables {
	t.Helper()
	x := memstore.NewTables(memstore.Options{})
	require.NoError(t, x.Fill(func(log memstore.Log) error {
		return redisstore.Export(t.Context(), s, func(namespace, user string, k store.Kept) error {
			log.In(namespace)
			if user != "" {
				memstore.Keep(log, namespace, user, k)
			}
			return nil
		})
	}))
	return x
}

// requireSame requires that tables keep the same.
func requireSame(t *testing.T, want, got *memstore.Tables) {
	t.Helper()
	surplus, missing, err := want.Compare(got.Export, func(name string, c store.KeptChange) error {
		return fmt.Errorf("%s: %s is kept as\n%+v instead of\n%+v", name, c.User, c.Was, c.Now)
	})
	require.NoError(t, err)
	require.Empty(t, surplus)
	require.Empty(t, missing)
}

// TestCopy copies a file to Redis, goes on in the file, and copies only what changed. Then both show the same. What is
// read from Redis is the same in a file again.
func TestCopy(t *testing.T) {
	for _, shards := range testenv.Variants(3, 1, -4) { // negative: in a Cluster
		t.Run(fmt.Sprint(shards), func(t *testing.T) {
			t.Parallel()
			ctx, start := t.Context(), redistest.Start
			if shards < 0 {
				shards, start = -shards, func(t testing.TB) string { return redistest.StartCluster(t, 0).URL() }
			}
			url := start(t)
			r := rand.New(rand.NewPCG(uint64(shards), 7))
			path := filepath.Join(t.TempDir(), "from.db")
			read := func(times int) *memstore.Tables {
				file, err := filestore.Open(filestore.Options{Path: path})
				require.NoError(t, err)
				act(t, file, r, times)
				require.NoError(t, file.Close())
				x, release, err := filestore.Read(path)
				require.NoError(t, err)
				release()
				return x
			}
			o := redisstore.Options{URL: url, Shards: shards, Timeout: 10 * time.Second}
			s := stores.New(t, o)
			var was *memstore.Tables
			for pass := range 4 {
				now := read(400)
				changes := importAll(t, s, now)
				require.Greater(t, changes, 20, pass)
				requireSame(t, now, exportAll(t, s))
				require.Zero(t, importAll(t, s, now))
				was = now
			}
			back := filepath.Join(t.TempDir(), "back.db")
			require.NoError(t, filestore.Write(back, exportAll(t, s), false))
			again, release, err := filestore.Read(back)
			require.NoError(t, err)
			release()
			requireSame(t, was, again)

			file, err := filestore.Open(filestore.Options{Path: path})
			require.NoError(t, err)
			defer file.Close()
			other := stores.New(t, o)
			requireShowsSame(ctx, t, file, other)
			act(t, other, r, 200) // the scripts can read all of it, and change it
		})
	}
}

// requireShowsSame compares what two stores return.
func requireShowsSame(ctx context.Context, t *testing.T, a, b store.Store) {
	t.Helper()
	now := lastseen.InstantOf(time.Now())
	for _, ns := range []string{"chat", "game"} {
		users := copiedUsers()
		states, details, err := a.Describe(ctx, ns, users)
		require.NoError(t, err)
		others, otherDetails, err := b.Describe(ctx, ns, users)
		require.NoError(t, err)
		require.Equal(t, states, others)
		require.Equal(t, details, otherDetails)
		for _, user := range users {
			devices, err := a.ReadDevices(ctx, ns, user)
			require.NoError(t, err)
			otherDevices, err := b.ReadDevices(ctx, ns, user)
			require.NoError(t, err)
			require.Equal(t, devices.Live(devices.State.At), otherDevices.Live(devices.State.At), user)
			require.ElementsMatch(t, devices.Meta, otherDevices.Meta)
			availability, err := a.ReadAvailability(ctx, ns, user, now)
			require.NoError(t, err)
			otherAvailability, err := b.ReadAvailability(ctx, ns, user, now)
			require.NoError(t, err)
			require.Equal(t, availability, otherAvailability, user)
			contacts, err := a.ListContacts(ctx, ns, user, "", 100)
			require.NoError(t, err)
			otherContacts, err := b.ListContacts(ctx, ns, user, "", 100)
			require.NoError(t, err)
			require.ElementsMatch(t, contacts, otherContacts)
		}
	}
}

// TestCopiedKeys: what a copy writes is what servers wrote, but for the marks of hidden times, which have to be alike
// in the two keys.
func TestCopiedKeys(t *testing.T) {
	_, url, client := stores.StartRedis(t)
	from := stores.New(t, redisstore.Options{URL: url})
	act(t, from, rand.New(rand.NewPCG(1, 2)), 1500)
	x := exportAll(t, from)
	want := sorted(t, client)
	require.NoError(t, client.FlushDB(t.Context()).Err())
	importAll(t, stores.New(t, redisstore.Options{URL: url}), x)
	got := sorted(t, client)
	require.Equal(t, fmt.Sprintf("%.0f", got[stores.HiddenOfChat][""]), got[stores.PrivateOfChat][""])
	for _, ns := range []string{"chat", "game"} {
		for _, what := range []string{"hidden", "private"} {
			key := stores.SideKey(what, "presence:"+ns)
			require.NotEmpty(t, want[key])
			want[key][""] = got[key][""]
		}
	}
	for key := range want {
		require.Equal(t, want[key], got[key], key)
	}
	require.Len(t, got, len(want))
}

// sorted returns every key with its fields, or its members and their scores.
func sorted(t *testing.T, client *redis.Client) map[string]map[string]any {
	t.Helper()
	all := map[string]map[string]any{}
	for _, key := range client.Keys(t.Context(), "*").Val() {
		all[key] = map[string]any{}
		switch client.Type(t.Context(), key).Val() {
		case "hash":
			for field, value := range client.HGetAll(t.Context(), key).Val() {
				all[key][field] = value
			}
		case "zset":
			for _, z := range client.ZRangeWithScores(t.Context(), key, 0, -1).Val() {
				all[key][z.Member.(string)] = z.Score
			}
		default:
			all[key]["?"] = client.Type(t.Context(), key).Val()
		}
	}
	return all
}

// TestCopyOfRemovedNamespace: who is hidden in a namespace that does not exist any longer stays so, and the namespace
// does not come back.
func TestCopyOfRemovedNamespace(t *testing.T) {
	ctx, url, _ := stores.StartRedis(t)
	path := filepath.Join(t.TempDir(), "from.db")
	file, err := filestore.Open(filestore.Options{Path: path})
	require.NoError(t, err)
	now := lastseen.InstantOf(time.Now())
	invisible := lastseen.AvailabilityState{Availability: lastseen.Invisible, Note: "shh"}
	_, err = file.SetAvailability(ctx, "chat", "alice", invisible, now.Add(-time.Hour))
	require.NoError(t, err)
	_, err = file.Trim(ctx, "chat", store.TrimQuery{Age: time.Minute, Now: now, All: true})
	require.NoError(t, err)
	removed, err := file.RemoveEmpty(ctx, "chat")
	require.NoError(t, err)
	require.True(t, removed)
	require.NoError(t, file.Close())
	x, release, err := filestore.Read(path)
	require.NoError(t, err)
	release()

	back := filepath.Join(t.TempDir(), "back.db")
	require.NoError(t, filestore.Write(back, x, false))
	again, release, err := filestore.Read(back)
	require.NoError(t, err)
	release()
	requireSame(t, x, again)
	requireSame(t, again, x)

	s := stores.New(t, redisstore.Options{URL: url})
	listed, unlisted := x.Names()
	require.Empty(t, listed)
	require.Equal(t, []string{"chat"}, unlisted)
	require.Equal(t, 1, importAll(t, s, x))
	found, err := s.ReadAvailability(ctx, "chat", "alice", now)
	require.NoError(t, err)
	require.Equal(t, invisible, found)
	require.NoError(t, stores.Ping(s, "chat", "alice"))
	exist, err := s.Exist(ctx, []string{"chat"})
	require.NoError(t, err)
	require.Equal(t, []bool{false}, exist)
}

// TestCopyOfContacts whose last use is not known: it stays so, which is not that it was long ago. The rights of servers
// are enough.
func TestCopyOfContacts(t *testing.T) {
	ctx, url, client := stores.StartRedis(t)
	stores.Restrict(t, client)
	x := memstore.NewTables(memstore.Options{})
	require.NoError(t, x.Fill(func(log memstore.Log) error {
		memstore.Keep(log, "chat", "alice", store.Kept{Contacts: []string{"bob"}})
		memstore.Keep(log, "chat", "bob", store.Kept{Contacts: []string{"alice"}, Used: 1_700_000_000_000})
		return nil
	}))
	s := stores.New(t, redisstore.Options{URL: stores.AsApp(url)})
	used, err := redisstore.Used(ctx, s)
	require.NoError(t, err)
	require.False(t, used)
	require.NoError(t, redisstore.SetImporting(ctx, s, true))
	begun, err := redisstore.Importing(ctx, s)
	require.NoError(t, err)
	require.True(t, begun)
	require.NoError(t, redisstore.SetImporting(ctx, s, false))
	require.Equal(t, 2, importAll(t, s, x))
	uses, err := client.ZRangeWithScores(ctx, usesKey, 0, -1).Result()
	require.NoError(t, err)
	require.Equal(t, []redis.Z{{Member: "bob", Score: 1_700_000_000_000}}, uses)
	requireSame(t, x, exportAll(t, s))
	used, err = redisstore.Used(ctx, s)
	require.NoError(t, err)
	require.True(t, used, "although nobody was seen")
}
