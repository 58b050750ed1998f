package keys

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/storetest/availability"
	"github.com/lastseen/lastseen/store/storetest/contacts"
	"github.com/lastseen/lastseen/store/storetest/kit"
	"github.com/lastseen/lastseen/store/storetest/redistest"
	"github.com/lastseen/lastseen/store/storetest/redistest/stores"
)

// TestContactsKeys: what Redis holds, and that nothing is left of it.
func TestContactsKeys(t *testing.T) {
	ctx, client, s := stores.Start(t)
	require.NoError(t, s.SetContacts(ctx, "chat", "alice", []string{"carol", "bob"}))
	members, err := client.ZRangeWithScores(ctx, contactsKey, 0, -1).Result()
	require.NoError(t, err)
	require.Equal(t, []redis.Z{{Member: "alice\x00bob"}, {Member: "alice\x00carol"}}, members)
	uses, err := client.ZRangeWithScores(ctx, usesKey, 0, -1).Result()
	require.NoError(t, err)
	require.Len(t, uses, 1)
	require.Equal(t, "alice", uses[0].Member)
	now := kit.Now(t, s)
	require.InDelta(t, int64(now), uses[0].Score, 60_000)
	require.ElementsMatch(t, []string{
		"presence::meta", "presence::namespaces", stores.SideKey("keys", stores.Chat), contactsKey, usesKey,
	}, client.Keys(ctx, "*").Val())
	require.NoError(t, s.Forget(ctx, "chat", "alice"))
	require.Zero(t, client.Exists(ctx, contactsKey, usesKey).Val())
}

const (
	contactsKey = "presence:contacts:{presence:chat}"
	usesKey     = "presence:contactuses:{presence:chat}"
)

// TestSizeOfContacts: what docs/contacts.md says about memory.
func TestSizeOfContacts(t *testing.T) {
	testenv.SkipWithRace(t, "it is about what Redis does")
	t.Parallel()
	ctx, url := context.Background(), redistest.Start(t)
	s := stores.New(t, redisstore.Options{URL: url})
	const owners, each = 200, 50
	for owner := range owners {
		contacts := make([]string, each)
		for i := range contacts {
			contacts[i] = fmt.Sprintf("user-%027d", owner+i+1)
		}
		require.NoError(t, s.SetContacts(ctx, "chat", fmt.Sprintf("user-%027d", owner), contacts))
	}
	client := stores.NewClient(t, url)
	uses := client.MemoryUsage(ctx, usesKey, 0).Val()
	size := client.MemoryUsage(ctx, contactsKey, 0).Val() + uses
	t.Logf("%d bytes a last use", uses/owners)
	t.Logf("%d bytes an owner, %d a contact", size/owners, size/owners/each)
	require.Less(t, size/owners, int64(8800))
	require.Greater(t, size/owners, int64(7000))
}

// agingOpener returns a constructor of stores for which time passes: nobody can set the clock of Redis, so that all
// times are moved into the past instead, for each shard together.
func agingOpener(t *testing.T, shards int) func(testing.TB) kit.Breakable {
	url := redistest.Start(t)
	client := stores.NewClient(t, url)
	servers := stores.Servers(url, shards)
	return func(t testing.TB) kit.Breakable {
		prefix, open := servers(t)
		return kit.Breakable{
			Store: open(), Restart: open, Pass: func(d time.Duration) { age(t, client, prefix, d) },
		}
	}
}

// age moves the times in all sorted sets with a prefix into the past: those of users, of last uses, of hidden times and
// of ends.
func age(t testing.TB, client *redis.Client, prefix string, by time.Duration) {
	ctx := context.Background()
	keys, err := client.Keys(ctx, prefix+"*").Result()
	require.NoError(t, err)
	for _, key := range keys {
		kind, _, _ := strings.Cut(strings.TrimPrefix(key, prefix), ":")
		switch kind {
		case "", "keys", "contacts", "contactmarks", "feed", "changes", "details", "private", "devices", "devicemeta":
			continue
		}
		members, err := client.ZRangeWithScores(ctx, key, 0, -1).Result()
		require.NoError(t, err, key)
		for i := range members {
			if score := &members[i].Score; members[i].Member != "" && !math.IsInf(*score, 0) { // "" has a mark
				*score = math.Copysign(math.Abs(*score)-float64(by.Milliseconds()), *score)
			}
		}
		if len(members) > 0 {
			require.NoError(t, client.ZAdd(ctx, key, members...).Err())
		}
	}
}

func TestContactsRetention(t *testing.T) {
	t.Parallel()
	for _, shards := range testenv.Variants(1, 7) {
		t.Run(fmt.Sprint(shards), func(t *testing.T) {
			t.Parallel()
			contacts.RunRetention(t, agingOpener(t, shards))
		})
	}
	contacts.RunBehind(t, agingOpener(t, 1)(t))
}

// TestContactsWithoutUse: contacts that an older lastseen wrote are kept for the whole retention, and end then.
func TestContactsWithoutUse(t *testing.T) {
	ctx, url, client := stores.StartRedis(t)
	for _, shards := range testenv.Variants(1, 7) {
		prefix := fmt.Sprintf("older%d:", shards)
		s := stores.New(t, redisstore.Options{URL: url, Prefix: prefix, Shards: shards})
		const owners = 700 // more than one call finds
		for i := range owners {
			owner := fmt.Sprint("owner", i)
			require.NoError(t, s.SetContacts(ctx, "chat", owner, []string{"bob", "carol"}))
		}
		keys, err := client.Keys(ctx, prefix+"contactuses:*").Result()
		require.NoError(t, err)
		require.Len(t, keys, shards)
		require.NoError(t, client.Unlink(ctx, keys...).Err())
		require.NoError(t, s.SetContacts(ctx, "chat", "known", []string{"bob"}))
		age(t, client, prefix, 2*time.Hour)
		total := 0
		for range 4 + shards {
			result := contacts.Trim(t, s, time.Hour, true)
			total += result.Owners
		}
		require.Equal(t, 1, total, "the known one")
		age(t, client, prefix, 2*time.Hour)
		require.NoError(t, s.SetContacts(ctx, "chat", "owner7", []string{"bob"}))
		result := store.ContactsTrimResult{More: true}
		for total = 0; result.More; total += result.Owners {
			result = contacts.Trim(t, s, time.Hour, true)
		}
		require.Equal(t, owners-1, total)
		age(t, client, prefix, 2*time.Hour)
		result = contacts.Trim(t, s, time.Hour, true)
		require.Equal(t, store.ContactsTrimResult{Owners: 1, Contacts: 1}, result)
		left, err := client.Keys(ctx, prefix+"contact*").Result()
		require.NoError(t, err)
		require.Empty(t, left)
	}
}

// TestUsesWithoutContacts: what an older lastseen left behind when it deleted contacts is deleted, and nothing is left
// behind now.
func TestUsesWithoutContacts(t *testing.T) {
	ctx, client, s := stores.Start(t)
	require.NoError(t, s.SetContacts(ctx, "chat", "alice", []string{"bob"}))
	require.NoError(t, s.SetContacts(ctx, "chat", "carol", []string{"bob"}))
	require.NoError(t, client.ZRem(ctx, contactsKey, "alice\x00bob").Err())
	age(t, client, "presence:", 2*time.Hour)
	require.NoError(t, stores.Ping(s, "chat", "carol"))
	require.NoError(t, s.SetContacts(ctx, "chat", "eve", []string{"bob"}))
	result := contacts.Trim(t, s, time.Hour, true)
	require.Equal(t, store.ContactsTrimResult{Owners: 1, Contacts: 1}, result)
	require.Equal(t, []string{"eve"}, client.ZRange(ctx, usesKey, 0, -1).Val())
}

// TestWrongEndOfHiddenTime: a user who ended a hidden time while a clock was wrong does not keep contacts for ever.
func TestWrongEndOfHiddenTime(t *testing.T) {
	ctx, client, s := stores.Start(t)
	now := kit.Now(t, s)
	for _, said := range []bool{true, false} {
		require.NoError(t, s.SetContacts(ctx, "chat", "alice", []string{"bob"}))
		age(t, client, "presence:", 2*time.Hour)
		end := redis.Z{Member: "alice", Score: float64(now.Add(1000 * time.Hour))}
		require.NoError(t, client.ZAdd(ctx, "presence:hidden:{presence:chat}", end).Err())
		private := map[bool]string{true: "0 ", false: strconv.FormatFloat(end.Score, 'f', 0, 64)}[said]
		require.NoError(t, client.HSet(ctx, "presence:private:{presence:chat}", "alice", private).Err())
		age(t, client, "presence:", 2*time.Hour)
		result := contacts.Trim(t, s, time.Hour, true)
		require.Equal(t, said, result.Owners == 0)
	}
}

// TestContactsWithoutMemory: what deletes, or only notes a use, works also while Redis has no memory left.
func TestContactsWithoutMemory(t *testing.T) {
	ctx, client, s := stores.Start(t)
	for _, owner := range []string{"alice", "bob", "carol", "dave", "old"} {
		require.NoError(t, s.SetContacts(ctx, "chat", owner, []string{"friend", "other"}))
	}
	require.NoError(t, stores.Ping(s, "chat", "old"))
	age(t, client, "presence:", 2*time.Hour)
	now := kit.Now(t, s)
	kit.Ping(t, s, "bob", now)
	require.NoError(t, client.ConfigSet(ctx, "maxmemory", "1").Err())
	require.ErrorIs(t, s.ChangeContacts(ctx, "chat", "alice", []string{"new"}, nil), store.ErrFull)
	require.NoError(t, s.SetContacts(ctx, "chat", "alice", []string{"friend", "other"}))
	require.NoError(t, s.ChangeContacts(ctx, "chat", "carol", nil, []string{"other"}))
	require.NoError(t, s.Forget(ctx, "chat", "dave"))
	result, err := stores.Trim(s, time.Hour)
	require.NoError(t, err)
	require.Equal(t, 1, result.Deleted)
	trimmed := contacts.Trim(t, s, time.Hour, true)
	require.Equal(t, store.ContactsTrimResult{Owners: 1, Contacts: 2}, trimmed, "bob was seen")
	availability.SetAt(t, s, "alice", lastseen.AvailabilityState{}, now)
}

// replaceMany replaces 5,000 contacts of alice by 5,000 others, of which the first one stays. It calls between after
// each command that it sends about contacts, with those that there are then. What the store sends meanwhile about other
// keys, which it does at any moment, is no step.
func replaceMany(t *testing.T, url string, between func(step int, now []string)) ([]string, error) {
	ctx, client := context.Background(), stores.NewClient(t, url)
	begun, steps := false, 0
	s := stores.New(t, redisstore.Options{URL: url, Instrument: func(c redis.UniversalClient) error {
		c.AddHook(redistest.AroundCommands{After: func(cmd redis.Cmder) {
			if slices.Contains(cmd.Args(), any(contactsKey)) && begun {
				between(steps, client.ZRange(ctx, contactsKey, 0, -1).Val())
				steps++
			}
		}})
		return nil
	}})
	before, after := stores.Numbered("b", store.MaxContacts), stores.Numbered("c", store.MaxContacts)
	after[0] = before[0]
	require.NoError(t, s.SetContacts(ctx, "chat", "alice", before))
	begun = true
	err := s.SetContacts(ctx, "chat", "alice", after)
	begun = false
	return after, err
}

// aliceContacts returns the contacts of alice.
func aliceContacts(t *testing.T, s store.Store) []string {
	t.Helper()
	found, err := s.ListContacts(context.Background(), "chat", "alice", "", store.MaxContacts+1)
	require.NoError(t, err)
	return found
}

// TestManyContacts: a script changes at most 500 contacts, and none is added before all are removed that go.
func TestManyContacts(t *testing.T) {
	_, url, client := stores.StartRedis(t)
	var last []string
	changes := 0
	after, err := replaceMany(t, url, func(_ int, now []string) {
		if changed := len(store.Without(now, last)) + len(store.Without(last, now)); last != nil && changed > 0 {
			changes++
			require.LessOrEqual(t, changed, 500)
		}
		last = now
		comes := func(member string) bool { return strings.HasPrefix(member, "alice\x00c") }
		require.False(t, comes(now[len(now)-1]) && !comes(now[min(1, len(now)-1)]), "some go, and others are there")
	})
	require.NoError(t, err)
	require.Equal(t, 20, changes)
	s := stores.New(t, redisstore.Options{URL: url})
	require.Equal(t, after, aliceContacts(t, s))
	require.Positive(t, client.PTTL(context.Background(), "presence:contactmarks:{presence:chat}").Val())
}

// TestFewLargeChangesOfContacts: while two large changes are made, another one waits.
func TestFewLargeChangesOfContacts(t *testing.T) {
	_, _, s := stores.Start(t)
	var reads atomic.Int64
	reading, released := make(chan struct{}), make(chan struct{})
	s.Client().AddHook(redistest.Around("zrange", func() {
		if reads.Add(1) <= 2 {
			reading <- struct{}{}
			<-released
		}
	}, func() {}))
	change := func(ctx context.Context, owner string) error {
		return s.SetContacts(ctx, "chat", owner, stores.Numbered("c", 501))
	}
	changed := make(chan error, 2)
	for _, owner := range []string{"alice", "bob"} {
		go func() { changed <- change(t.Context(), owner) }()
		<-reading
	}
	waiting, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	require.ErrorIs(t, change(waiting, "carol"), context.DeadlineExceeded)
	close(released)
	require.NoError(t, <-changed)
	require.NoError(t, <-changed)
	require.NoError(t, change(t.Context(), "carol"))
}

// TestOvertakenContacts: if another server changes contacts before the first script of a large change, the large change
// comes last; after that, it fails, and what the other one removed does not come back.
func TestOvertakenContacts(t *testing.T) {
	ctx, url, _ := stores.StartRedis(t)
	const lastRead, lastScript = 11, 31
	other := stores.New(t, redisstore.Options{URL: url})
	for name, change := range map[string]func() error{
		"remove": func() error {
			return other.ChangeContacts(ctx, "chat", "alice", []string{"d"}, []string{"b00000", "b04999", "c04999"})
		},
		"replace":   func() error { return other.SetContacts(ctx, "chat", "alice", []string{"d"}) },
		"clear":     func() error { return other.SetContacts(ctx, "chat", "alice", nil) },
		"forget":    func() error { return other.Forget(ctx, "chat", "alice") },
		"namespace": func() error { return other.DeleteNamespace(ctx, "chat") },
		"many":      func() error { return other.SetContacts(ctx, "chat", "alice", stores.Numbered("n", 700)) },
	} {
		for _, at := range []int{0, lastRead, lastRead + 1, 21, 25, lastScript} {
			var left []string
			after, err := replaceMany(t, url, func(step int, _ []string) {
				if step == at {
					require.NoError(t, change())
					left = aliceContacts(t, other)
				}
			})
			what := fmt.Sprint(name, " after command ", at)
			if at <= lastRead {
				require.NoError(t, err, what)
				require.True(t, slices.Equal(after, aliceContacts(t, other)), what)
				continue
			}
			if at < lastScript {
				require.ErrorIs(t, err, store.ErrContactsChanged, what)
			}
			require.True(t, slices.Equal(left, aliceContacts(t, other)), what)
		}
	}
}
