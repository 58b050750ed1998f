package contacts

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/kit"
)

func testContactsNamespaces(t *testing.T, s store.Store) {
	ctx := context.Background()
	for i, namespace := range []string{"a", "b", "a-b"} {
		require.NoError(t, s.SetContacts(ctx, namespace, "alice", []string{fmt.Sprint("friend", i)}))
	}
	for i, namespace := range []string{"a", "b", "a-b"} {
		require.Equal(t, []string{fmt.Sprint("friend", i)}, contactsIn(t, s, namespace, "alice"))
	}
	require.Empty(t, Of(t, s, "alice"))
	require.NoError(t, s.DeleteNamespace(ctx, "a"))
	require.Empty(t, contactsIn(t, s, "a", "alice"))
	require.Equal(t, []string{"friend2"}, contactsIn(t, s, "a-b", "alice"))
}

// testContactsCreate: what records a contact creates the namespace, and nothing else does.
func testContactsCreate(t *testing.T, s store.Store) {
	ctx := context.Background()
	Set(t, s, "alice")
	changeContacts(t, s, "alice", nil, nil)
	changeContacts(t, s, "alice", nil, []string{"bob"})
	changeContacts(t, s, "alice", []string{"bob"}, []string{"bob"})
	require.Error(t, s.SetContacts(ctx, kit.Namespace, "alice", numberedUsers(store.MaxContacts+1)))
	require.Empty(t, Of(t, s, "alice"))
	areContacts(t, s, store.ContactPair{Owner: "alice", Contact: "bob"})
	require.Empty(t, kit.Existing(t, s))
	Set(t, s, "alice", "bob")
	require.Equal(t, []store.NamespaceInfo{{Name: kit.Namespace}}, kit.Namespaces(t, s, 10))
	require.NoError(t, s.ChangeContacts(ctx, "other", "alice", []string{"bob"}, nil))
	require.Equal(t, []store.NamespaceInfo{{Name: kit.Namespace}, {Name: "other"}}, kit.Namespaces(t, s, 10))
}

// testContactsRemoveEmpty: a namespace with contacts is not empty, and one without is.
func testContactsRemoveEmpty(t *testing.T, s store.Store) {
	Set(t, s, "alice", "bob")
	require.False(t, kit.RemoveEmpty(t, s, kit.Namespace))
	kit.Ping(t, s, "bob", kit.Base)
	kit.Forget(t, s, "bob")
	require.False(t, kit.RemoveEmpty(t, s, kit.Namespace))
	require.Equal(t, []string{"bob"}, Of(t, s, "alice"))
	require.Equal(t, []string{kit.Namespace}, kit.Existing(t, s))
	changeContacts(t, s, "alice", nil, []string{"bob"})
	require.True(t, kit.RemoveEmpty(t, s, kit.Namespace))
	require.Empty(t, kit.Existing(t, s))
	Set(t, s, "alice", "carol")
	require.Equal(t, []string{kit.Namespace}, kit.Existing(t, s), "it exists again")
	kit.Forget(t, s, "alice")
	require.True(t, kit.RemoveEmpty(t, s, kit.Namespace))
}

func testContactsRemoveEmptyWriters(t *testing.T, s store.Store) {
	set := func(contacts ...string) func(int, int) error {
		return func(w, _ int) error {
			owner := fmt.Sprint("owner", w)
			err := s.SetContacts(context.Background(), kit.Namespace, owner, contacts)
			if got := Of(t, s, owner); len(got) != len(contacts) {
				return fmt.Errorf("%q has %q", owner, got)
			}
			return err
		}
	}
	kit.RemoveWhile(t, s, set("bob"), set())
	require.Equal(t, []string{"bob"}, Of(t, s, "owner3"))
}
