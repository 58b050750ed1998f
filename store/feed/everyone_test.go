package feed

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// ScanUsers scans the users by name.
func (s *fakeStore) ScanUsers(
	_ context.Context, namespace string, after store.Position, limit int,
) (users []string, next store.Position, err error) {
	defer s.lock()()
	if s.err != nil {
		return nil, "", s.err
	}
	for _, user := range slices.Sorted(maps.Keys(s.feed(namespace).states)) {
		switch {
		case user <= string(after):
		case len(users) == limit:
			return users, store.Position(users[limit-1]), nil
		default:
			users = append(users, user)
		}
	}
	return users, "", nil
}

func (s *fakeStore) List(_ context.Context, _ string, q store.ListQuery) ([]store.Record, error) {
	if s.onList != nil {
		s.onList()
	}
	if s.listed == nil {
		return make([]store.Record, q.Limit), nil
	}
	return s.listed, nil
}

// What ends in the published state, [TestReaders] shows. These tests are of one page at a time.

// pages polls a watcher until its snapshot is complete, and returns the users of each page.
func (w *fixture) pages(watcher *Watcher, limit int) (pages [][]string) {
	w.t.Helper()
	for {
		b := w.poll(watcher, limit)
		pages = append(pages, names(b))
		if !b.More {
			return pages
		}
	}
}

// TestEveryonePages: a snapshot has all users in pages, also for clients that go on with a cursor, and changes after
// them.
func TestEveryonePages(t *testing.T) {
	withFixture(t, 2, func(w *fixture) {
		w.publish("ann green", "bob yellow", "cat grey", "dan green", "eve green")
		want := [][]string{{"ann green", "bob yellow"}, {"cat grey", "dan green"}, {"eve green"}}
		watcher := w.watch(Query{Everyone: true})
		require.Equal(w.t, want, w.pages(watcher, 2))
		_, complete := watcher.Tick()
		require.True(w.t, complete)

		var after []store.Position
		for k := range want {
			b := w.poll(w.watch(Query{Everyone: true, After: after}), 2)
			require.Equal(w.t, want[k], names(b))
			require.Equal(w.t, k == 0, b.Snapshot)
			require.Equal(w.t, k < 2, b.More)
			after = b.Positions
		}
		w.publish("ann yellow")
		w.requireSent(w.watch(Query{Everyone: true, After: after}), "ann yellow")
		w.requireSent(watcher, "ann yellow")
	})
}

// TestEveryonePageWithChanges: what changes during the pages is in the next one, once and as it is then. A change and
// its reverse are none after the page that has the user. If the changes are more than a page has, no others are in it.
func TestEveryonePageWithChanges(t *testing.T) {
	withFixture(t, 1, func(w *fixture) {
		w.publish("ann green", "bob green", "cat green", "dan green", "eve green")
		watcher := w.watch(Query{Everyone: true})
		require.Equal(w.t, []string{"ann green", "bob green"}, names(w.poll(watcher, 2)))
		_, complete := watcher.Tick()
		require.False(w.t, complete)
		w.publish("cat grey", "ann yellow", "ann green", "bob grey")
		time.Sleep(time.Second)
		require.Equal(w.t, []string{"bob grey", "cat grey"}, names(w.poll(watcher, 3)))
		w.publish("ann grey", "cat green", "dan yellow")
		time.Sleep(time.Second)
		b := w.poll(watcher, 2)
		require.Equal(w.t, []string{"ann grey", "cat green"}, names(b))
		require.True(w.t, b.More)
		require.Equal(w.t, [][]string{{"dan yellow"}, {"eve green"}}, w.pages(watcher, 1))
	})
}

// TestEveryoneStatuses: with statuses, a snapshot has users with one of them alone, and changes of all.
func TestEveryoneStatuses(t *testing.T) {
	withFixture(t, 1, func(w *fixture) {
		w.publish("ann green", "bob grey", "cat green")
		for _, listed := range []bool{false, true} {
			if w.listed = nil; listed {
				w.listed = []store.Record{{User: "ann"}, {User: "bob"}}
			}
			watcher := w.watch(Query{Everyone: true, Statuses: []lastseen.Status{lastseen.Green}})
			b := w.poll(watcher, 1)
			require.Equal(w.t, []string{"ann green"}, names(b))
			require.Equal(w.t, !listed, b.More, "few users are read at once")
			if !listed {
				require.Equal(w.t, [][]string{{}, {"cat green"}}, w.pages(watcher, 1))
			}
			w.publish("bob yellow", "bob grey", "ann grey")
			w.requireSent(watcher, "ann grey")
			w.publish("ann green")
		}
	})
}

// TestEveryoneStatusesOfFlapping: who is grey for just the moment at which the store lists users is in the snapshot all
// the same, also if the list is empty.
func TestEveryoneStatusesOfFlapping(t *testing.T) {
	for _, others := range [][]store.Record{{}, {{User: "ann"}}} {
		withFixture(t, 2, func(w *fixture) {
			w.publish("ann green", "bob green")
			watcher := w.watch(Query{Everyone: true, Statuses: []lastseen.Status{lastseen.Green}})
			w.listed, w.onList = others, func() { w.publish("bob grey", "bob green") }
			b := w.poll(watcher, 10)
			require.Contains(w.t, names(b), "bob green")
			require.False(w.t, b.More)
			w.requireSent(watcher)
		})
	}
}

// TestEveryoneWithoutSnapshot: the first batch has only positions, also after a reset.
func TestEveryoneWithoutSnapshot(t *testing.T) {
	withFixture(t, 1, func(w *fixture) {
		w.publish("ann green")
		watcher := w.watch(Query{Everyone: true, NoSnapshot: true})
		b := w.poll(watcher, 1)
		require.Empty(w.t, b.Users)
		require.False(w.t, b.More)
		w.publish("bob green")
		w.requireSent(watcher, "bob green")
		w.beginAgain(true)
		time.Sleep(time.Second)
		b = w.poll(watcher, 1)
		require.True(w.t, b.Reset)
		require.Empty(w.t, b.Users)
	})
}

// TestEveryoneFails: a page that cannot be read is read later, and nothing is lost. A reset begins the pages again.
func TestEveryoneFails(t *testing.T) {
	withFixture(t, 1, func(w *fixture) {
		for n := range 9 {
			w.publish(fmt.Sprintf("user%d green", n))
		}
		watcher := w.watch(Query{Everyone: true})
		w.poll(watcher, 4)
		w.publish("user0 yellow")
		time.Sleep(time.Second)
		w.fail(store.ErrUnavailable)
		b := w.poll(watcher, 4)
		require.Equal(w.t, []string{"user0 yellow"}, names(b), "it is in memory")
		require.True(w.t, b.More)
		_, err := watcher.Poll(w.t.Context(), 4)
		require.ErrorIs(w.t, err, store.ErrUnavailable)
		w.fail(nil)
		require.Equal(w.t, []string{"user4 green", "user5 green"}, names(w.poll(watcher, 2)))
		w.beginAgain(true)
		time.Sleep(time.Second)
		b = w.poll(watcher, 8)
		require.True(w.t, b.Reset)
		require.Contains(w.t, names(b), "user0 yellow")
		require.Equal(w.t, [][]string{{"user8 green"}}, w.pages(watcher, 8))
	})
}
