package filestore

import (
	"fmt"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
)

// TestIndexKeepsNoBuffer: names are parts of requests, which must not be kept whole. Whatever happens
// to a user, one copy of the ID is held.
func TestIndexKeepsNoBuffer(t *testing.T) {
	var x index
	for at := range lastseen.Instant(5) {
		request := fmt.Sprintf("%1000s", "chat/alice")
		x.setIn(x.add(request[990:994]), request[995:], lastseen.State{At: at + 1, Left: at%2 == 0})
		name, n, ok := x.namespaces.Min()
		require.True(t, ok)
		require.Equal(t, "chat", name)
		require.NotSame(t, unsafe.StringData(request[990:]), unsafe.StringData(name))
		require.Equal(t, 1, n.users.len())
		require.Equal(t, 1, n.order.Len())
		e, _ := n.order.Min()
		require.Equal(t, "alice", n.users.name(e))
		require.Equal(t, [][]byte{[]byte("\x00\x05alice")}, n.users.names.chunks)
	}
}

// TestRank compares the rank of every score with counting, with ties, both halves and an empty namespace.
func TestRank(t *testing.T) {
	for _, scores := range [][]score{{}, {5}, {-5}, {-9, -5, -5, -5, 2, 5, 5, 9}, {1, 1, 1, 1, 1, 1}} {
		users := newUsers()
		for i, c := range scores {
			users.set(fmt.Sprint(i), c)
		}
		n := newNamespace(users)
		for c := score(-11); c <= 11; c++ {
			lower := 0
			for _, other := range scores {
				if other < c {
					lower++
				}
			}
			tied := 0
			for i, other := range scores {
				if user := fmt.Sprint(i); other == c {
					require.Equal(t, lower+tied, n.rank(c, user), "%d %s in %v", c, user, scores)
					tied++
				}
			}
			require.Equal(t, lower, n.rank(c, ""), "%d in %v", c, scores)
		}
	}
}
