package presence

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/kit"
)

// testNothing: calls about nobody, and about a namespace that does not exist, succeed and make nothing.
func testNothing(t *testing.T, s store.Store) {
	for _, write := range kit.Writes(s) {
		require.Empty(t, write.Send(t, kit.Namespace, nil))
	}
	require.Empty(t, kit.Lookup(t, s))
	require.Empty(t, kit.Count(t, s))
	require.Equal(t, []int64{0, 0}, kit.Count(t, s, kit.Everyone()...))
	require.False(t, kit.RemoveEmpty(t, s, kit.Namespace))
	require.Empty(t, kit.Existing(t, s))
}

func testNamespacesAreApart(t *testing.T, s store.Store) {
	ctx := context.Background()
	kit.Ping(t, s, "alice", kit.Base)
	for _, other := range []string{"Chat", "chat2", "cha", "unused"} {
		states, _, err := s.Describe(ctx, other, []string{"alice"})
		require.NoError(t, err)
		require.Equal(t, []lastseen.State{{}}, states)
		page, err := s.List(ctx, other, store.ListQuery{Ranges: kit.Everyone(), Limit: 5})
		require.NoError(t, err)
		require.Empty(t, page)
	}
	kit.Write(s.Ping).In(t, "Chat", kit.Base+9, "alice")
	require.NoError(t, s.Forget(ctx, "chat2", "alice"))
	require.Equal(t, []lastseen.State{kit.Here(kit.Base)}, kit.Lookup(t, s, "alice"))
}

// requireOrdered fails unless records are in strictly ascending order.
func requireOrdered(t require.TestingT, order store.Order, records []store.Record) {
	for i := 1; i < len(records); i++ {
		require.Negative(t, order.Compare(records[i-1], records[i]), "%v before %v", records[i-1], records[i])
	}
}

func testOrderWithinOneMillisecond(t *testing.T, s store.Store) {
	for _, user := range []string{"b", "B", "a", "é", "aa", "~"} {
		kit.Ping(t, s, user, kit.Base)
	}
	for _, user := range []string{"y", "Y", "x", "ü", "xx"} {
		kit.Ping(t, s, user, kit.Base-5)
		kit.Leave(t, s, user, kit.Base)
	}
	kit.Ping(t, s, "later", kit.Base+1)
	kit.Ping(t, s, "earlier", kit.Base-1)
	want := []string{"later", "Y", "x", "xx", "y", "ü", "é", "~", "b", "aa", "a", "B", "earlier"}
	for limit := 1; limit <= len(want)+1; limit++ {
		newest := kit.Walk(t, s, store.ListQuery{Ranges: kit.Everyone(), Order: store.Newest, Limit: limit})
		require.Equal(t, want, kit.Users(newest), "pages of %d", limit)
		oldest := kit.Walk(t, s, store.ListQuery{Ranges: kit.Everyone(), Order: store.Oldest, Limit: limit})
		slices.Reverse(oldest)
		require.Equal(t, newest, oldest, "oldest is the exact reverse, pages of %d", limit)
	}
}

func testWalkOneMillisecond(t *testing.T, s store.Store) {
	size := testenv.Choose(10_000, 4200) // still more than a store writes at once
	names := kit.Crowd(t, s, size)
	gone := names[1300:2500]
	kit.Write(s.Leave).In(t, kit.Namespace, kit.Base, gone...)
	want := slices.Concat(gone, reversed(names[2500:]), reversed(names[:1300]))

	const limit = 7 // not a divisor of what a store reads at once
	newest := kit.Walk(t, s, store.ListQuery{Ranges: kit.Everyone(), Order: store.Newest, Limit: limit})
	require.Equal(t, want, kit.Users(newest))
	oldest := kit.Walk(t, s, store.ListQuery{Ranges: kit.Everyone(), Order: store.Oldest, Limit: limit})
	require.Equal(t, reversed(want), kit.Users(oldest))
}

func reversed(names []string) []string {
	r := slices.Clone(names)
	slices.Reverse(r)
	return r
}

// testWalkWhileOthersMove walks among 2,000 users of one millisecond. Between pages, a third of them are pinged, leave
// or are forgotten, beginning with the record from which the next page resumes.
func testWalkWhileOthersMove(t *testing.T, s store.Store) {
	for _, order := range []store.Order{store.Newest, store.Oldest} {
		require.NoError(t, s.DeleteNamespace(context.Background(), kit.Namespace))
		names := kit.Crowd(t, s, 2000)
		still := map[string]bool{}
		var movers []string
		for i, user := range names {
			if i%3 == 0 {
				movers = append(movers, user)
			} else {
				still[user] = true
			}
		}
		random := rand.New(rand.NewPCG(1, 2))
		random.Shuffle(len(movers), func(i, j int) { movers[i], movers[j] = movers[j], movers[i] })
		move := func(user string, page int) {
			switch page % 4 {
			case 0:
				kit.Ping(t, s, user, kit.Base+lastseen.Instant(page))
			case 1:
				kit.Leave(t, s, user, kit.Base+lastseen.Instant(page%2))
			case 2:
				kit.Forget(t, s, user)
			default:
				kit.Ping(t, s, "new"+user, kit.Base)
			}
		}
		q := store.ListQuery{Ranges: []lastseen.Range{
			{From: kit.Base - 10, To: kit.Base + 1}, {From: kit.Base - 10, To: kit.Base + 1, Left: true},
		}, Order: order, Limit: 7}
		listed := map[string]int{}
		for page := 1; ; page++ {
			records := kit.List(t, s, q)
			requireOrdered(t, order, records)
			for _, r := range records {
				listed[r.User]++
			}
			if len(records) < q.Limit {
				break
			}
			last := records[len(records)-1]
			if !still[last.User] {
				move(last.User, page)
			}
			if len(movers) > 0 {
				move(movers[0], page+1)
				movers = movers[1:]
			}
			q.After = &last
		}
		for user := range still {
			require.Equal(t, 1, listed[user], "%s, who did not move, order %v", user, order)
		}
	}
}

// ScanFrom scans a namespace from a position to the end, and returns the users that it finds, once each.
func ScanFrom(t require.TestingT, s store.Store, namespace string, after store.Position, limit int) map[string]bool {
	found := map[string]bool{}
	for range 100_000 {
		users, next, err := s.ScanUsers(context.Background(), namespace, after, limit)
		require.NoError(t, err)
		for _, user := range users {
			found[user] = true
		}
		if next == "" {
			return found
		}
		after = next
	}
	require.Fail(t, "the scan does not end")
	return nil
}

func setOf(users []string) map[string]bool {
	set := make(map[string]bool, len(users))
	for _, user := range users {
		set[user] = true
	}
	return set
}

// scanModel is a scan in progress, of users with every kind of name.
type scanModel struct {
	store.Store
	names     []string
	known     map[string]bool // now
	steady    map[string]bool // known since the scan began
	found     map[string]bool
	positions []store.Position // of all scans; the scan continues at the last one, and begins at ""
}

// testScanModel: scans find everyone who stays, and nobody who is not there, while others come and go.
func testScanModel(t *testing.T, open kit.Open) {
	rapid.Check(t, func(rt *rapid.T) {
		m := &scanModel{Store: open(t), names: kit.OddIDs(), positions: []store.Position{""}}
		m.write(rt, m.names[:rapid.IntRange(0, len(m.names)).Draw(rt, "n")])
		rt.Repeat(map[string]func(*rapid.T){
			"ping":      func(t *rapid.T) { m.write(t, m.draw(t)) },
			"forget":    m.forget,
			"trim":      m.trim,
			"delete":    m.delete,
			"scan":      m.scan,
			"scan on":   m.scan,
			"positions": m.scanElsewhere,
		})
		for more := true; more; more = m.positions[len(m.positions)-1] != "" {
			m.scan(rt)
		}
	})
}

// draw returns some users whose names are next to each other.
func (m *scanModel) draw(t *rapid.T) []string {
	first := rapid.IntRange(0, len(m.names)-1).Draw(t, "first")
	return m.names[first:min(first+rapid.IntRange(1, 100).Draw(t, "n"), len(m.names))]
}

// changed notes who is known after a change.
func (m *scanModel) changed(t *rapid.T) {
	m.known = setOf(kit.Remaining(t, m))
	maps.DeleteFunc(m.steady, func(user string, _ bool) bool { return !m.known[user] })
}

func (m *scanModel) write(t *rapid.T, users []string) {
	write := kit.Write(m.Ping)
	if rapid.Bool().Draw(t, "leave") {
		write = m.Leave
	}
	write.In(t, kit.Namespace, kit.Base+rapid.SampledFrom([]lastseen.Instant{0, kit.Minute}).Draw(t, "at"), users...)
	m.changed(t)
}

func (m *scanModel) forget(t *rapid.T) {
	kit.Forget(t, m, m.draw(t)...)
	m.changed(t)
}

func (m *scanModel) trim(t *rapid.T) {
	kit.Trim(t, m, kit.Namespace, kit.Base+kit.Minute/2, true)
	m.changed(t)
}

func (m *scanModel) delete(t *rapid.T) {
	require.NoError(t, m.DeleteNamespace(context.Background(), kit.Namespace))
	m.changed(t)
}

// scan makes one step of the scan.
func (m *scanModel) scan(t *rapid.T) {
	after := m.positions[len(m.positions)-1]
	if after == "" {
		m.steady, m.found = maps.Clone(m.known), map[string]bool{}
	}
	limit := rapid.SampledFrom([]int{1, 30, 100, 10_000}).Draw(t, "limit")
	users, next, err := m.ScanUsers(context.Background(), kit.Namespace, after, limit)
	require.NoError(t, err)
	for _, user := range users {
		require.True(t, m.known[user], "%q is not known", user)
		m.found[user] = true
	}
	m.positions = append(m.positions, next)
	if next == "" {
		maps.DeleteFunc(m.steady, func(user string, _ bool) bool { return m.found[user] })
		require.Empty(t, m.steady, "the scan missed them")
	}
}

// scanElsewhere scans from any position, such as one from before the namespace was deleted, or of another namespace.
func (m *scanModel) scanElsewhere(t *rapid.T) {
	other := rapid.SampledFrom([]string{kit.Namespace, "other"}).Draw(t, "namespace")
	after := rapid.OneOf(
		rapid.SampledFrom(m.positions), rapid.Map(rapid.StringMatching(`[0-9/-]{0,9}`), func(s string) store.Position {
			return store.Position(s)
		})).Draw(t, "after")
	for user := range ScanFrom(t, m, other, after, 100) {
		require.True(t, other == kit.Namespace && m.known[user], "%q is not known", user)
	}
}

// testScanInvalidPositions: from what is not a position, a scan begins.
func testScanInvalidPositions(t *testing.T, s store.Store) {
	const all = 400
	want := setOf(kit.Crowd(t, s, all))
	for _, position := range []store.Position{
		"", " ", "x", "-", "/", "//", "0", "-1", "0/0", "-1/0/x", "0/-1/x", "0-0", "-1-0", "1.5/0/x", "+0/0/x",
		"0/0x1/x", "99999/0/", "0/99999999999999999999/x", "99999999999999999999/0/x", "99999999999999999999-0",
		store.Position(fmt.Sprint(math.MaxInt64, "/0/x")), store.Position(fmt.Sprint(math.MaxInt64, "-0")),
		"\x00", "\xff\xfe", "0/0/\xff",
		store.Position(strings.Repeat("9", 100_000)), store.Position(strings.Repeat("x/", 100_000)),
		store.Position("0/0/" + strings.Repeat("x", 100_000)),
	} {
		require.Equal(t, want, ScanFrom(t, s, kit.Namespace, position, 150), "%.50q", position)
	}
}

// testScanLimits: with any limit, a scan finds everyone.
func testScanLimits(t *testing.T, s store.Store) {
	want := setOf(kit.Crowd(t, s, 300))
	kit.Write(s.Ping).In(t, "other", kit.Base, "nobody")
	for _, limit := range []int{-1, 0, 1, 10, 301, math.MaxInt} {
		require.Equal(t, want, ScanFrom(t, s, kit.Namespace, "", limit), limit)
	}
	users, _, err := s.ScanUsers(context.Background(), kit.Namespace, "", 10)
	require.NoError(t, err)
	require.Less(t, len(users), 200, "a call does not return everyone")
	require.Empty(t, ScanFrom(t, s, "none", "", 10))
	require.ElementsMatch(t, []string{kit.Namespace, "other"}, kit.Existing(t, s), "a scan makes no state")
}
