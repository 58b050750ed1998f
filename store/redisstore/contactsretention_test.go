package redisstore_test

import (
	"context"
	"fmt"
	"math"
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
	"github.com/lastseen/lastseen/store/storetest"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// agingOpener returns a constructor of stores for which time passes: nobody can set the clock of Redis, so that all
// times are moved into the past instead, for each shard together.
func agingOpener(t *testing.T, shards int) func(testing.TB) storetest.Breakable {
	url := redistest.Start(t)
	client := newClient(t, url)
	var n atomic.Int64
	return func(t testing.TB) storetest.Breakable {
		prefix := fmt.Sprintf("aging%d-%d:", shards, n.Add(1))
		open := func() store.Store {
			s, err := redisstore.Open(redisstore.Options{
				URL: url, Prefix: prefix, Shards: shards, Timeout: longTimeout, DialTimeout: longTimeout,
				Logger: discardLog(),
			})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, s.Close()) })
			s.SettleAtOnce()
			return s
		}
		return storetest.Breakable{
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
		case "", "contacts", "feed", "changes", "details", "private", "devices", "devicemeta":
			continue
		}
		members, err := client.ZRangeWithScores(ctx, key, 0, -1).Result()
		require.NoError(t, err, key)
		for i := range members {
			if score := &members[i].Score; !math.IsInf(*score, 0) {
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
			storetest.RunContactsRetention(t, agingOpener(t, shards))
		})
	}
	storetest.RunContactsBehind(t, agingOpener(t, 1)(t))
}

// TestContactsWithoutUse: contacts that an older lastseen wrote are kept for the whole retention, and end then.
func TestContactsWithoutUse(t *testing.T) {
	t.Parallel()
	ctx, url := context.Background(), redistest.Start(t)
	client := newClient(t, url)
	for _, shards := range testenv.Variants(1, 7) {
		prefix := fmt.Sprintf("older%d:", shards)
		s := newStore(t, redisstore.Options{URL: url, Prefix: prefix, Shards: shards})
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
			result, err := trimContacts(s, "chat")
			require.NoError(t, err)
			total += result.Owners
		}
		require.Equal(t, 1, total, "the known one")
		age(t, client, prefix, 2*time.Hour)
		require.NoError(t, s.SetContacts(ctx, "chat", "owner7", []string{"bob"}))
		result := store.ContactsTrimResult{More: true}
		for total = 0; result.More; total += result.Owners {
			result, err = trimContacts(s, "chat")
			require.NoError(t, err)
		}
		require.Equal(t, owners-1, total)
		age(t, client, prefix, 2*time.Hour)
		result, err = trimContacts(s, "chat")
		require.NoError(t, err)
		require.Equal(t, store.ContactsTrimResult{Owners: 1, Contacts: 1}, result)
		left, err := client.Keys(ctx, prefix+"contact*").Result()
		require.NoError(t, err)
		require.Empty(t, left)
	}
}

// TestUsesWithoutContacts: what an older lastseen left behind when it deleted contacts is deleted.
func TestUsesWithoutContacts(t *testing.T) {
	t.Parallel()
	ctx, url := context.Background(), redistest.Start(t)
	client := newClient(t, url)
	s := newStore(t, redisstore.Options{URL: url})
	require.NoError(t, s.SetContacts(ctx, "chat", "alice", []string{"bob"}))
	require.NoError(t, s.SetContacts(ctx, "chat", "carol", []string{"bob"}))
	require.NoError(t, client.ZRem(ctx, contactsKey, "alice\x00bob").Err())
	age(t, client, "presence:", 2*time.Hour)
	require.NoError(t, ping(s, "chat", "carol"))
	result, err := trimContacts(s, "chat")
	require.NoError(t, err)
	require.Equal(t, store.ContactsTrimResult{Owners: 1, Contacts: 1}, result)
	require.Zero(t, client.Exists(ctx, contactsKey, usesKey).Val())
}

// TestWrongEndOfHiddenTime: a user who ended a hidden time while a clock was wrong does not keep contacts for ever.
func TestWrongEndOfHiddenTime(t *testing.T) {
	t.Parallel()
	ctx, url := context.Background(), redistest.Start(t)
	client := newClient(t, url)
	s := newStore(t, redisstore.Options{URL: url})
	now, err := s.Now(ctx)
	require.NoError(t, err)
	for _, said := range []bool{true, false} {
		require.NoError(t, s.SetContacts(ctx, "chat", "alice", []string{"bob"}))
		age(t, client, "presence:", 2*time.Hour)
		end := redis.Z{Member: "alice", Score: float64(now.Add(1000 * time.Hour))}
		require.NoError(t, client.ZAdd(ctx, "presence:hidden:{presence:chat}", end).Err())
		if said {
			require.NoError(t, client.HSet(ctx, "presence:private:{presence:chat}", "alice", "0 ").Err())
		} else {
			require.NoError(t, client.Unlink(ctx, "presence:private:{presence:chat}").Err())
		}
		age(t, client, "presence:", 2*time.Hour)
		result, err := trimContacts(s, "chat")
		require.NoError(t, err)
		require.Equal(t, said, result.Owners == 0)
	}
}

// TestContactsWithoutMemory: what deletes, or only notes a use, works also while Redis has no memory left.
func TestContactsWithoutMemory(t *testing.T) {
	t.Parallel()
	ctx, url := context.Background(), redistest.Start(t)
	client := newClient(t, url)
	s := newStore(t, redisstore.Options{URL: url})
	for _, owner := range []string{"alice", "bob", "carol", "dave", "old"} {
		require.NoError(t, s.SetContacts(ctx, "chat", owner, []string{"friend", "other"}))
	}
	require.NoError(t, ping(s, "chat", "old"))
	age(t, client, "presence:", 2*time.Hour)
	now, err := s.Now(ctx)
	require.NoError(t, err)
	_, err = s.Ping(ctx, "chat", []store.Sighting{{User: "bob", At: now}})
	require.NoError(t, err)
	require.NoError(t, client.ConfigSet(ctx, "maxmemory", "1").Err())
	require.ErrorIs(t, s.ChangeContacts(ctx, "chat", "alice", []string{"new"}, nil), store.ErrFull)
	require.NoError(t, s.SetContacts(ctx, "chat", "alice", []string{"friend", "other"}))
	require.NoError(t, s.ChangeContacts(ctx, "chat", "carol", nil, []string{"other"}))
	require.NoError(t, s.Forget(ctx, "chat", "dave"))
	result, err := trim(s, "chat", time.Hour)
	require.NoError(t, err)
	require.Equal(t, 1, result.Deleted)
	trimmed, err := trimContacts(s, "chat")
	require.NoError(t, err)
	require.Equal(t, store.ContactsTrimResult{Owners: 1, Contacts: 2}, trimmed, "bob was seen")
	_, err = s.SetAvailability(ctx, "chat", "alice", lastseen.Said{}, now)
	require.NoError(t, err)
}
