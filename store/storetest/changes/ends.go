package changes

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/kit"
)

// testNotRecorded: without RecordChanges there is no feed, whatever is in the namespace.
func testNotRecorded(t *testing.T, s store.Store) {
	RequireNotRecorded(t, s)
	kit.Ping(t, s, "alice", kit.Base)
	Begin(t, s)
	beginWith(t, s, "other", Normal)
	require.NoError(t, s.DeleteNamespace(context.Background(), kit.Namespace))
	RequireNotRecorded(t, s)
	kit.Ping(t, s, "alice", kit.Base)
	kit.Leave(t, s, "bob", kit.Base)
	kit.Forget(t, s, "alice")
	require.Equal(t, kit.Left(kit.Base), kit.Lookup(t, s, "bob")[0])
	RequireNotRecorded(t, s)
	for range 2 { // reading makes no state
		require.ErrorIs(t, s.RecordChanges(context.Background(), "none", Normal), store.ErrNotRecorded)
		require.ErrorIs(t, kit.ErrorOf(s.SnapshotChanges(context.Background(), "none", nil)), store.ErrNotRecorded)
	}
	require.Equal(t, []string{kit.Namespace, "other"}, kit.Existing(t, s))
}

// testRecordAgain: a feed goes on when RecordChanges is called again.
func testRecordAgain(t *testing.T, s store.Store) {
	f := Begin(t, s)
	someChanges(f, 3)
	for range 3 {
		require.NoError(t, s.RecordChanges(context.Background(), kit.Namespace, Normal))
	}
	require.Equal(t, f.start, f.snapshot().Watermark)
	require.Len(t, f.Read(), 5)
	f.ping("alice", f.start)
	require.Len(t, f.Read(), 1)
}

// testRecordNewNamespace: the feed of a namespace without users has the first one.
func testRecordNewNamespace(t *testing.T, s store.Store) {
	f := Begin(t, s)
	require.Equal(t, neverSeen(), f.published("alice"))
	require.Zero(t, f.sweep(100))
	f.leave("bob", f.start)
	f.requireEntries(entry("bob", neverSeen(), hasLeft(f.start)))
	f.ping("alice", f.start)
	f.requireEntries(entry("alice", neverSeen(), isHere(f.start, lastseen.Green)))
	require.Equal(t, []store.NamespaceInfo{{Name: kit.Namespace, Newest: f.start}}, kit.Namespaces(t, s, 10))
}

// testDeleteEndsFeed: readers of a namespace that was deleted find no feed, and get a reset from the next one.
func testDeleteEndsFeed(t *testing.T, s store.Store) {
	f := Begin(t, s)
	someChanges(f, 3)
	old, end := f.places, f.readFrom(nil, 1).Places
	require.NoError(t, s.DeleteNamespace(context.Background(), kit.Namespace))
	RequireNotRecorded(t, s)
	kit.Ping(t, s, "u0", f.start)
	RequireNotRecorded(t, s)

	next := Begin(t, s)
	for _, after := range [][]store.Place{old, end} {
		require.Equal(t, next.places, next.requireReset(after, "another feed"))
	}
	require.Empty(t, next.Read())
	require.Equal(t, isHere(f.start, lastseen.Green), next.published("u0"))
	next.leave("u0", next.start)
	require.Equal(t, []store.Change{entry("u0", isHere(f.start, lastseen.Green), hasLeft(next.start))}, next.Read())
	for _, after := range [][]store.Place{old, end} {
		next.requireReset(after, "another feed")
	}
}

// testRemoveEmptyAndFeed: RemoveEmpty may end the feed, but readers miss nothing without a reset.
func testRemoveEmptyAndFeed(t *testing.T, s store.Store) {
	f := Begin(t, s)
	f.ping("alice", f.start)
	require.False(t, kit.RemoveEmpty(t, s, kit.Namespace))
	require.Len(t, f.Read(), 1)
	kit.Forget(t, s, "alice")
	require.True(t, kit.RemoveEmpty(t, s, kit.Namespace))
	require.Empty(t, kit.Existing(t, s))

	recordChanges(t, s, kit.Namespace, Normal)
	f.ping("alice", f.start)
	read := f.try(f.places, 10)
	if !read.Reset {
		require.Equal(t, []store.Change{
			entry("alice", isHere(f.start, lastseen.Green), neverSeen()),
			entry("alice", neverSeen(), isHere(f.start, lastseen.Green)),
		}, bare(read.Changes))
	}
	require.Equal(t, isHere(f.start, lastseen.Green), f.published("alice"))
	f.places = read.Places
	f.leave("alice", f.start)
	f.requireEntries(entry("alice", isHere(f.start, lastseen.Green), hasLeft(f.start)))
}
