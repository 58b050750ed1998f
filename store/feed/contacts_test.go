package feed

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// changeContacts appends that the contacts of a user changed.
func (s *fakeStore) changeContacts(user string) {
	defer s.lock()()
	f := s.feed("chat")
	s.append(f, user, store.Published{}, store.Published{})
	for shard := range f.shards {
		if n := len(f.shards[shard]); n > 0 && f.shards[shard][n-1].Status == "" {
			f.shards[shard][n-1].Contacts = true
		}
	}
}

// readCalls returns how often ReadChanges was called.
func (s *fakeStore) readCalls() int {
	defer s.lock()()
	return len(s.reads)
}

func contactsOf(w *Watcher) []string { return slices.Sorted(maps.Keys(w.ContactsChanged())) }

// TestContactsChanged: a watcher that waits learns of the users on whose contacts it depends, in memory or in the
// store, and of no others. A change of contacts is not sent as an update of a user.
func TestContactsChanged(t *testing.T) {
	for _, entries := range []int{100, 0} {
		withFixture(t, 2, func(w *fixture) {
			w.bounds.entries = entries
			watcher, everyone := w.polled(1, "ann"), w.watch(Query{Everyone: true})
			w.poll(everyone, 10)
			watcher.DependOn("ann", "bob", "eve")
			watcher.Ignore("eve")
			require.Empty(w.t, watcher.ContactsChanged())
			for _, user := range []string{"bob", "cat", "eve"} {
				w.changeContacts(user)
			}
			b := w.must(w.next(watcher, time.Second))
			require.Empty(w.t, b.Users)
			_, ok := watcher.Tick()
			require.False(w.t, ok, "contacts changed")
			require.Equal(w.t, []string{"bob"}, contactsOf(watcher))
			require.Empty(w.t, watcher.ContactsChanged())
			require.Nil(w.t, w.next(watcher, time.Second))
			_, ok = watcher.Tick()
			require.True(w.t, ok)

			w.changeContacts("ann")
			w.set("ann", lastseen.Green)
			time.Sleep(time.Second)
			require.Equal(w.t, []string{"ann green"}, names(w.poll(watcher, 10)))
			require.Equal(w.t, []string{"ann"}, contactsOf(watcher), "not later than what happened afterwards")
			if entries > 0 {
				require.Equal(w.t, []string{"ann green"}, names(*w.must(w.next(everyone, time.Second))))
			}
		})
	}
}

// TestContactsOfEarlier: a watcher that continues from positions which are not in memory reads what is after them.
func TestContactsOfEarlier(t *testing.T) {
	withFixture(t, 1, func(w *fixture) {
		w.bounds.entries = 0
		positions := w.poll(w.watch(Query{Users: []string{"ann"}}), 10).Positions
		w.changeContacts("bob")
		time.Sleep(time.Second)
		watcher := w.watch(Query{Users: []string{"ann"}, After: positions})
		watcher.DependOn("bob")
		w.poll(watcher, 10)
		require.Equal(w.t, []string{"bob"}, contactsOf(watcher))
	})
}

// TestContactsOfFailedChange: a snapshot is newer than what is in memory, so it comes with a notice.
func TestContactsOfFailedChange(t *testing.T) {
	withFixture(t, 1, func(w *fixture) {
		watcher := w.polled(1, "ann")
		watcher.DependOn("ann")
		watcher.reset(&mergedBatch{any: true, reset: true})
		b := w.poll(watcher, 10)
		require.True(w.t, b.Reset)
		require.Equal(w.t, []string{"ann"}, contactsOf(watcher))
	})
}

// TestManyContactsChanged: what a client that was away reads is limited, although no user is sent.
func TestManyContactsChanged(t *testing.T) {
	withFixture(t, 1, func(w *fixture) {
		w.bounds = bounds{followed: 10, entries: 0, allEntries: 10, catchUp: 100, page: 20}
		positions := w.poll(w.watch(Query{Everyone: true}), 10).Positions
		for range 200 {
			w.changeContacts("bob")
		}
		time.Sleep(time.Minute)
		reads := w.readCalls()
		require.True(w.t, w.poll(w.watch(Query{Everyone: true, After: positions}), 1).Reset)
		require.LessOrEqual(w.t, w.readCalls()-reads, 1+100/20+2)
	})
}

// TestContactsOfRestart: when the feed begins again, contacts may have changed before that.
func TestContactsOfRestart(t *testing.T) {
	withFixture(t, 1, func(w *fixture) {
		begun, waiting := w.polled(1, "ann"), w.watch(Query{})
		for _, watcher := range []*Watcher{begun, waiting} {
			watcher.DependOn("ann", "bob")
		}
		require.Empty(w.t, begun.ContactsChanged())
		w.beginAgain(true)
		time.Sleep(time.Second)
		w.poll(waiting, 10)
		w.must(w.next(begun, resetSpread+time.Second))
		for _, watcher := range []*Watcher{begun, waiting} {
			require.Equal(w.t, []string{"ann", "bob"}, contactsOf(watcher))
		}
		require.NotEmpty(w.t, begun.f.owners)
		begun.Close()
		waiting.Close()
		require.Empty(w.t, begun.f.owners)
	})
}
