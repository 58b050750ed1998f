package memstore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/contacts"
	"github.com/lastseen/lastseen/store/storetest/kit"
)

// TestContactsOfLargeNamespace: contacts stay when the last of many users is gone, and count as live.
func TestContactsOfLargeNamespace(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := open(t, Options{})
	contacts.Set(t, s, "alice", "bob")
	alone := s.tables.index.live
	batch := make([]store.PresenceEvent, 10_000)
	for i := range batch {
		batch[i] = store.PresenceEvent{User: fmt.Sprintf("a-rather-long-user-name-%06d", i), At: base}
	}
	kit.Write(s.Ping).Send(t, "chat", batch)
	n, _ := s.tables.index.namespaces.Get("chat")
	require.True(t, n.users.large())
	for n.users.len() > 0 {
		_, err := s.Trim(ctx, "chat", store.TrimQuery{Age: time.Minute, Now: s.tables.readClock(), All: true})
		require.NoError(t, err)
	}
	require.False(t, n.users.large())
	require.Equal(t, "bob", contactsOf(t, s, "alice"))
	require.Equal(t, alone, s.tables.index.live)
	contacts.Set(t, s, "alice")
	require.Equal(t, namespaceBytes("chat"), s.tables.index.live)
	require.NoError(t, s.DeleteNamespace(ctx, "chat"))
	require.Zero(t, s.tables.index.live)
}

// TestContactList compares a list with a slice.
func TestContactList(t *testing.T) {
	t.Parallel()
	ids := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "aa", "b", "é", "éa", strings.Repeat("z", 256), "Z"}), 0, 7)
	rapid.Check(t, func(t *rapid.T) {
		want := slices.Compact(slices.Sorted(slices.Values(ids.Draw(t, "ids"))))
		list := newContactList(want)
		require.Equal(t, len(want), list.len())
		require.Equal(t, append([]string{}, want...), list.all())
		for _, id := range []string{"", "a", "aa", "b", "c", "é", "zz", "Z"} {
			require.Equal(t, slices.Contains(want, id), list.has(id), id)
			i, found := slices.BinarySearch(want, id)
			if found {
				i++
			}
			require.Equal(t, i, list.after(id), id)
		}
		add, remove := store.ContactChanges(ids.Draw(t, "add"), ids.Draw(t, "remove"))
		next := list.change(add, remove)
		for _, id := range add {
			require.True(t, next.has(id))
		}
		for _, id := range remove {
			require.False(t, next.has(id))
		}
		added, removed := list.difference(next)
		require.Equal(t, next, list.change(added, removed))
		require.Subset(t, add, added)
		require.Subset(t, remove, removed)
		require.Equal(t, next.len(), list.len()+len(added)-len(removed))
	})
}
