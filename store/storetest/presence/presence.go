// Package presence has the conformance tests of users' states, lists of them, and namespaces.
package presence

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/kit"
)

// Run tests what stores promise of users' states, lists of them, and namespaces. Each subtest opens a store of
// its own. The model draws pings and leaves in any order and of unknown users, forgotten users and deleted namespaces,
// and compares lookups, lists and counts after each, so there are no other cases of them.
func Run(t *testing.T, open kit.Open) {
	t.Helper()
	kit.RunEach(t, open, kit.Cases{
		{"Ahead", testAhead},
		{"Nothing", testNothing},
		{"Lookup/OtherNamespace", testNamespacesAreApart},
		{"List/OrderWithinOneMillisecond", testOrderWithinOneMillisecond},
		{"List/WalkOneMillisecond", testWalkOneMillisecond},
		{"List/WalkWhileOthersMove", testWalkWhileOthersMove},
		{"Trim", testTrim},
		{"Trim/AtMost", testTrimAtMost},
		{"Trim/ClockMoved", testTrimClockMoved},
		{"Trim/Held", testTrimHeld},
		{"RemoveEmpty/Writers", testRemoveEmptyWriters},
		{"Scan/InvalidPositions", testScanInvalidPositions},
		{"Scan/Limits", testScanLimits},
		{"Namespaces", testNamespaces},
		{"Namespaces/Pages", testNamespacePages},
		{"Namespaces/Register", testRegister},
		{"UserIDs", testUserIDs},
		{"Times", testTimes},
		{"LargeBatch", testLargeBatch},
		{"ConcurrentWriters", testConcurrentWriters},
	})
	t.Run("Model", func(t *testing.T) { testModel(t, open) })
	t.Run("Scan/Model", func(t *testing.T) { testScanModel(t, open) })
}

// Methods returns the methods of a store that concern presence.
func Methods(s store.Store, ns string) map[string]kit.Method {
	event, everyone := []store.PresenceEvent{{User: "alice", At: kit.Base}}, kit.Everyone()
	page := store.ListQuery{Ranges: everyone, Limit: 5}
	return map[string]kit.Method{
		"Ping":  func(ctx context.Context) error { return kit.ErrorOf(s.Ping(ctx, ns, event)) },
		"Leave": func(ctx context.Context) error { return kit.ErrorOf(s.Leave(ctx, ns, event)) },
		"Lookup": func(ctx context.Context) error {
			_, _, err := s.Describe(ctx, ns, []string{"alice"})
			return err
		},
		"Count":  func(ctx context.Context) error { return kit.ErrorOf(s.Count(ctx, ns, everyone)) },
		"Newest": func(ctx context.Context) error { return kit.ErrorOf(s.Newest(ctx, ns)) },
		"List":   func(ctx context.Context) error { return kit.ErrorOf(s.List(ctx, ns, page)) },
		"ScanUsers": func(ctx context.Context) error {
			_, _, err := s.ScanUsers(ctx, ns, "", 5)
			return err
		},
		"Forget": func(ctx context.Context) error { return s.Forget(ctx, ns, "alice") },
		"Trim": func(ctx context.Context) error {
			q, err := kit.AgeQuery(ctx, s)
			if err == nil {
				_, err = s.Trim(ctx, ns, q)
			}
			return err
		},
		"DeleteNamespace": func(ctx context.Context) error { return s.DeleteNamespace(ctx, ns) },
	}
}

func testNamespaces(t *testing.T, s store.Store) {
	ctx := context.Background()
	require.Empty(t, kit.Namespaces(t, s, 10))
	for i, name := range []string{"b", "a", "B", "chat", "_x", "0", "a-b", "a.b"} {
		kit.Write(s.Ping).Send(t, name, []store.PresenceEvent{
			{User: "u", At: kit.Base + lastseen.Instant(i)},
			{User: "v", At: kit.Base},
		})
	}
	kit.Write(s.Leave).In(t, "a", kit.Base+50, "v")
	require.NoError(t, s.Forget(ctx, "b", "u"))
	require.NoError(t, s.Forget(ctx, "b", "v"))
	require.Equal(t, []store.NamespaceInfo{
		{Name: "0", Newest: kit.Base + 5},
		{Name: "B", Newest: kit.Base + 2},
		{Name: "_x", Newest: kit.Base + 4},
		{Name: "a", Newest: kit.Base + 50},
		{Name: "a-b", Newest: kit.Base + 6},
		{Name: "a.b", Newest: kit.Base + 7},
		{Name: "b"},
		{Name: "chat", Newest: kit.Base + 3},
	}, kit.Namespaces(t, s, 10))
}

func testNamespacePages(t *testing.T, s store.Store) {
	ctx := context.Background()
	var want []string
	for i := range 50 {
		name := fmt.Sprintf("room-%02d", i)
		want = append(want, name)
		kit.Write(s.Ping).In(t, name, kit.Base, "u")
	}
	for _, limit := range []int{1, 7, 50, 51} {
		var got []string
		for after := ""; ; {
			page, err := s.Namespaces(ctx, after, limit)
			require.NoError(t, err)
			require.LessOrEqual(t, len(page), limit)
			for _, info := range page {
				got = append(got, info.Name)
			}
			if len(page) < limit {
				break
			}
			after = page[len(page)-1].Name
		}
		require.Equal(t, want, got, "pages of %d", limit)
	}
	page, err := s.Namespaces(ctx, "room-25x", 1)
	require.NoError(t, err)
	require.Equal(t, "room-26", page[0].Name, "the position need not exist")
}

func testRegister(t *testing.T, s store.Store) {
	ctx := context.Background()
	kit.Ping(t, s, "alice", kit.Base)
	for range 2 {
		require.NoError(t, s.Register(ctx, []string{"b", kit.Namespace, "a"}))
	}
	require.NoError(t, s.Register(ctx, nil))
	require.Equal(t, []store.NamespaceInfo{{Name: "a"}, {Name: "b"}, {Name: kit.Namespace, Newest: kit.Base}},
		kit.Namespaces(t, s, 10))

	require.NoError(t, s.DeleteNamespace(ctx, "a"))
	exist, err := s.Exist(ctx, []string{"a", kit.Namespace, "b", "none"})
	require.NoError(t, err)
	require.Equal(t, []bool{false, true, true, false}, exist)
	kit.Write(s.Ping).In(t, "b", kit.Base+1, "bob")
	require.Equal(t, []store.NamespaceInfo{{Name: "b", Newest: kit.Base + 1}, {Name: kit.Namespace, Newest: kit.Base}},
		kit.Namespaces(t, s, 10))
	require.NoError(t, s.Register(ctx, []string{"a"}))
	require.Equal(t, []store.NamespaceInfo{{Name: "a"}}, kit.Namespaces(t, s, 1))
	require.True(t, kit.RemoveEmpty(t, s, "a"), "the caller decides which ones stay")
	require.Equal(t, []string{"b", kit.Namespace}, kit.Existing(t, s))
}

func testRemoveEmptyWriters(t *testing.T, s store.Store) {
	ctx := context.Background()
	kit.RemoveWhile(t, s, func(w, i int) error {
		write, want := s.Ping, kit.Here(kit.Base)
		if (w+i)%2 == 0 {
			write, want = s.Leave, kit.Left(kit.Base)
		}
		got, err := write(ctx, kit.Namespace, kit.Events(kit.Base, fmt.Sprint(w)))
		found, _, lost := s.Describe(ctx, kit.Namespace, []string{fmt.Sprint(w)})
		if err == nil && lost == nil && (got[0] != want || found[0] != want) {
			return fmt.Errorf("%v, then %v", got, found)
		}
		return errors.Join(err, lost)
	}, func(w, _ int) error { return s.Forget(ctx, kit.Namespace, fmt.Sprint(w)) })
	require.Len(t, kit.Remaining(t, s), 4)
}

// gapTries is how often a test does what is observed at random, once in 16 times: all of them are missed in one test
// run of a hundred million.
const gapTries = 300

// Gaps checks that a store calls its function gap for a sample of pings, with the time since the user's previous ping.
// The function open returns an empty store that uses it.
func Gaps(t *testing.T, open func(gap func(namespace string, gap time.Duration)) store.Store) {
	t.Helper()
	ctx, observed := context.Background(), map[time.Duration]int{}
	s := open(func(namespace string, gap time.Duration) {
		require.Equal(t, "chat", namespace)
		observed[gap]++
	})
	now, err := s.Now(ctx)
	require.NoError(t, err)
	at := func(seconds int) lastseen.Instant { return now - 3_600_000 + lastseen.Instant(1000*seconds) }
	record := func(write func(context.Context, string, []store.PresenceEvent) ([]lastseen.State, error), seconds int,
		users ...string,
	) {
		var batch []store.PresenceEvent
		for _, user := range users {
			batch = append(batch, store.PresenceEvent{User: user, At: at(seconds)})
		}
		_, err := write(ctx, "chat", batch)
		require.NoError(t, err)
	}

	for i := range gapTries {
		record(s.Ping, 1, fmt.Sprintf("new%d", i))
		record(s.Leave, 10*i, "leaver")
		record(s.Ping, 10*i+1, "leaver") // left before
		record(s.Leave, 10*i+1, "leaver")
	}
	record(s.Ping, 100, "late")
	for i := range gapTries {
		record(s.Ping, 99, "late")  // changes nothing
		record(s.Ping, 100, "late") // the same time again
		record(s.Leave, 100+i, "late, and left")
		record(s.Ping, 100, "late, and left")
	}
	require.Empty(t, observed)

	for i := range gapTries {
		record(s.Ping, 7*i, "regular")
	}
	require.Len(t, observed, 1)
	require.NotZero(t, observed[7*time.Second])
	require.Less(t, observed[7*time.Second], gapTries/2, "a sample")

	clear(observed)
	for i := range gapTries {
		record(s.Ping, 11*i, "first", fmt.Sprintf("second%d", i))
	}
	require.Len(t, observed, 1, "the first user of a batch")
	require.NotZero(t, observed[11*time.Second])
}
