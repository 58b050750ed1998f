package api

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store/feed"
)

// TestVisibleMoments: a client that follows everyone lists the users after the first batch. A user who is not visible
// at that moment, and is again before the watcher looks, is told.
func TestVisibleMoments(t *testing.T) {
	t.Parallel()
	for what, happens := range map[string]func(*seenWorld){
		"contact removed":      func(w *seenWorld) { w.know("ann"); w.know("ann", "vic") },
		"own contact removed":  func(w *seenWorld) { w.know("vic"); w.know("vic", "ann") },
		"noticed by a reading": func(w *seenWorld) { w.know("ann"); w.knowQuietly("ann", "vic"); w.know("ann", "vic") },
		"away, and other contacts": func(w *seenWorld) {
			time.Sleep(1010 * time.Millisecond) // the feed has read everything, and does again later
			w.leave("ann")
			time.Sleep(10 * time.Millisecond)
			w.ping("ann")
			w.know("ann", "vic", "y")
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			inSeenWorld(t, func(t *testing.T, w *seenWorld) {
				w.know("vic", "ann", "sam")
				w.know("ann", "vic")
				w.know("sam")
				w.ping("ann", "sam")
				watcher := w.watch(0, feed.Query{Everyone: true})
				w.poll(watcher)
				happens(w)
				require.Equal(t, []string{"ann green"}, w.settle(watcher))
			})
		})
	}
}

// TestVisibleMomentsOfNobody: who changes contacts tells nobody, neither those who go on to see the user nor those who
// do not. Users who were never seen are not told either, nor are users who are named and look the same.
func TestVisibleMomentsOfNobody(t *testing.T) {
	t.Parallel()
	inSeenWorld(t, func(t *testing.T, w *seenWorld) {
		w.know("vic", "ann", "sam", "tom")
		w.know("ann", "vic")
		w.know("tom", "vic")
		w.ping("ann", "sam")
		everyone := w.watch(0, feed.Query{Everyone: true})
		named := w.watch(0, feed.Query{Users: []string{"ann", "sam", "tom"}})
		w.poll(everyone)
		w.poll(named)
		w.know("ann", "vic", "y")
		require.Empty(t, w.settle(everyone))
		for range 2 {
			w.know("sam", "y")
			w.know("tom", "vic", "y")
		}
		w.know("vic", "ann", "tom")
		require.Empty(t, w.settle(everyone))
		w.know("ann")
		w.know("ann", "vic")
		require.Empty(t, w.settle(named))
	})
}

// TestVisibleFeedMoments: users who were away while the feed lost its place are told, since their time differs.
func TestVisibleFeedMoments(t *testing.T) {
	t.Parallel()
	v := newVisibleUsers(true)
	v.add([]string{"ann", "bea", "cat"})
	at := func(user string, n int) feed.Update {
		u := feed.Update{User: user}
		u.Status, u.At = "green", lastseen.Instant(n)
		return u
	}
	v.publish(feed.Batch{Snapshot: true, Users: []feed.Update{at("ann", 1), at("bea", 1), {User: "cat"}}})
	for _, user := range []string{"ann", "bea"} {
		v.show(user, true)
	}
	v.tellAll()
	v.publish(feed.Batch{Reset: true, Users: []feed.Update{at("ann", 1), at("bea", 2), at("cat", 2)}})
	updates, more := v.tell(10)
	require.False(t, more)
	require.Equal(t, "bea green", told(feed.Batch{Users: updates}))
}
