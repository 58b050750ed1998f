package storetest

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store"
)

func testLookup(t *testing.T, s store.Store) {
	ping(t, s, "alice", base)
	ping(t, s, "bob", base+1)
	leave(t, s, "bob", base+2)
	want := []lastseen.State{left(base + 2), {}, here(base), left(base + 2), {}}
	require.Equal(t, want, lookup(t, s, "bob", "zoe", "alice", "bob", "zoe"))
	require.Empty(t, lookup(t, s))
	require.Equal(t, []lastseen.State{{}, {}}, lookup(t, s, "Alice", "alice "), "IDs compare byte for byte")
}

func testNamespacesAreApart(t *testing.T, s store.Store) {
	ctx := context.Background()
	ping(t, s, "alice", base)
	for _, other := range []string{"Chat", "chat2", "cha", "unused"} {
		states, err := s.Lookup(ctx, other, []string{"alice"})
		require.NoError(t, err)
		require.Equal(t, []lastseen.State{{}}, states)
		page, err := s.List(ctx, other, store.ListQuery{Ranges: everyone(), Limit: 5})
		require.NoError(t, err)
		require.Empty(t, page)
	}
	write(s.Ping).in(t, "Chat", base+9, "alice")
	require.NoError(t, s.Forget(ctx, "chat2", "alice"))
	require.Equal(t, []lastseen.State{here(base)}, lookup(t, s, "alice"))
}

// requireOrdered fails unless records are in strictly ascending order.
func requireOrdered(t require.TestingT, order store.Order, records []store.Record) {
	for i := 1; i < len(records); i++ {
		require.Negative(t, order.Compare(records[i-1], records[i]), "%v before %v", records[i-1], records[i])
	}
}

func testOrderWithinOneMillisecond(t *testing.T, s store.Store) {
	for _, user := range []string{"b", "B", "a", "é", "aa", "~"} {
		ping(t, s, user, base)
	}
	for _, user := range []string{"y", "Y", "x", "ü", "xx"} {
		ping(t, s, user, base-5)
		leave(t, s, user, base)
	}
	ping(t, s, "later", base+1)
	ping(t, s, "earlier", base-1)
	want := []string{"later", "Y", "x", "xx", "y", "ü", "é", "~", "b", "aa", "a", "B", "earlier"}
	for limit := 1; limit <= len(want)+1; limit++ {
		newest := walk(t, s, store.ListQuery{Ranges: everyone(), Order: store.Newest, Limit: limit})
		require.Equal(t, want, users(newest), "pages of %d", limit)
		oldest := walk(t, s, store.ListQuery{Ranges: everyone(), Order: store.Oldest, Limit: limit})
		slices.Reverse(oldest)
		require.Equal(t, newest, oldest, "oldest is the exact reverse, pages of %d", limit)
	}
}

func testListBounds(t *testing.T, s store.Store) {
	for i := range lastseen.Instant(10) {
		ping(t, s, "here"+string(rune('0'+i)), base+i)
		ping(t, s, "left"+string(rune('0'+i)), base-100)
		leave(t, s, "left"+string(rune('0'+i)), base+i)
	}
	get := func(order store.Order, ranges ...lastseen.Range) []string {
		return users(list(t, s, store.ListQuery{Ranges: ranges, Order: order, Limit: 100}))
	}
	require.Equal(t, []string{"here5", "here4", "here3"},
		get(store.Newest, lastseen.Range{From: base + 3, To: base + 5}))
	require.Equal(t, []string{"here3", "here4", "here5"},
		get(store.Oldest, lastseen.Range{From: base + 3, To: base + 5}))
	require.Equal(t, []string{"left5", "left4"}, get(store.Newest,
		lastseen.Range{From: base + 4, To: base + 5, Left: true}))
	require.Equal(t, []string{"here9", "left3", "here3", "left2", "here1", "here0"}, get(store.Newest,
		lastseen.Range{From: base + 9, To: base + 50},
		lastseen.Range{From: base + 3, To: base + 3},
		lastseen.Range{From: base - 50, To: base + 1},
		lastseen.Range{From: base + 2, To: base + 3, Left: true}))
	require.Empty(t, get(store.Newest, lastseen.Range{From: base + 10, To: base + 99}))
	require.Empty(t, get(store.Newest), "no ranges, no users")
}

func testListLimit(t *testing.T, s store.Store) {
	crowd(t, s, 50)
	for _, limit := range []int{1, 49, 50, 51, 1001} {
		require.Len(t, list(t, s, store.ListQuery{Ranges: everyone(), Limit: limit}), min(limit, 50))
	}
}

func testWalkOneMillisecond(t *testing.T, s store.Store) {
	size := testenv.Choose(10_000, 4200) // still more than a store writes at once
	names := crowd(t, s, size)
	gone := names[1300:2500]
	write(s.Leave).in(t, ns, base, gone...)
	want := slices.Concat(gone, reversed(names[2500:]), reversed(names[:1300]))

	const limit = 7 // not a divisor of what a store reads at once
	newest := walk(t, s, store.ListQuery{Ranges: everyone(), Order: store.Newest, Limit: limit})
	require.Equal(t, want, users(newest))
	oldest := walk(t, s, store.ListQuery{Ranges: everyone(), Order: store.Oldest, Limit: limit})
	require.Equal(t, reversed(want), users(oldest))
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
		require.NoError(t, s.DeleteNamespace(context.Background(), ns))
		names := crowd(t, s, 2000)
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
				ping(t, s, user, base+lastseen.Instant(page))
			case 1:
				leave(t, s, user, base+lastseen.Instant(page%2))
			case 2:
				forget(t, s, user)
			default:
				ping(t, s, "new"+user, base)
			}
		}
		q := store.ListQuery{Ranges: []lastseen.Range{
			{From: base - 10, To: base + 1}, {From: base - 10, To: base + 1, Left: true},
		}, Order: order, Limit: 7}
		listed := map[string]int{}
		for page := 1; ; page++ {
			records := list(t, s, q)
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

// testNewestListsNobodyTwice moves users between pages. Newest first, a listed user can only move out of the pages to
// come.
func testNewestListsNobodyTwice(t *testing.T, s store.Store) {
	const n = 300
	random := rand.New(rand.NewPCG(3, 4))
	names := crowd(t, s, n)
	at := map[string]lastseen.Instant{}
	for _, user := range names {
		at[user] = base + lastseen.Instant(random.IntN(40))
		ping(t, s, user, at[user])
	}
	listed := map[string]int{}
	q := store.ListQuery{Ranges: []lastseen.Range{
		{From: base, To: base + 60}, {From: base, To: base + 60, Left: true},
	}, Limit: 5}
	for {
		page := list(t, s, q)
		for _, r := range page {
			listed[r.User]++
			require.Equal(t, 1, listed[r.User], "%s twice", r.User)
		}
		if len(page) < q.Limit {
			break
		}
		q.After = &page[len(page)-1]
		for range 10 {
			user := names[random.IntN(n)]
			at[user] += lastseen.Instant(random.IntN(10))
			if random.IntN(2) == 0 {
				ping(t, s, user, at[user])
			} else {
				leave(t, s, user, at[user])
			}
		}
	}
	require.NotEmpty(t, listed)
}

// testPlaceThatIsGone resumes after records that do not exist (any more).
func testPlaceThatIsGone(t *testing.T, s store.Store) {
	for _, user := range []string{"b", "d", "f"} {
		ping(t, s, user, base)
		ping(t, s, "x"+user, base)
		leave(t, s, "x"+user, base)
	}
	ping(t, s, "old", base-5)
	ping(t, s, "new", base+5)
	all := []string{"new", "xb", "xd", "xf", "f", "d", "b", "old"}
	places := []store.Record{
		{User: "zz", State: here(base + 9)},
		{User: "!", State: here(base + 5)},
		{User: "xa", State: left(base)},
		{User: "xc", State: left(base)},
		{User: "xz", State: left(base)},
		{User: "z", State: here(base)},
		{User: "e", State: here(base)},
		{User: "c", State: here(base)},
		{User: "a", State: here(base)},
		{User: "xd", State: left(base)},
		{User: "d", State: here(base)},
		{User: "q", State: here(base - 3)},
		{User: "q", State: left(base - 3)},
		{User: "a", State: here(base - 9)},
	}
	full := list(t, s, store.ListQuery{Ranges: everyone(), Limit: 100})
	require.Equal(t, all, users(full))
	for _, place := range places {
		for _, order := range []store.Order{store.Newest, store.Oldest} {
			var want []string
			for _, r := range full {
				if order.Compare(r, place) > 0 {
					want = append(want, r.User)
				}
			}
			if order == store.Oldest {
				slices.Reverse(want)
			}
			got := list(t, s, store.ListQuery{Ranges: everyone(), Order: order, After: &place, Limit: 100})
			require.Equal(t, append([]string{}, want...), users(got), "after %v, order %v", place, order)
		}
	}
}

func testCount(t *testing.T, s store.Store) {
	for i := range lastseen.Instant(10) {
		user := string(rune('a' + i))
		ping(t, s, user, base+i)
		if i%3 == 0 {
			leave(t, s, user, base+i)
		}
	}
	require.Equal(t, []int64{6, 4, 2, 1, 0, 6}, count(t, s,
		lastseen.Range{From: base, To: base + 9},
		lastseen.Range{From: base, To: base + 9, Left: true},
		lastseen.Range{From: base + 3, To: base + 5},
		lastseen.Range{From: base + 3, To: base + 3, Left: true},
		lastseen.Range{From: base + 4, To: base + 4, Left: true},
		lastseen.Range{From: lastseen.MinInstant, To: lastseen.MaxInstant},
	))
	require.Empty(t, count(t, s))
	counts, err := s.Count(context.Background(), "unused", everyone())
	require.NoError(t, err)
	require.Equal(t, []int64{0, 0}, counts)
}

func testCountEqualsWalk(t *testing.T, s store.Store) {
	random := rand.New(rand.NewPCG(5, 6))
	for _, user := range crowd(t, s, 400) {
		at := base + lastseen.Instant(random.IntN(200))
		ping(t, s, user, at)
		if random.IntN(3) == 0 {
			leave(t, s, user, at+lastseen.Instant(random.IntN(5)))
		}
	}
	for range 20 {
		from := base + lastseen.Instant(random.IntN(200))
		r := lastseen.Range{From: from, To: from + lastseen.Instant(random.IntN(60)), Left: random.IntN(2) == 0}
		all := walk(t, s, store.ListQuery{Ranges: []lastseen.Range{r}, Limit: 9})
		require.Equal(t, []int64{int64(len(all))}, count(t, s, r), "%+v", r)
		for _, record := range all {
			require.True(t, r.Contains(record.State), "%v in %+v", record, r)
		}
	}
}

func testNewest(t *testing.T, s store.Store) {
	newest := func() lastseen.Instant {
		at, err := s.Newest(context.Background(), ns)
		require.NoError(t, err)
		return at
	}
	require.Zero(t, newest())
	ping(t, s, "alice", base)
	require.Equal(t, base, newest())
	ping(t, s, "bob", base+5)
	require.Equal(t, base+5, newest())
	leave(t, s, "alice", base+9)
	require.Equal(t, base+9, newest(), "a leave counts, too")
	forget(t, s, "alice")
	require.Equal(t, base+5, newest())
	forget(t, s, "bob")
	require.Zero(t, newest())
}
