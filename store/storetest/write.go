package storetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// assertion is a ping or a leave.
type assertion struct {
	leave bool
	at    lastseen.Instant
}

// send makes the assertion about users, in one call.
func (a assertion) send(t require.TestingT, s store.Store, users ...string) []lastseen.State {
	w := write(s.Ping)
	if a.leave {
		w = s.Leave
	}
	return w.in(t, ns, a.at, users...)
}

// permutations calls f with every order of items.
func permutations[T any](items []T, f func([]T)) {
	if len(items) <= 1 {
		f(items)
		return
	}
	for i := range items {
		rest := append(append([]T{}, items[:i]...), items[i+1:]...)
		permutations(rest, func(p []T) { f(append([]T{items[i]}, p...)) })
	}
}

func testMergeAnyOrder(t *testing.T, s store.Store) {
	sets := []struct {
		assertions []assertion
		want       lastseen.State
	}{
		{[]assertion{{false, 10}, {false, 20}, {false, 20}, {false, 30}}, here(30)},
		{[]assertion{{true, 10}, {true, 30}, {true, 20}, {true, 30}}, left(30)},
		{[]assertion{{false, 20}, {true, 20}}, left(20)},
		{[]assertion{{false, 20}, {true, 20}, {false, 20}, {true, 20}}, left(20)},
		{[]assertion{{false, 20}, {true, 20}, {false, 21}}, here(21)},
		{[]assertion{{true, 10}, {false, 20}, {true, 20}, {false, 10}, {true, 5}}, left(20)},
		{[]assertion{{true, 20}, {false, 19}, {false, 10}}, left(20)},
		{[]assertion{{true, 19}, {false, 20}, {true, 10}}, here(20)},
	}
	for i, set := range sets {
		n := 0
		permutations(set.assertions, func(order []assertion) {
			user := fmt.Sprintf("user-%d-%d", i, n)
			n++
			var want lastseen.State
			for _, a := range order {
				a.at += base
				got := a.send(t, s, user)[0]
				want = lastseen.Merge(want, lastseen.State{At: a.at, Left: a.leave})
				require.Equal(t, want, got, "%v", order)
			}
			require.Equal(t, []lastseen.State{{At: base + set.want.At, Left: set.want.Left}}, lookup(t, s, user), "%v",
				order)
		})
	}
}

func testMergeOneBatch(t *testing.T, s store.Store) {
	states := write(s.Ping).send(t, ns, []store.Sighting{
		{User: "alice", At: base + 5},
		{User: "bob", At: base + 1},
		{User: "alice", At: base + 9},
		{User: "alice", At: base + 7},
	})
	require.Equal(t, []lastseen.State{here(base + 9), here(base + 1), here(base + 9), here(base + 9)}, states,
		"a user named twice has the final state twice")
	states = write(s.Leave).send(t, ns, []store.Sighting{
		{User: "alice", At: base + 8},
		{User: "bob", At: base + 1},
		{User: "bob", At: base + 3},
	})
	require.Equal(t, []lastseen.State{here(base + 9), left(base + 3), left(base + 3)}, states)
	require.Equal(t, []lastseen.State{here(base + 9), left(base + 3)}, lookup(t, s, "alice", "bob"))
}

func testWriteResults(t *testing.T, s store.Store) {
	require.Equal(t, here(base), ping(t, s, "alice", base))
	require.Equal(t, here(base), ping(t, s, "alice", base-1), "a late ping returns what is stored")
	require.Equal(t, left(base), leave(t, s, "alice", base))
	require.Equal(t, left(base), leave(t, s, "alice", base-1))
	require.Equal(t, left(base), ping(t, s, "alice", base), "at one millisecond left beats present")
	require.Equal(t, here(base+1), ping(t, s, "alice", base+1))
	require.Equal(t, here(base+1), leave(t, s, "alice", base))

	for _, w := range writes(s) {
		require.Empty(t, w.in(t, ns, base), "a batch without users")
	}
}

// testNewUsers sends the same pings and leaves in many orders, each for users never seen before, one by one and in
// batches. The greatest of them is a leave, which would be lost if it came first and were not recorded.
func testNewUsers(t *testing.T, s store.Store) {
	random := rand.New(rand.NewPCG(7, 8))
	assertions := []assertion{{true, base + 3}, {false, base + 3}, {false, base + 1}, {true, base + 2}}
	want := left(base + 3)
	for i := range 30 {
		random.Shuffle(len(assertions), func(i, j int) { assertions[i], assertions[j] = assertions[j], assertions[i] })
		users := make([]string, 1+i%3)
		for k := range users {
			users[k] = fmt.Sprintf("new-%d-%d", i, k)
		}
		for _, a := range assertions {
			a.send(t, s, users...)
		}
		for k, got := range lookup(t, s, users...) {
			require.Equal(t, want, got, "%s after %v", users[k], assertions)
		}
	}
}

// testLeaveNeverSeen: a leave counts whether or not a ping came before it.
func testLeaveNeverSeen(t *testing.T, s store.Store) {
	require.Equal(t, left(base), leave(t, s, "zoe", base))
	require.Equal(t, []lastseen.State{left(base)}, lookup(t, s, "zoe"))
	require.Equal(t, []store.Record{{User: "zoe", State: left(base)}},
		list(t, s, store.ListQuery{Ranges: everyone(), Limit: 10}))
	require.Equal(t, []store.NamespaceInfo{{Name: ns, Newest: base}}, namespaces(t, s, 10),
		"a namespace exists from its first leave on")

	require.Equal(t, left(base), ping(t, s, "zoe", base-1), "the ping was earlier")
	require.Equal(t, left(base), ping(t, s, "zoe", base), "at one millisecond left beats present")
	require.Equal(t, here(base+1), ping(t, s, "zoe", base+1))
	forget(t, s, "nobody")
	require.Equal(t, []lastseen.State{{}}, lookup(t, s, "nobody"))
}

// oddIDs returns every code point whose UTF-8 differs in a new byte, the longest IDs, and some that are similar or have
// a meaning elsewhere.
func oddIDs() []string {
	var ids []string
	seen := map[byte]bool{}
	for r, step := rune(1), rune(1); r <= utf8.MaxRune; r += step {
		if r == 0x800 {
			step = 0x800 // from here on, only a multiple of it can have a new byte
		}
		if unicode.IsControl(r) || !utf8.ValidRune(r) {
			continue
		}
		id := string(r)
		fresh := false
		for i := range len(id) {
			fresh = fresh || !seen[id[i]]
			seen[id[i]] = true
		}
		if fresh && id != "." {
			ids = append(ids, id, strings.Repeat(id, lastseen.MaxUserLen/len(id)))
		}
	}
	ids = append(ids, "a", "A", "a ", " a", "a/b", "a:b", "a%2Fb", "+", "(", "[", "-inf", "+inf",
		"1", "-1", "é", "é", "...")
	slices.Sort(ids)
	return slices.Compact(ids)
}

func testUserIDs(t *testing.T, s store.Store) {
	ids := oddIDs()
	batch := make([]store.Sighting, len(ids))
	want := map[string]lastseen.State{}
	for i, id := range ids {
		require.NoError(t, lastseen.CheckUser(id))
		batch[i] = store.Sighting{User: id, At: base + lastseen.Instant(i%3)}
		want[id] = lastseen.Merge(want[id], here(batch[i].At))
	}
	write(s.Ping).send(t, ns, batch)
	for i, state := range lookup(t, s, ids...) {
		require.Equal(t, want[ids[i]], state, "%q", ids[i])
	}
	for _, order := range []store.Order{store.Newest, store.Oldest} {
		got := walk(t, s, store.ListQuery{Ranges: everyone(), Order: order, Limit: 7})
		requireOrdered(t, order, got)
		require.Len(t, got, len(want))
		for _, r := range got {
			require.Equal(t, want[r.User], r.State, "%q", r.User)
		}
	}
	forget(t, s, ids...)
	require.Empty(t, list(t, s, store.ListQuery{Ranges: everyone(), Limit: 10}))
}

func testTimes(t *testing.T, s store.Store) {
	for _, at := range []lastseen.Instant{lastseen.MinInstant, 2, 999, 1000, 100_123_000, base - 1, base, base + 1} {
		user := at.String()
		require.Equal(t, here(at), ping(t, s, user, at))
		require.Equal(t, []lastseen.State{here(at)}, lookup(t, s, user))
		require.Equal(t, left(at), leave(t, s, user, at))
		require.Equal(t, []lastseen.State{left(at)}, lookup(t, s, user))
		only := []lastseen.Range{{From: at, To: at, Left: true}}
		require.Equal(t, []store.Record{{User: user, State: left(at)}},
			list(t, s, store.ListQuery{Ranges: only, Limit: 10}))
	}
}

func testLargeBatch(t *testing.T, s store.Store) {
	names := crowd(t, s, 10_000)
	states := lookup(t, s, names...)
	require.Len(t, states, len(names))
	for i, state := range states {
		require.Equal(t, here(base), state, names[i])
	}
	batch := sightings(base, names...)
	for i := range batch {
		batch[i].At += lastseen.Instant(i)
	}
	for i, state := range write(s.Leave).send(t, ns, batch) {
		require.Equal(t, left(base+lastseen.Instant(i)), state, names[i])
	}
}

func testConcurrentWriters(t *testing.T, s store.Store) {
	const writers, writes, users = 16, 60, 20
	want := make([]map[string]lastseen.State, writers)
	var wg sync.WaitGroup
	for w := range writers {
		want[w] = map[string]lastseen.State{}
		random := rand.New(rand.NewPCG(uint64(w), 1))
		wg.Go(func() {
			for range writes {
				user, at := fmt.Sprint(random.IntN(users)), base+lastseen.Instant(random.IntN(50))
				state := lastseen.State{At: at, Left: random.IntN(2) == 0}
				write := s.Ping
				if state.Left {
					write = s.Leave
				}
				got, err := write(context.Background(), ns, []store.Sighting{{User: user, At: at}})
				if err != nil || got[0].Compare(state) < 0 {
					t.Errorf("%v of %s: %v, %v", state, user, got, err)
					return
				}
				want[w][user] = lastseen.Merge(want[w][user], state)
			}
		})
	}
	wg.Wait()
	for user := range users {
		var greatest lastseen.State
		for w := range writers {
			greatest = lastseen.Merge(greatest, want[w][fmt.Sprint(user)])
		}
		require.Equal(t, []lastseen.State{greatest}, lookup(t, s, fmt.Sprint(user)))
	}
}
