package audience

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/feed"
)

// watchContacts begins to follow the contacts of a user, until the test ends.
func (w *fixture) watchContacts(owner string, v Viewer, after ...store.Position) *Watcher {
	w.t.Helper()
	watcher, err := w.open(0, owner, v, feed.Query{After: after}, free)
	require.NoError(w.t, err)
	w.t.Cleanup(watcher.Close)
	return watcher
}

// TestWatchContacts: a service follows the contacts of a user, and who is added and removed, whoever sees whom.
func TestWatchContacts(t *testing.T) {
	t.Parallel()
	inFixture(t, func(t *testing.T, w *fixture) {
		w.know("ann", "bob", "cat")
		w.know("bob", "dan")
		w.ping("bob", "dan", "ann")
		watcher := w.watchContacts("ann", service())
		require.Equal(t, "snapshot: bob green, cat never", told(w.poll(watcher)))
		require.Equal(t, 2, watcher.Len())
		w.leave("dan", "ann")
		w.know("bob", "ann")
		w.know("dan", "ann")
		require.Empty(t, w.settle(watcher), "they are no contacts of ann")
		w.ping("cat")
		require.Equal(t, []string{"cat green"}, w.settle(watcher))
		w.know("ann", "bob", "cat", "dan", "eve")
		require.Equal(t, []string{"dan grey left, eve never"}, w.settle(watcher))
		w.know("ann", "cat", "dan", "eve")
		require.Equal(t, []string{"bob never"}, w.settle(watcher))
		w.ping("bob")
		require.Empty(t, w.settle(watcher))
		w.know("ann", "bob", "eve")
		require.Equal(t, []string{"cat never, dan never, bob green"}, w.settle(watcher))
		w.forget("ann")
		require.Equal(t, []string{"bob never"}, w.settle(watcher))
		require.Equal(t, 0, watcher.Len())
		w.know("ann", "eve")
		require.Equal(t, []string{"eve never"}, w.settle(watcher))
	})
}

// TestWatchContactsContinues: a cursor leads to what differs, in contacts, too.
func TestWatchContactsContinues(t *testing.T) {
	t.Parallel()
	inFixture(t, func(t *testing.T, w *fixture) {
		w.know("ann", "bob", "cat")
		w.ping("bob")
		watcher := w.watchContacts("ann", service())
		position := w.poll(watcher).Positions[0]
		require.Empty(t, told(w.poll(w.watchContacts("ann", service(), position))))
		w.know("ann", "bob", "cat", "eve")
		require.Equal(t, []string{"eve never"}, w.settle(watcher))
		tick, ok := w.ticks(watcher)
		require.True(t, ok)
		require.Empty(t, told(w.poll(w.watchContacts("ann", service(), tick.Positions[0]))))
		require.Equal(t, "reset: bob green, cat never, eve never", told(w.poll(w.watchContacts("ann", service(), position))))
		w.know("ann", "bob", "cat")
		require.Empty(t, w.settle(watcher), "eve looks as if they were removed")
		tick, ok = w.ticks(watcher)
		require.True(t, ok)
		require.Equal(t, widths([]store.Position{position}), widths(tick.Positions))
		require.Empty(t, told(w.poll(w.watchContacts("ann", service(), position))), "nothing changed in the end")

		w.know("ann", "bob", "cat", "eve", "fay")
		time.Sleep(time.Second)
		b, err := w.await(t.Context(), watcher, 1)
		require.NoError(t, err)
		require.Equal(t, "eve never, fay never", told(b), "all at once")
		require.False(t, b.More)
		require.Empty(t, told(w.poll(w.watchContacts("ann", service(), b.Positions[0]))))

		w.leave("bob")
		require.Equal(t, "bob grey left", w.next(watcher, time.Second))
		w.know("ann", "bob", "cat", "fay")
		tick, ok = w.ticks(watcher)
		require.True(t, ok)
		require.Empty(t, told(w.poll(w.watchContacts("ann", service(), tick.Positions[0]))), "eve is not in the position")
	})
}

// TestWatchContactsVisible: where users are visible to contacts, users see only contacts who have them.
func TestWatchContactsVisible(t *testing.T) {
	t.Parallel()
	inFixture(t, func(t *testing.T, w *fixture) {
		w.know("vic", "ann", "sam")
		w.know("ann", "vic")
		w.ping("ann", "sam", "bea")
		watcher := w.watchContacts("vic", vic())
		require.Equal(t, "snapshot: ann green, sam never", told(w.poll(watcher)))
		w.know("sam", "vic")
		w.know("bea", "vic")
		require.Equal(t, []string{"sam green"}, w.settle(watcher))
		w.know("vic", "ann", "bea")
		require.Equal(t, []string{"sam never, bea green"}, w.settle(watcher))
		w.know("ann")
		require.Equal(t, []string{"ann never"}, w.settle(watcher))
	})
}

// TestVisibleFailures: while contacts cannot be read, nothing is told and a poll fails.
func TestVisibleFailures(t *testing.T) {
	seen(t, func(t *testing.T, w *fixture) {
		w.know("ann", "vic")
		w.ping("ann")
		watcher := w.watch(0, feed.Query{Users: []string{"ann"}})
		w.store.Fails.Store(true)
		_, err := watcher.Poll(t.Context(), 10)
		require.ErrorIs(t, err, store.ErrUnavailable)
		_, err = w.await(t.Context(), watcher, 10)
		require.ErrorIs(t, err, store.ErrUnavailable, "there was no batch yet")
		_, err = watcher.Change(t.Context(), feed.Change{Add: []string{"bea"}})
		require.ErrorIs(t, err, store.ErrUnavailable)
		_, err = w.open(0, "", vic(), feed.Query{Everyone: true}, free)
		require.ErrorIs(t, err, store.ErrUnavailable)
		w.store.Fails.Store(false)
		require.Equal(t, "snapshot: ann green", told(w.poll(watcher)))

		w.store.Fails.Store(true)
		w.know("ann")
		require.Empty(t, w.next(watcher, 2*time.Second))
		_, ok := watcher.Tick()
		require.False(t, ok, "contacts are due, which nothing else shows")
		_, err = watcher.Change(t.Context(), feed.Change{Add: []string{"bea"}})
		require.ErrorIs(t, err, store.ErrUnavailable)
		w.leave("ann")
		require.Empty(t, w.next(watcher, 10*time.Second))
		_, ok = watcher.Tick()
		require.False(t, ok)
		_, err = watcher.Poll(t.Context(), 10)
		require.ErrorIs(t, err, store.ErrUnavailable)
		w.store.Fails.Store(false)
		began := time.Now()
		require.Equal(t, "ann never", w.next(watcher, time.Minute))
		require.Less(t, time.Since(began), 2*contactsRetry)
		_, ok = w.ticks(watcher)
		require.True(t, ok)
	})
}

// TestVisibleLostFeed: when the feed was lost, all contacts are read again, and only those that a watcher depends on
// when they change.
func TestVisibleLostFeed(t *testing.T) {
	seen(t, func(t *testing.T, w *fixture) {
		w.know("vic", "bob")
		watcher, everyone := w.follow("ann"), w.follow()
		require.NoError(t, w.store.DeleteNamespace(t.Context(), "chat"))
		w.ping("ann")
		w.set("vic", "ann") // before a feed begins again
		w.set("ann", "vic")
		require.Equal(t, "ann green", w.next(watcher, time.Minute))
		require.Equal(t, "ann green", w.next(everyone, time.Minute))
		require.Empty(t, w.settle(watcher))
		asked := w.store.Pairs.Load()
		w.know("bea", "vic")
		require.Empty(t, w.next(watcher, time.Second))
		require.Equal(t, asked, w.store.Pairs.Load(), "it does not depend on this user")
	})
}

// TestVisibleBatches: a client that waits gets at most four batches a second, whatever strangers do.
func TestVisibleBatches(t *testing.T) {
	seen(t, func(t *testing.T, w *fixture) {
		users := []string{}
		for k := range 30 {
			users = append(users, fmt.Sprint("u", k))
			w.set(users[k], "vic")
		}
		watcher := w.follow(users...)
		require.Empty(t, w.settle(watcher))
		w.ping(users...)
		time.Sleep(2 * time.Second) // until the feed has all of them
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		for k := range 3 {
			b, err := w.await(ctx, watcher, 10)
			require.NoError(t, err)
			require.Len(t, b.Users, 10)
			require.Equal(t, k < 2, b.More)
		}
		last := time.Now()
		w.set("u1")
		_, err := w.await(ctx, watcher, 10)
		require.NoError(t, err)
		require.GreaterOrEqual(t, time.Since(last), time.Second/4)
	})
}

// TestVisibleBounds: contacts are read in pages, and those watched by everyone count to the caller and are charged.
func TestVisibleBounds(t *testing.T) {
	seen(t, func(t *testing.T, w *fixture) {
		users := make([]string, 2500)
		for k := range users {
			users[k] = fmt.Sprint("u", k)
		}
		w.set("vic", users...)
		named := w.follow(users...)
		require.EqualValues(t, contactsPage, w.store.Most.Load())
		hub, charged := w.servers[0].Feeds, 0
		require.Equal(t, 2500, hub.Stats().Watches, "also those whom vic does not see")
		charge := func() error { charged++; return nil }
		everyone, err := w.open(0, "", vic(), feed.Query{Everyone: true}, charge)
		require.NoError(t, err)
		require.Equal(t, 2, charged)
		w.poll(everyone)
		require.Equal(t, 2499, w.counted, "one is counted for the watcher itself")
		w.counted += store.MaxWatched - 2499
		_, err = w.open(0, "", vic(), feed.Query{Everyone: true}, free)
		require.ErrorIs(t, err, errSome)
		w.know("vic", users[:1000]...)
		require.Empty(t, w.settle(everyone))
		require.Equal(t, 3500, hub.Stats().Watches)
		require.Equal(t, store.MaxWatched-1500, w.counted)
		everyone.Close()
		require.Equal(t, store.MaxWatched-2499, w.counted)
		_, err = w.open(0, "", vic(), feed.Query{Everyone: true}, func() error { return errSome })
		require.ErrorIs(t, err, errSome)
		many := make([]string, store.MaxWatched-2500+1)
		for k := range many {
			many[k] = fmt.Sprint("m", k)
		}
		_, err = named.Change(t.Context(), feed.Change{Add: many})
		require.ErrorIs(t, err, feed.ErrTooManyUsers)
		_, err = named.Change(t.Context(), feed.Change{Add: many[1:], Remove: users[:10]})
		require.NoError(t, err)
		require.Equal(t, store.MaxWatched-10, hub.Stats().Watches)
	})
}

// TestVisibleToNobody: a caller without credentials sees nobody, and what ends leaves nothing behind.
func TestVisibleToNobody(t *testing.T) {
	seen(t, func(t *testing.T, w *fixture) {
		w.know("ann", "vic")
		w.ping("ann")
		for _, q := range []feed.Query{{Users: []string{"ann"}}, {Everyone: true}} {
			watcher, err := w.open(0, "", Viewer{Restricted: true}, q, free)
			require.NoError(t, err)
			for _, u := range w.poll(watcher).Users {
				require.Equal(t, store.Published{Status: lastseen.Grey}, u.Published)
			}
			require.Empty(t, w.settle(watcher))
			watcher.Close()
		}
		require.Zero(t, w.servers[0].Feeds.Stats().Watches)
		require.Zero(t, w.counted)
	})
}
