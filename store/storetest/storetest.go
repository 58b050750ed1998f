// Package storetest is the conformance suite of package store: every promise of the contract has a test here. Both
// stores run all of them on one topology, and a part on others.
package storetest

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// Open returns a new and empty store. It is closed with the test, which may close it before.
type Open func(t testing.TB) store.Store

// Run tests that stores keep the contract. Each subtest opens a store of its own.
func Run(t *testing.T, open Open) {
	t.Helper()
	RunCore(t, open)
	t.Run("Changes", func(t *testing.T) { RunChanges(t, open) })
	t.Run("Devices", func(t *testing.T) { RunDevices(t, open) })
	t.Run("Contacts", func(t *testing.T) { RunContacts(t, open) })
	t.Run("Availability", func(t *testing.T) { RunAvailability(t, open) })
	t.Run("ChangesOfAvailability", func(t *testing.T) { RunChangesOfAvailability(t, open) })
	t.Run("Calls", func(t *testing.T) { RunCalls(t, open) })
}

// RunWithoutFeed is Run for stores whose namespaces cannot have changes feeds, devices, contacts, availability or
// calls.
func RunWithoutFeed(t *testing.T, open Open) {
	t.Helper()
	RunCore(t, open)
	t.Run("NoFeed", func(t *testing.T) { testNoFeed(t, open(t)) })
	t.Run("NoDevices", func(t *testing.T) { testNoDevices(t, open(t)) })
	t.Run("NoContacts", func(t *testing.T) { testNoContacts(t, open(t)) })
	t.Run("NoAvailability", func(t *testing.T) { testNoAvailability(t, open(t)) })
	t.Run("NoCalls", func(t *testing.T) { testNoCalls(t, open(t)) })
}

// RunCore is Run without feeds, devices, contacts, availability and calls. It is for stores whose differences from one
// that Run tests do not concern these.
func RunCore(t *testing.T, open Open) {
	t.Helper()
	suite := []struct {
		name string
		test func(*testing.T, store.Store)
	}{
		{"Merge/AnyOrder", testMergeAnyOrder},
		{"Merge/OneBatch", testMergeOneBatch},
		{"Merge/Results", testWriteResults},
		{"Merge/NewUsers", testNewUsers},
		{"Leave/NeverSeen", testLeaveNeverSeen},
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
		{"Closings", testClosings},
		{"Closings/Again", testClosingsAgain},
		{"Closings/Places", testClosingsPlaces},
		{"Closings/UserIDs", testClosingsOfUserIDs},
		{"Closings/Concurrent", testClosingsConcurrent},
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

// ns is the namespace of tests that need only one.
const ns = "chat"

// base is a time in the past.
const base lastseen.Instant = 1_700_000_000_000

func here(at lastseen.Instant) lastseen.State { return lastseen.State{At: at} }
func left(at lastseen.Instant) lastseen.State { return lastseen.State{At: at, Left: true} }

// write is the Ping or the Leave of a store.
type write func(context.Context, string, []store.Sighting) ([]lastseen.State, error)

// writes returns both.
func writes(s store.Store) []write { return []write{s.Ping, s.Leave} }

// in makes a write about users at one time and returns their states.
func (w write) in(t require.TestingT, namespace string, at lastseen.Instant, users ...string) []lastseen.State {
	return w.send(t, namespace, sightings(at, users...))
}

func (w write) send(t require.TestingT, namespace string, batch []store.Sighting) []lastseen.State {
	states, err := w(context.Background(), namespace, batch)
	require.NoError(t, err)
	require.Len(t, states, len(batch))
	return states
}

func sightings(at lastseen.Instant, users ...string) []store.Sighting {
	batch := make([]store.Sighting, len(users))
	for i, user := range users {
		batch[i] = store.Sighting{User: user, At: at}
	}
	return batch
}

func ping(t require.TestingT, s store.Store, user string, at lastseen.Instant) lastseen.State {
	return write(s.Ping).in(t, ns, at, user)[0]
}

func leave(t require.TestingT, s store.Store, user string, at lastseen.Instant) lastseen.State {
	return write(s.Leave).in(t, ns, at, user)[0]
}

func forget(t require.TestingT, s store.Store, users ...string) {
	for _, user := range users {
		require.NoError(t, s.Forget(context.Background(), ns, user))
	}
}

func lookup(t require.TestingT, s store.Store, users ...string) []lastseen.State {
	states, err := s.Lookup(context.Background(), ns, users)
	require.NoError(t, err)
	return states
}

func count(t require.TestingT, s store.Store, ranges ...lastseen.Range) []int64 {
	counts, err := s.Count(context.Background(), ns, ranges)
	require.NoError(t, err)
	return counts
}

// namespaces returns the first namespaces, at most limit.
func namespaces(t require.TestingT, s store.Store, limit int) []store.NamespaceInfo {
	infos, err := s.Namespaces(context.Background(), "", limit)
	require.NoError(t, err)
	return infos
}

func list(t require.TestingT, s store.Store, q store.ListQuery) []store.Record {
	page, err := s.List(context.Background(), ns, q)
	require.NoError(t, err)
	return page
}

// everyone returns the ranges of all users, present and left.
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
	for i := range users {
		users[i] = fmt.Sprintf("u%06d", i)
	}
	write(s.Ping).in(t, ns, base, users...)
	return users
}

func users(records []store.Record) []string {
	names := make([]string, len(records))
	for i, r := range records {
		names[i] = r.User
	}
	return names
}
