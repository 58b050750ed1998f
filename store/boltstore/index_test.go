package boltstore

import (
	"fmt"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
)

// TestIndexKeepsNoBuffer: names are parts of requests, which must not be kept whole. Whatever happens
// to a user, the map and the tree share one copy of the ID, the first.
func TestIndexKeepsNoBuffer(t *testing.T) {
	var x index
	var held *byte
	for at := range lastseen.Instant(5) {
		request := fmt.Sprintf("%1000s", "chat/alice")
		x.set(request[990:994], request[995:], lastseen.State{At: at + 1, Left: at%2 == 0})
		name, n, ok := x.namespaces.Min()
		require.True(t, ok)
		require.Equal(t, "chat", name)
		require.NotSame(t, unsafe.StringData(request[990:]), unsafe.StringData(name))
		require.Len(t, n.users, 1)
		require.Equal(t, 1, n.order.Len())
		e, _ := n.order.Min()
		require.Equal(t, "alice", e.user)
		for user := range n.users {
			require.Same(t, unsafe.StringData(e.user), unsafe.StringData(user))
		}
		if held == nil {
			held = unsafe.StringData(e.user)
			require.NotSame(t, unsafe.StringData(request[995:]), held)
		}
		require.Same(t, held, unsafe.StringData(e.user))
	}
}

// TestRank compares the rank of every score with counting, on ties, both halves and nobody.
func TestRank(t *testing.T) {
	for _, scores := range [][]score{{}, {5}, {-5}, {-9, -5, -5, -5, 2, 5, 5, 9}, {1, 1, 1, 1, 1, 1}} {
		users := map[string]score{}
		for i, c := range scores {
			users[fmt.Sprint(i)] = c
		}
		n := newNamespace(users)
		for c := score(-11); c <= 11; c++ {
			lower := 0
			for _, other := range scores {
				if other < c {
					lower++
				}
			}
			require.Equal(t, lower, n.rank(c), "%d in %v", c, scores)
		}
	}
}
