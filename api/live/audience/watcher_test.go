package audience

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/feed"
)

// What viewers are told in general, [TestVisibleModel] shows. These tests are of moments that it seldom meets.

// seen runs a test in its own fixture, in parallel.
func seen(t *testing.T, test func(*testing.T, *fixture)) {
	t.Helper()
	t.Parallel()
	inFixture(t, test)
}

// follow begins to follow users by name, or everyone if there are none, and takes the first batch.
func (w *fixture) follow(users ...string) *Watcher {
	w.t.Helper()
	watcher := w.watch(0, feed.Query{Users: users, Everyone: users == nil})
	w.poll(watcher)
	return watcher
}

// resume returns what a query gets first after positions, and its positions.
func (w *fixture) resume(after []store.Position, users ...string) (first string, positions []store.Position) {
	w.t.Helper()
	b := w.poll(w.watch(1, feed.Query{Users: users, Everyone: users == nil, After: after}))
	return told(b), b.Positions
}

// wants checks what a watcher says until nothing is to be told.
func (w *fixture) wants(watcher *Watcher, texts ...string) {
	w.t.Helper()
	require.Equal(w.t, texts, w.settle(watcher))
}

// readFeed lets the feed read everything. It does so again later.
func readFeed() { time.Sleep(1010 * time.Millisecond) }

// away has users leave and come back.
func (w *fixture) away(users ...string) {
	w.t.Helper()
	w.leave(users...)
	time.Sleep(time.Millisecond)
	w.ping(users...)
}

// TestVisibleAppears: a user who becomes visible is told as they are then, not as they were before, although the feed
// is behind. So is one who is visible again after a moment.
func TestVisibleAppears(t *testing.T) {
	seen(t, func(_ *testing.T, w *fixture) {
		w.ping("ann")
		w.know("vic", "ann")
		named, everyone := w.follow("ann"), w.follow()
		for range 3 {
			readFeed()
			w.leave("ann")
			w.know("ann", "vic")
			w.wants(named, "ann grey left")
			w.wants(everyone, "ann grey left")
			w.know("ann")
			w.wants(named, "ann never")
			w.wants(everyone, "ann never")
			w.ping("ann")
			w.know("ann", "vic")
			w.wants(named, "ann green")
			w.wants(everyone, "ann green")
			readFeed()
			w.know("ann")
			w.away("ann")
			w.know("ann", "vic")
			require.Empty(w.t, w.settle(named))
			require.Empty(w.t, w.settle(everyone))
			w.know("ann")
			w.settle(named)
			w.settle(everyone)
		}
	})
}

// TestVisibleCursors: a cursor is of the users who were named, also those told as never seen, and of nothing else.
func TestVisibleCursors(t *testing.T) {
	seen(t, func(t *testing.T, w *fixture) {
		w.know("ann", "vic")
		w.ping("ann")
		after := w.poll(w.watch(0, feed.Query{Users: []string{"sam"}})).Positions
		w.know("ann")
		first, _ := w.resume(after, "ann", "sam")
		require.Equal(t, "reset: ann never, sam never", first)
		w.know("ann", "vic")
		watcher := w.follow("ann")
		b, err := watcher.Change(t.Context(), feed.Change{Remove: []string{"ann"}})
		require.NoError(t, err)
		w.know("ann")
		b, err = watcher.Change(t.Context(), feed.Change{Add: []string{"ann"}, After: b.Positions})
		require.NoError(t, err)
		require.Equal(t, "ann never", told(b))
		first, same := w.resume(b.Positions, "ann")
		require.Empty(t, first)
		require.Equal(t, widths(b.Positions), widths(same))
		for _, strange := range [][]store.Position{
			{}, {""}, {"seen"}, {"1-2", "3"}, {same[0], same[0]}, {same[0][:20]}, {same[0] + "AAAA"}, {"A" + same[0][1:]},
		} {
			first, _ = w.resume(strange, "ann")
			require.Equal(t, "reset: ann never", first)
		}
	})
}

// TestVisibleChange: users are added and removed while others are watched.
func TestVisibleChange(t *testing.T) {
	seen(t, func(t *testing.T, w *fixture) {
		w.know("ann", "vic")
		w.know("bea", "vic")
		w.ping("ann", "bea", "sam")
		change := func(watcher *Watcher, c feed.Change) string {
			t.Helper()
			b, err := watcher.Change(t.Context(), c)
			require.NoError(t, err)
			return told(b)
		}
		watcher := w.watch(0, feed.Query{})
		require.Equal(t, "snapshot: ", told(w.poll(watcher)))
		require.Equal(t, "sam never, ann green", change(watcher, feed.Change{Add: []string{"sam", "ann", "sam"}}))
		_, positions := w.resume(nil, "bea")
		require.Empty(t, change(watcher, feed.Change{Add: []string{"bea"}, After: positions}), "it is known")
		w.leave("ann", "bea", "sam")
		require.NotEmpty(t, w.settle(watcher))
		require.Equal(t, "bea grey left", change(watcher, feed.Change{Add: []string{"bea"}, After: positions}))
		require.Empty(t, change(watcher, feed.Change{Remove: []string{"ann", "x"}}))
		require.Equal(t, 2, watcher.Len())
		w.ping("ann", "bea")
		w.know("ann")
		w.wants(watcher, "bea green")
		w.know("ann", "vic")
		w.know("bea")
		require.Equal(t, "ann green, bea never", change(watcher, feed.Change{Add: []string{"ann"}}), "all that differs")

		other := w.follow("ann", "sam")
		w.store.Fails.Store(true)
		_, err := other.Change(t.Context(), feed.Change{Add: []string{"bea"}})
		require.ErrorIs(t, err, store.ErrUnavailable)
		w.store.Fails.Store(false)
		w.know("bea", "vic")
		require.Empty(t, w.settle(other), "bea is not watched")
		everyone := w.follow()
		require.Equal(t, 1, everyone.Len())
		_, err = everyone.Change(t.Context(), feed.Change{Add: []string{"ann"}})
		require.ErrorIs(t, err, feed.ErrEveryone)
	})
}

// TestVisibleEveryone: the first response to a client that follows everyone has all contacts whom the viewer sees, with
// the statuses that it asks for, and so has a reset.
func TestVisibleEveryone(t *testing.T) {
	seen(t, func(t *testing.T, w *fixture) {
		w.know("vic", "ann", "bea", "sam")
		w.know("ann", "vic")
		w.know("bea", "vic")
		w.ping("ann", "bea", "sam")
		w.leave("bea")
		first, positions := w.resume(nil)
		require.Equal(t, "snapshot: ann green, bea grey left", first)
		green := feed.Query{Everyone: true, Statuses: []lastseen.Status{lastseen.Green}}
		require.Equal(t, "snapshot: ann green", told(w.poll(w.watch(0, green))))
		none := w.watch(0, feed.Query{Everyone: true, NoSnapshot: true})
		require.Equal(t, "snapshot: ", told(w.poll(none)))
		w.ping("sam")
		again, same := w.resume(positions)
		require.Empty(t, again)
		require.Equal(t, widths(positions), widths(same))
		time.Sleep(time.Millisecond)
		w.ping("bea")
		w.wants(none, "bea green")
		again, _ = w.resume(positions)
		require.Equal(t, "bea green", again)
		changes := feed.Query{Everyone: true, NoSnapshot: true, After: positions}
		require.Equal(t, "bea green", told(w.poll(w.watch(0, changes))))
	})
}
