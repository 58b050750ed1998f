package api

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/feed"
)

// TestVisibleWatch: a viewer is told of users who have the viewer among their contacts, and of nobody else. What
// contacts add and remove is told at once.
func TestVisibleWatch(t *testing.T) {
	t.Parallel()
	inSeenWorld(t, func(t *testing.T, w *seenWorld) {
		w.know("ann", "vic")
		w.know("vic", "sam") // which does not show sam to vic
		w.ping("ann", "sam", "vic")
		watcher := w.watch(0, feed.Query{Users: []string{"sam", "ann", "vic", "nobody"}})
		require.Equal(t, "snapshot: sam never, ann green, vic green, nobody never", told(w.poll(watcher)))
		w.leave("sam")
		w.leave("ann")
		require.Equal(t, []string{"ann grey left"}, w.settle(watcher))
		w.know("sam", "vic", "x")
		require.Equal(t, []string{"sam grey left"}, w.settle(watcher))
		w.ping("sam")
		require.Equal(t, []string{"sam green"}, w.settle(watcher))
		w.know("sam", "x")
		require.Equal(t, []string{"sam never"}, w.settle(watcher))
		w.ping("ann", "sam")
		require.Equal(t, []string{"ann green"}, w.settle(watcher))
		w.forget("ann")
		require.Equal(t, []string{"ann never"}, w.settle(watcher))
		require.Equal(t, 4, watcher.Len())
	})
}

// TestVisibleWatchLooksNeverSeen: an update of a user who is not visible is that of one who was never seen.
func TestVisibleWatchLooksNeverSeen(t *testing.T) {
	t.Parallel()
	inSeenWorld(t, func(t *testing.T, w *seenWorld) {
		w.ping("sam")
		b := w.poll(w.watch(0, feed.Query{Users: []string{"sam"}}))
		s, err := w.store.SnapshotChanges(t.Context(), "chat", []string{"nobody"})
		require.NoError(t, err)
		require.Equal(t, s.Users[0], b.Users[0].Published)
		key := &auth.Caller{Kind: auth.ByKey, Name: "key"}
		plain, err := w.servers[0].openWatcher(t.Context(), "chat", key, feed.Query{Users: []string{"sam"}}, free)
		require.NoError(t, err)
		defer plain.Close()
		require.Equal(t, "snapshot: sam green", told(w.poll(plain)))
	})
}

// TestVisibleAppears: a user who becomes visible is told as they are then, not as they were before, although the feed
// is behind. So is one who is visible again after a moment.
func TestVisibleAppears(t *testing.T) {
	t.Parallel()
	inSeenWorld(t, func(t *testing.T, w *seenWorld) {
		w.ping("ann")
		w.know("vic", "ann")
		named, everyone := w.watch(0, feed.Query{Users: []string{"ann"}}), w.watch(0, feed.Query{Everyone: true})
		for range 3 {
			w.poll(named)
			w.poll(everyone)
			time.Sleep(1010 * time.Millisecond) // the feed has read everything, and does again later
			w.leave("ann")
			w.know("ann", "vic")
			require.Equal(t, []string{"ann grey left"}, w.settle(named))
			require.Equal(t, []string{"ann grey left"}, w.settle(everyone))
			w.know("ann")
			require.Equal(t, []string{"ann never"}, w.settle(named))
			require.Equal(t, []string{"ann never"}, w.settle(everyone))
			w.ping("ann")
			w.know("ann", "vic")
			require.Equal(t, []string{"ann green"}, w.settle(named))
			require.Equal(t, []string{"ann green"}, w.settle(everyone))
			time.Sleep(1010 * time.Millisecond)
			w.know("ann")
			w.leave("ann")
			time.Sleep(time.Millisecond)
			w.ping("ann")
			w.know("ann", "vic")
			require.Empty(t, w.settle(named))
			require.Equal(t, []string{"ann green"}, w.settle(everyone), "for clients that list users meanwhile")
			w.know("ann")
			w.settle(named)
			w.settle(everyone)
		}
	})
}

// TestVisibleEveryone: everyone are the contacts of the viewer who have the viewer.
func TestVisibleEveryone(t *testing.T) {
	t.Parallel()
	inSeenWorld(t, func(t *testing.T, w *seenWorld) {
		w.know("vic", "ann", "sam")
		w.know("ann", "vic")
		w.know("bea", "vic")
		w.ping("ann", "sam", "bea")
		watcher := w.watch(1, feed.Query{Everyone: true})
		require.Equal(t, "snapshot: ", told(w.poll(watcher)))
		require.Equal(t, 1, watcher.Len())
		w.leave("ann", "sam", "bea", "vic")
		require.Equal(t, []string{"ann grey left"}, w.settle(watcher))
		w.know("vic", "ann", "sam", "bea")
		require.Equal(t, []string{"bea grey left"}, w.settle(watcher))
		w.know("vic", "bea")
		require.Equal(t, []string{"ann never"}, w.settle(watcher))
		w.ping("ann", "bea")
		require.Equal(t, []string{"bea green"}, w.settle(watcher))
		w.know("bea")
		require.Equal(t, []string{"bea never"}, w.settle(watcher))
		w.know("vic")
		require.Empty(t, w.settle(watcher))
		_, err := watcher.Change(t.Context(), feed.Change{Add: []string{"ann"}})
		require.ErrorIs(t, err, feed.ErrEveryone)
	})
}

// TestVisibleFlicks: a client that follows everyone lists the users after the first batch. Users who change meanwhile
// and change back are told, to a watcher that stays open and to the next query.
func TestVisibleFlicks(t *testing.T) {
	t.Parallel()
	inSeenWorld(t, func(t *testing.T, w *seenWorld) {
		w.know("vic", "ann", "sam", "tom")
		w.know("ann", "vic")
		w.ping("ann", "sam")
		watcher := w.watch(0, feed.Query{Everyone: true})
		first := w.poll(watcher)
		time.Sleep(1010 * time.Millisecond) // the feed has read everything, and does again later
		w.leave("ann", "sam")
		time.Sleep(time.Millisecond)
		w.ping("ann", "sam")
		require.Equal(t, []string{"ann green"}, w.settle(watcher))
		again := w.watch(1, feed.Query{Everyone: true, After: first.Places})
		b := w.poll(again)
		require.Equal(t, "ann green, sam never, tom never", told(b))
		w.leave("sam")
		b2 := w.poll(w.watch(0, feed.Query{Everyone: true, After: b.Places}))
		require.Empty(t, told(b2))
		require.Equal(t, b.Places, b2.Places)
		w.leave("ann")
		require.Equal(t, []string{"ann grey left"}, w.settle(again))
		require.Equal(t, "reset: ", told(w.poll(w.watch(0, feed.Query{Everyone: true, After: b.Places}))))
	})
}

// TestVisibleCursors: a query continues if what the client knows is what there is to know, on any server. What
// strangers do makes no difference to places.
func TestVisibleCursors(t *testing.T) {
	t.Parallel()
	inSeenWorld(t, func(t *testing.T, w *seenWorld) {
		users := []string{"ann", "sam", "vic"}
		w.know("ann", "vic")
		w.ping("ann", "vic")
		one := w.watch(0, feed.Query{Users: users})
		places := w.poll(one).Places
		w.ping("sam", "ann", "vic")
		w.know("sam", "ann")
		w.leave("sam")
		require.Empty(t, w.settle(one))
		b, ok := w.ticks(one)
		require.True(t, ok)
		require.Equal(t, places, b.Places)
		resumed := w.watch(1, feed.Query{Users: users, After: places})
		b = w.poll(resumed)
		require.Empty(t, told(b))
		require.Equal(t, places, b.Places)

		time.Sleep(90 * time.Second)
		synctest.Wait()
		require.Equal(t, []string{"ann yellow, vic yellow"}, w.settle(resumed))
		b, ok = w.ticks(resumed)
		require.True(t, ok)
		require.NotEqual(t, places, b.Places)
		require.Equal(t, "reset: ann yellow, sam never, vic yellow",
			told(w.poll(w.watch(0, feed.Query{Users: users, After: places}))))
		waits := w.watch(1, feed.Query{Users: users, After: b.Places})
		require.Empty(t, w.settle(waits), "it continues")
		w.know("sam", "vic")
		require.Equal(t, []string{"sam grey left"}, w.settle(waits))
		for _, strange := range [][]store.Place{{}, {"seen-f-"}, {"1-2", "3"}, {b.Places[0], b.Places[0]}} {
			require.Equal(t, "reset: vic yellow",
				told(w.poll(w.watch(0, feed.Query{Users: []string{"vic"}, After: strange}))))
		}
	})
}

// TestVisibleChange: users are added and removed while others are watched.
func TestVisibleChange(t *testing.T) {
	t.Parallel()
	inSeenWorld(t, func(t *testing.T, w *seenWorld) {
		w.know("ann", "vic")
		w.know("bea", "vic")
		w.ping("ann", "bea", "sam")
		change := func(watcher changesWatcher, c feed.Change) string {
			t.Helper()
			b, err := watcher.Change(t.Context(), c)
			require.NoError(t, err)
			return told(b)
		}
		watcher := w.watch(0, feed.Query{})
		require.Equal(t, "snapshot: ", told(w.poll(watcher)))
		require.Equal(t, "sam never, ann green", change(watcher, feed.Change{Add: []string{"sam", "ann", "sam"}}))
		require.Empty(t, w.settle(watcher))
		places := w.poll(w.watch(1, feed.Query{Users: []string{"bea"}})).Places
		require.Empty(t, change(watcher, feed.Change{Add: []string{"bea"}, After: places}), "it is known")
		w.leave("ann", "bea", "sam")
		require.NotEmpty(t, w.settle(watcher))
		require.Equal(t, "bea grey left", change(watcher, feed.Change{Add: []string{"bea"}, After: places}))
		require.Empty(t, change(watcher, feed.Change{Remove: []string{"ann", "x"}}))
		require.Equal(t, 2, watcher.Len())
		w.ping("ann", "bea")
		w.know("ann")
		require.Equal(t, []string{"bea green"}, w.settle(watcher))
		w.know("ann", "vic")
		w.know("bea")
		require.Equal(t, "ann green, bea never", change(watcher, feed.Change{Add: []string{"ann"}}), "all that differs")

		early := w.watch(1, feed.Query{Users: []string{"ann", "bea"}})
		b, err := early.Change(t.Context(), feed.Change{Add: []string{"sam"}, Remove: []string{"bea"}})
		require.NoError(t, err)
		require.Equal(t, "snapshot: sam never, ann green", told(b), "of a watcher without a batch")
		w.store.fails.Store(true)
		_, err = early.Change(t.Context(), feed.Change{Add: []string{"bea"}})
		require.ErrorIs(t, err, store.ErrUnavailable)
		w.store.fails.Store(false)
		w.know("bea", "vic")
		require.Empty(t, w.settle(early), "bea is not watched")
	})
}
