package memstore

import (
	"fmt"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store/memstore/packed"
)

// drawID draws one of few IDs of few lengths, so that they meet again and take each other's slots.
func drawID(t *rapid.T) string {
	lengths := rapid.SampledFrom([]int{1, 2, 127, 128, 256, 70_000})
	return strings.Repeat(rapid.StringMatching("[abc]").Draw(t, "letter"), lengths.Draw(t, "length"))
}

// TestUsers does the same to users and to a map, also where all or half of the users have the same hash. What a
// freeze saw can be read until the next one.
func TestUsers(t *testing.T) {
	testenv.SkipWithRace(t, "there is one goroutine")
	for name, hash := range map[string]func(string) uint64{
		"random": newUsers().hash,
		"one":    func(string) uint64 { return 0 },
		"two":    func(user string) uint64 { return uint64(user[0] % 2) },
	} {
		t.Run(name, rapid.MakeCheck(func(t *rapid.T) {
			u, want := newUsers(), map[string]packed.Score{}
			u.hash = hash
			frozen, seen := u.names.Freeze(), map[packed.Ref]string{}
			t.Repeat(map[string]func(*rapid.T){
				"set": func(t *rapid.T) {
					user, c := drawID(t), packed.Score(rapid.IntRange(1, 9).Draw(t, "score"))
					e, old, known := u.set(user, c)
					before, expected := want[user]
					require.Equal(t, expected, known)
					require.Equal(t, before, old.score)
					require.Equal(t, c, e.score)
					require.Equal(t, user, u.name(e))
					want[user] = c
				},
				"remove": func(t *rapid.T) {
					user := drawID(t)
					u.remove(user)
					delete(want, user)
				},
				"freeze": func(*rapid.T) {
					frozen, seen = u.names.Freeze(), map[packed.Ref]string{}
					for _, e := range u.all() {
						seen[e.name] = u.name(e)
					}
				},
				"": func(t *rapid.T) {
					require.Equal(t, len(want), u.len())
					got := map[string]packed.Score{}
					for _, e := range u.all() {
						got[u.name(e)] = e.score
					}
					require.Equal(t, want, got)
					for user, c := range want {
						e, ok := u.get(user)
						require.True(t, ok)
						require.Equal(t, c, e.score)
					}
					_, ok := u.get("nobody")
					require.False(t, ok)
					for p, name := range seen {
						require.Equal(t, name, string(frozen.At(p)))
					}
				},
			})
		}))
	}
}

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
		require.Equal(t, packed.Ref(1), e.name, "the first after the empty one")
	}
}

// TestRank compares the rank of every score with counting, with ties, both halves and an empty namespace.
func TestRank(t *testing.T) {
	for _, scores := range [][]packed.Score{{}, {5}, {-5}, {-9, -5, -5, -5, 2, 5, 5, 9}, {1, 1, 1, 1, 1, 1}} {
		users := newUsers()
		for i, c := range scores {
			users.set(fmt.Sprint(i), c)
		}
		n := newNamespace(users)
		for c := packed.Score(-11); c <= 11; c++ {
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
