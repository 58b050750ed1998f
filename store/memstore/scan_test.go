package memstore

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/kit"
	"github.com/lastseen/lastseen/store/storetest/presence"
)

// numbered pings n users whose names are as long as each other's.
func numbered(t *testing.T, s *Store, name string, n int) []string {
	t.Helper()
	users := make([]string, n)
	for i := range users {
		users[i] = fmt.Sprintf("%s%07d", name, i)
	}
	kit.Write(s.Ping).In(t, kit.Namespace, base, users...)
	return users
}

// TestScanOfManyChunks: a scan goes on from one chunk of names to the next, and finds everyone once.
func TestScanOfManyChunks(t *testing.T) {
	s := open(t, Options{})
	users := numbered(t, s, strings.Repeat("x", 90), 3000)
	moved := users[:5] // to slots at the end
	kit.Forget(t, s, moved...)
	kit.Write(s.Ping).In(t, kit.Namespace, base, moved...)
	users = append(users[5:], moved...)
	for _, limit := range []int{1, 300, store.MaxWatched} {
		var found []string
		for position, more := store.Position(""), true; more; more = position != "" {
			some, next, err := s.ScanUsers(context.Background(), kit.Namespace, position, limit)
			require.NoError(t, err)
			require.LessOrEqual(t, len(some), limit)
			found, position = append(found, some...), next
		}
		require.Equal(t, users, found)
	}
}

// TestScanOfRemovedUsers: those who were removed slow a scan down, but do not make a call long. Others take their
// slots.
func TestScanOfRemovedUsers(t *testing.T) {
	s := open(t, Options{})
	gone := numbered(t, s, "gone", 5*maxScanSlots)
	last := numbered(t, s, "last", 1)
	first, next, err := s.ScanUsers(context.Background(), kit.Namespace, "", 10)
	require.NoError(t, err)
	require.Equal(t, gone[:10], first)
	kit.Forget(t, s, gone...)

	calls := 0
	for found := []string(nil); len(found) == 0; calls++ {
		require.NotEmpty(t, next)
		found, next, err = s.ScanUsers(context.Background(), kit.Namespace, next, 10)
		require.NoError(t, err)
		require.Subset(t, last, found)
	}
	require.Equal(t, 5, calls)

	s.tables.Snapshot() // frees the slots
	n, _ := s.tables.index.namespaces.Get(kit.Namespace)
	chunks := n.users.names.Chunks()
	others := numbered(t, s, "more", 5*maxScanSlots)
	require.Equal(t, chunks, n.users.names.Chunks())
	require.Len(t, presence.ScanFrom(t, s, kit.Namespace, "", store.MaxWatched), len(others)+1)
}
