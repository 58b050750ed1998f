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
	read := f.try(f.positions, 10)
	if !read.Reset {
		require.Equal(t, []store.Change{
			entry("alice", isHere(f.start, lastseen.Green), neverSeen()),
			entry("alice", neverSeen(), isHere(f.start, lastseen.Green)),
		}, bare(read.Changes))
	}
	require.Equal(t, isHere(f.start, lastseen.Green), f.published("alice"))
	f.positions = read.Positions
	f.leave("alice", f.start)
	f.requireEntries(entry("alice", isHere(f.start, lastseen.Green), hasLeft(f.start)))
}
