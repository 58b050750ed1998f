package redisstore_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// contactCalls is every method about contacts.
func contactCalls(s store.Store, namespace string) map[string]func() error {
	ctx := context.Background()
	return map[string]func() error{
		"SetContacts": func() error { return s.SetContacts(ctx, namespace, "alice", []string{"bob"}) },
		"ChangeContacts": func() error {
			return s.ChangeContacts(ctx, namespace, "alice", []string{"carol"}, []string{"dave"})
		},
		"ListContacts": func() error { _, err := s.ListContacts(ctx, namespace, "alice", "", 5); return err },
		"AreContacts": func() error {
			_, err := s.AreContacts(ctx, namespace, []store.ContactPair{{Owner: "alice", Contact: "bob"}})
			return err
		},
		"TrimContacts": func() error { _, err := trimContacts(s, namespace); return err },
	}
}

// trimContacts deletes the contacts of owners whose last use is longer ago than an hour.
func trimContacts(s store.Store, namespace string) (store.ContactsTrimResult, error) {
	now, err := s.Now(context.Background())
	if err != nil {
		return store.ContactsTrimResult{}, err
	}
	return s.TrimContacts(context.Background(), namespace, store.TrimQuery{Age: time.Hour, Now: now, All: true})
}

// TestContactsOfDeletedNamespace: a server deleted the namespace, and another one still thinks that it has it.
func TestContactsOfDeletedNamespace(t *testing.T) {
	t.Parallel()
	ctx, url := context.Background(), redistest.Start(t)
	for _, shards := range []int{1, 7} {
		require.NoError(t, newClient(t, url).FlushAll(ctx).Err())
		a := newStore(t, redisstore.Options{URL: url, Shards: shards})
		b := newStore(t, redisstore.Options{URL: url, Shards: shards})
		for range 3 {
			require.NoError(t, a.SetContacts(ctx, "chat", "alice", []string{"bob"}))
			infos, err := a.Namespaces(ctx, "", 10)
			require.NoError(t, err)
			require.Equal(t, []store.NamespaceInfo{{Name: "chat"}}, infos)
			require.NoError(t, b.DeleteNamespace(ctx, "chat"))
			require.Empty(t, newClient(t, url).Keys(ctx, "*contacts*").Val())
		}
		require.NoError(t, a.ChangeContacts(ctx, "chat", "alice", nil, []string{"bob"}))
		infos, err := a.Namespaces(ctx, "", 10)
		require.NoError(t, err)
		require.Empty(t, infos)
	}
}

// TestContactsKeys: what Redis holds, and that nothing is left of it.
func TestContactsKeys(t *testing.T) {
	t.Parallel()
	ctx, url := context.Background(), redistest.Start(t)
	client := newClient(t, url)
	s := newStore(t, redisstore.Options{URL: url})
	require.NoError(t, s.SetContacts(ctx, "chat", "alice", []string{"carol", "bob"}))
	members, err := client.ZRangeWithScores(ctx, contactsKey, 0, -1).Result()
	require.NoError(t, err)
	require.Equal(t, []redis.Z{{Member: "alice\x00bob"}, {Member: "alice\x00carol"}}, members)
	uses, err := client.ZRangeWithScores(ctx, usesKey, 0, -1).Result()
	require.NoError(t, err)
	require.Len(t, uses, 1)
	require.Equal(t, "alice", uses[0].Member)
	now, err := s.Now(ctx)
	require.NoError(t, err)
	require.InDelta(t, int64(now), uses[0].Score, 60_000)
	require.ElementsMatch(t, []string{"presence::meta", "presence::namespaces", contactsKey, usesKey},
		client.Keys(ctx, "*").Val())
	require.NoError(t, s.Forget(ctx, "chat", "alice"))
	require.Zero(t, client.Exists(ctx, contactsKey, usesKey).Val())
}

const (
	contactsKey = "presence:contacts:{presence:chat}"
	usesKey     = "presence:contactuses:{presence:chat}"
)

// TestContactsOfOtherType: a key that is not ours is an error, and is not deleted.
func TestContactsOfOtherType(t *testing.T) {
	t.Parallel()
	ctx, url := context.Background(), redistest.Start(t)
	client := newClient(t, url)
	s := newStore(t, redisstore.Options{URL: url})
	require.NoError(t, ping(s, "chat", "alice"))
	require.NoError(t, client.Set(ctx, contactsKey, "text", 0).Err())
	require.ErrorIs(t, s.SetContacts(ctx, "chat", "alice", []string{"bob"}), store.ErrWrongType)
	require.ErrorIs(t, s.ChangeContacts(ctx, "chat", "alice", nil, []string{"bob"}), store.ErrWrongType)
	_, err := s.ListContacts(ctx, "chat", "alice", "", 1)
	require.ErrorIs(t, err, store.ErrWrongType)
	_, err = s.AreContacts(ctx, "chat", []store.ContactPair{{Owner: "alice", Contact: "bob"}})
	require.ErrorIs(t, err, store.ErrWrongType)
	require.ErrorIs(t, s.DeleteNamespace(ctx, "chat"), store.ErrWrongType)
	require.Equal(t, "text", client.Get(ctx, contactsKey).Val())
}

// TestContactUsesOfOtherType: the same for the key of their last uses. Nothing is written or deleted.
func TestContactUsesOfOtherType(t *testing.T) {
	t.Parallel()
	ctx, url := context.Background(), redistest.Start(t)
	client := newClient(t, url)
	s := newStore(t, redisstore.Options{URL: url})
	require.NoError(t, client.ZAdd(ctx, contactsKey, redis.Z{Member: "alice\x00bob"}).Err())
	require.NoError(t, ping(s, "chat", "alice"))
	require.NoError(t, client.Set(ctx, usesKey, "text", 0).Err())
	require.ErrorIs(t, s.SetContacts(ctx, "chat", "alice", []string{"carol"}), store.ErrWrongType)
	require.ErrorIs(t, s.ChangeContacts(ctx, "chat", "alice", nil, []string{"bob"}), store.ErrWrongType)
	_, err := trimContacts(s, "chat")
	require.ErrorIs(t, err, store.ErrWrongType)
	contacts, err := s.ListContacts(ctx, "chat", "alice", "", 5)
	require.NoError(t, err)
	require.Equal(t, []string{"bob"}, contacts)
	require.Equal(t, "text", client.Get(ctx, usesKey).Val())
}

// TestSizeOfContacts: what docs/contacts.md says about memory.
func TestSizeOfContacts(t *testing.T) {
	t.Parallel()
	ctx, url := context.Background(), redistest.Start(t)
	s := newStore(t, redisstore.Options{URL: url})
	const owners, each = 200, 50
	for owner := range owners {
		contacts := make([]string, each)
		for i := range contacts {
			contacts[i] = fmt.Sprintf("user-%027d", owner+i+1)
		}
		require.NoError(t, s.SetContacts(ctx, "chat", fmt.Sprintf("user-%027d", owner), contacts))
	}
	client := newClient(t, url)
	uses := client.MemoryUsage(ctx, usesKey, 0).Val()
	size := client.MemoryUsage(ctx, contactsKey, 0).Val() + uses
	t.Logf("%d bytes a last use", uses/owners)
	t.Logf("%d bytes an owner, %d a contact", size/owners, size/owners/each)
	require.Less(t, size/owners, int64(8800))
	require.Greater(t, size/owners, int64(7000))
}
