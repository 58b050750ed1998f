package feed

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

var (
	busy  = store.Details{Said: lastseen.Said{Availability: lastseen.Busy, Note: "on stage"}}
	lunch = store.Details{Said: lastseen.Said{Note: "lunch", Until: 9}, IdleSince: 7}
)

// described lists the users of a batch with their details.
func described(b Batch) map[string]store.Details {
	all := map[string]store.Details{}
	for _, u := range b.Users {
		all[u.User] = u.Details
	}
	return all
}

// TestDetails: details are part of snapshots and of changes, from memory and from the store; also when they alone
// change.
func TestDetails(t *testing.T) {
	for _, kept := range []int{1000, 0} {
		inWorld(t, 2, func(w *world) {
			w.bounds.entries = kept
			w.set("ann", lastseen.Green)
			w.describe("ann", busy)
			first := w.poll(w.watch(Query{Users: []string{"ann", "bob"}}), 10)
			require.Equal(w.t, map[string]store.Details{"ann": busy, "bob": {}}, described(first))
			w.describe("bob", lunch)
			w.describe("ann", lunch)
			time.Sleep(time.Second)
			later := w.poll(w.watch(Query{Users: []string{"ann", "bob"}, After: first.Places}), 10)
			noIdle := store.Details{Said: lunch.Said} // bob is grey
			require.Equal(w.t, map[string]store.Details{"ann": lunch, "bob": noIdle}, described(later))
			all := w.poll(w.watch(Query{Everyone: true, After: first.Places}), 10)
			require.Equal(w.t, map[string]store.Details{"ann": lunch, "bob": noIdle}, described(all))
		})
	}
}

// TestDetailsMerge: changes of details that cancel each other are not returned to watchers of some users.
func TestDetailsMerge(t *testing.T) {
	for _, kept := range []int{1000, 0} {
		inWorld(t, 1, func(w *world) {
			w.bounds.entries = kept
			w.set("ann", lastseen.Green)
			w.describe("ann", busy)
			watcher := w.watch(Query{Users: []string{"ann"}})
			w.poll(watcher, 10)
			w.poll(watcher, 10) // from memory from now on
			w.describe("ann", lunch)
			w.describe("ann", busy)
			time.Sleep(time.Second)
			require.Empty(w.t, w.poll(watcher, 10).Users)
			w.describe("ann", lunch)
			w.describe("ann", store.Details{})
			time.Sleep(time.Second)
			require.Equal(w.t, map[string]store.Details{"ann": {}}, described(w.poll(watcher, 10)))
		})
	}
}

// TestDetailsFitPlaces: a batch that has not all users has the details that fit its places.
func TestDetailsFitPlaces(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		watcher := w.watch(Query{Users: []string{"ann", "bob"}})
		w.poll(watcher, 10)
		w.poll(watcher, 10)
		w.set("ann", lastseen.Green)
		w.describe("ann", busy)
		w.set("bob", lastseen.Green)
		w.describe("ann", lunch)
		time.Sleep(time.Second)
		require.Equal(w.t, map[string]store.Details{"ann": busy}, described(w.poll(watcher, 1)))
		require.Equal(w.t, map[string]store.Details{"bob": {}}, described(w.poll(watcher, 1)))
		require.Equal(w.t, map[string]store.Details{"ann": lunch}, described(w.poll(watcher, 1)))
	})
}

// TestDetailsEvicted: what a watcher was told is compared also when its entries are not in memory any more, and details
// are kept no longer than what they belong to.
func TestDetailsEvicted(t *testing.T) {
	inWorld(t, 1, func(w *world) {
		w.bounds.entries = 2
		w.set("ann", lastseen.Green)
		w.describe("ann", busy)
		watcher := w.watch(Query{Users: []string{"ann"}})
		w.poll(watcher, 10)
		w.poll(watcher, 10)
		w.describe("ann", lunch)
		w.describe("ann", busy)
		for range 3 {
			w.describe("bob", busy)
			w.describe("bob", lunch)
		}
		time.Sleep(time.Second)
		requireFit(w.t, watcher.f)
		require.Empty(w.t, w.poll(watcher, 10).Users)
		w.describe("ann", store.Details{})
		w.describe("bob", store.Details{})
		w.forget("bob")
		time.Sleep(time.Second)
		require.Equal(w.t, map[string]store.Details{"ann": {}}, described(w.poll(watcher, 10)))
		requireFit(w.t, watcher.f)
		watcher.Close()
		requireFit(w.t, watcher.f)
	})
}

// requireFit requires that a follower keeps the details of what has some, and no others.
func requireFit(t *testing.T, f *follower) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	var was, is, users, watches int
	for n := f.m.first; n <= f.m.last(); n++ {
		was += requireKept(t, f.m.details.was, n, f.m.at(n).was)
		is += requireKept(t, f.m.details.is, n, f.m.at(n).now)
	}
	for _, u := range f.m.users {
		users += requireKept(t, f.m.details.users, u, u.now)
		for _, watch := range u.watches {
			if !watch.dirty {
				require.Zero(t, watch.was)
			}
			watches += requireKept(t, f.m.details.watches, watch, watch.was)
		}
	}
	kept := []int{len(f.m.details.was), len(f.m.details.is), len(f.m.details.users), len(f.m.details.watches)}
	require.True(t, slices.Equal([]int{was, is, users, watches}, kept), "details of what is gone: %v", kept)
}

func requireKept[K comparable](t *testing.T, in map[K]store.Details, of K, s shown) int {
	t.Helper()
	d, kept := in[of]
	require.Equal(t, s&detailed != 0, kept)
	require.Equal(t, kept, d != store.Details{})
	if kept {
		return 1
	}
	return 0
}
