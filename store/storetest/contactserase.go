package storetest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/store"
)

func testContactsNamespaces(t *testing.T, s store.Store) {
	ctx := context.Background()
	for i, namespace := range []string{"a", "b", "a-b"} {
		require.NoError(t, s.SetContacts(ctx, namespace, "alice", []string{fmt.Sprint("friend", i)}))
	}
	for i, namespace := range []string{"a", "b", "a-b"} {
		require.Equal(t, []string{fmt.Sprint("friend", i)}, contactsIn(t, s, namespace, "alice"))
	}
	require.Empty(t, contactsOf(t, s, "alice"))
	require.NoError(t, s.DeleteNamespace(ctx, "a"))
	require.Empty(t, contactsIn(t, s, "a", "alice"))
	require.Equal(t, []string{"friend2"}, contactsIn(t, s, "a-b", "alice"))
}

// testContactsCreate: what records a contact creates the namespace, and nothing else does.
func testContactsCreate(t *testing.T, s store.Store) {
	ctx := context.Background()
	setContacts(t, s, "alice")
	changeContacts(t, s, "alice", nil, nil)
	changeContacts(t, s, "alice", nil, []string{"bob"})
	changeContacts(t, s, "alice", []string{"bob"}, []string{"bob"})
	require.Error(t, s.SetContacts(ctx, ns, "alice", numberedUsers(store.MaxContacts+1)))
	require.Empty(t, contactsOf(t, s, "alice"))
	areContacts(t, s, store.ContactPair{Owner: "alice", Contact: "bob"})
	require.Empty(t, existing(t, s))
	setContacts(t, s, "alice", "bob")
	require.Equal(t, []store.NamespaceInfo{{Name: ns}}, namespaces(t, s, 10))
	require.NoError(t, s.ChangeContacts(ctx, "other", "alice", []string{"bob"}, nil))
	require.Equal(t, []store.NamespaceInfo{{Name: ns}, {Name: "other"}}, namespaces(t, s, 10))
}

// testContactsForget: Forget deletes what the user owns, also of a user without a state, and leaves the lists of others
// as they are.
func testContactsForget(t *testing.T, s store.Store) {
	setContacts(t, s, "alice", "bob", "carol")
	setContacts(t, s, "bob", "alice")
	setContacts(t, s, "carol", "alice", "bob")
	ping(t, s, "alice", base)
	record(t, s, on("carol", "tab", base))
	forget(t, s, "alice", "bob", "nobody")
	require.Empty(t, contactsOf(t, s, "alice"))
	require.Empty(t, contactsOf(t, s, "bob"), "without a state, too")
	require.Equal(t, []string{"alice", "bob"}, contactsOf(t, s, "carol"))
	forget(t, s, "carol")
	require.Empty(t, contactsOf(t, s, "carol"))
	ping(t, s, "alice", base)
	require.Empty(t, contactsOf(t, s, "alice"), "nothing comes back")
}

// testContactsTrim: contacts outlast the state of their owner.
func testContactsTrim(t *testing.T, s store.Store) {
	old := now(t, s) - 60*minute
	ping(t, s, "alice", old)
	record(t, s, on("bob", "tab", old))
	setContacts(t, s, "alice", "bob")
	setContacts(t, s, "bob", "alice", "carol")
	require.Equal(t, 2, trim(t, s, ns, old.Add(30*time.Minute), true).Deleted)
	require.Equal(t, []string{"bob"}, contactsOf(t, s, "alice"))
	require.Equal(t, []string{"alice", "carol"}, contactsOf(t, s, "bob"))
	ping(t, s, "alice", old)
	require.Equal(t, []string{"bob"}, contactsOf(t, s, "alice"))
}

func testContactsDelete(t *testing.T, s store.Store) {
	for range 2 {
		for i := range 30 {
			setContacts(t, s, fmt.Sprint("owner", i), "bob")
		}
		ping(t, s, "owner1", base)
		require.NoError(t, s.DeleteNamespace(context.Background(), ns))
		require.Empty(t, existing(t, s))
		for i := range 30 {
			require.Empty(t, contactsOf(t, s, fmt.Sprint("owner", i)))
		}
		ping(t, s, "owner1", base)
		require.Empty(t, contactsOf(t, s, "owner1"), "nothing comes back")
	}
}

// testContactsRemoveEmpty: a namespace with contacts is not empty, and one without is.
func testContactsRemoveEmpty(t *testing.T, s store.Store) {
	setContacts(t, s, "alice", "bob")
	require.False(t, removeEmpty(t, s, ns))
	ping(t, s, "bob", base)
	forget(t, s, "bob")
	require.False(t, removeEmpty(t, s, ns))
	require.Equal(t, []string{"bob"}, contactsOf(t, s, "alice"))
	require.Equal(t, []string{ns}, existing(t, s))
	changeContacts(t, s, "alice", nil, []string{"bob"})
	require.True(t, removeEmpty(t, s, ns))
	require.Empty(t, existing(t, s))
	setContacts(t, s, "alice", "carol")
	require.Equal(t, []string{ns}, existing(t, s), "it exists again")
	forget(t, s, "alice")
	require.True(t, removeEmpty(t, s, ns))
}

// testContactsRemoveEmptyWriters removes a namespace again and again while contacts come and go. Every change that
// returned is there afterwards.
func testContactsRemoveEmptyWriters(t *testing.T, s store.Store) {
	const writers, rounds = 4, 40
	var writing sync.WaitGroup
	stop := keepRemoving(t, s)
	for w := range writers {
		writing.Go(func() {
			owner := fmt.Sprint("owner", w)
			for i := range rounds {
				setContacts(t, s, owner, "bob")
				if got := contactsOf(t, s, owner); len(got) != 1 {
					t.Errorf("%q has %q", owner, got)
				}
				if i < rounds-1 {
					setContacts(t, s, owner)
				}
			}
		})
	}
	writing.Wait()
	stop()
	for w := range writers {
		require.Equal(t, []string{"bob"}, contactsOf(t, s, fmt.Sprint("owner", w)))
	}
	require.Equal(t, []string{ns}, existing(t, s))
	require.False(t, removeEmpty(t, s, ns))
}
