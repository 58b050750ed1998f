// Package storetest is the conformance suite of package store: every promise of the contract is a
// test here, and every store runs all of them.
package storetest

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// Open returns a new and empty store, which the test may close. It is closed with the test.
type Open func(t testing.TB) store.Store

// Run proves that what open returns keeps the contract. Each subtest opens a store of its own.
func Run(t *testing.T, open Open) {
	t.Helper()
	suite := []struct {
		name string
		test func(*testing.T, store.Store)
	}{
		{"Merge/AnyOrder", testMergeAnyOrder},
		{"Merge/OneBatch", testMergeOneBatch},
		{"Merge/Answers", testWriteAnswers},
		{"Merge/NewUsers", testNewUsers},
		{"Leave/NeverSeen", testLeaveOfSomeoneNeverSeen},
		{"Ahead", testAhead},
		{"Lookup", testLookup},
		{"Lookup/OtherNamespace", testNamespacesAreApart},
		{"List/OrderWithinOneMillisecond", testOrderWithinOneMillisecond},
		{"List/Bounds", testListBounds},
		{"List/Limit", testListLimit},
		{"List/WalkOneMillisecond", testWalkOneMillisecond},
		{"List/WalkWhileOthersMove", testWalkWhileOthersMove},
		{"List/NewestListsNobodyTwice", testNewestListsNobodyTwice},
		{"List/PlaceThatIsGone", testPlaceThatIsGone},
		{"Count", testCount},
		{"Count/EqualsWalk", testCountEqualsWalk},
		{"Newest", testNewest},
		{"Forget", testForget},
		{"Trim", testTrim},
		{"Trim/AtMost", testTrimAtMost},
		{"Trim/ClockMoved", testTrimClockMoved},
		{"Trim/Held", testTrimHeld},
		{"RemoveEmpty", testRemoveEmpty},
		{"RemoveEmpty/Writers", testRemoveEmptyWriters},
		{"Namespaces", testNamespaces},
		{"Namespaces/Pages", testNamespacePages},
		{"Namespaces/Delete", testDeleteNamespace},
		{"Namespaces/Register", testRegister},
		{"Lease", testLease},
		{"UserIDs", testUserIDs},
		{"Times", testTimes},
		{"LargeBatch", testLargeBatch},
		{"ConcurrentWriters", testConcurrentWriters},
		{"CancelledContext", testCancelledContext},
		{"Now", testNow},
		{"Ready", testReady},
		{"Close", testClose},
	}
	for _, c := range suite {
		t.Run(c.name, func(t *testing.T) { c.test(t, open(t)) })
	}
	t.Run("Model", func(t *testing.T) { testModel(t, open) })
}

// ns is the namespace of tests that need but one.
const ns = "chat"

// base is a time in the past that tests count from.
const base lastseen.Instant = 1_700_000_000_000

func here(at lastseen.Instant) lastseen.State { return lastseen.State{At: at} }
func left(at lastseen.Instant) lastseen.State { return lastseen.State{At: at, Left: true} }

func ping(t require.TestingT, s store.Store, user string, at lastseen.Instant) lastseen.State {
	states, err := s.Ping(context.Background(), ns, []store.Sighting{{User: user, At: at}})
	require.NoError(t, err)
	require.Len(t, states, 1)
	return states[0]
}

func leave(t require.TestingT, s store.Store, user string, at lastseen.Instant) lastseen.State {
	states, err := s.Leave(context.Background(), ns, []store.Sighting{{User: user, At: at}})
	require.NoError(t, err)
	require.Len(t, states, 1)
	return states[0]
}

func lookup(t require.TestingT, s store.Store, users ...string) []lastseen.State {
	states, err := s.Lookup(context.Background(), ns, users)
	require.NoError(t, err)
	return states
}

func list(t require.TestingT, s store.Store, q store.ListQuery) []store.Record {
	page, err := s.List(context.Background(), ns, q)
	require.NoError(t, err)
	return page
}

// everyone is everyone from the first to the last instant, in both halves.
func everyone() []lastseen.Range {
	return []lastseen.Range{
		{From: lastseen.MinInstant, To: lastseen.MaxInstant},
		{From: lastseen.MinInstant, To: lastseen.MaxInstant, Left: true},
	}
}

// walk lists page by page to the end.
func walk(t require.TestingT, s store.Store, q store.ListQuery) []store.Record {
	var all []store.Record
	for n := 1; ; n++ {
		page := list(t, s, q)
		all = append(all, page...)
		if len(page) < q.Limit {
			return all
		}
		require.Less(t, n, 1_000_000, "the walk does not end")
		q.After = &page[len(page)-1]
	}
}

// crowd pings n users, named by their number in six digits, all at the base.
func crowd(t require.TestingT, s store.Store, n int) []string {
	users := make([]string, n)
	batch := make([]store.Sighting, n)
	for i := range batch {
		users[i] = fmt.Sprintf("u%06d", i)
		batch[i] = store.Sighting{User: users[i], At: base}
	}
	_, err := s.Ping(context.Background(), ns, batch)
	require.NoError(t, err)
	return users
}

func users(records []store.Record) []string {
	names := make([]string, len(records))
	for i, r := range records {
		names[i] = r.User
	}
	return names
}
