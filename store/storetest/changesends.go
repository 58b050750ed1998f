package storetest

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// changesCalls is every method of feeds, of the namespace ns.
func changesCalls(s store.Store) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"RecordChanges": func(ctx context.Context) error { return s.RecordChanges(ctx, ns, normal) },
		"ReadChanges": func(ctx context.Context) error {
			read := &store.ChangesRead{Namespace: ns, Limit: 1}
			s.ReadChanges(ctx, []*store.ChangesRead{read})
			return read.Err
		},
		"SnapshotChanges": func(ctx context.Context) error {
			return errorOf(s.SnapshotChanges(ctx, ns, []string{"alice"}))
		},
		"SweepChanges": func(ctx context.Context) error {
			sweep := &store.ChangesSweep{Namespace: ns, Thresholds: normal, Now: base}
			s.SweepChanges(ctx, []*store.ChangesSweep{sweep})
			return sweep.Err
		},
	}
}

// requireNotRecorded checks that the methods of feeds say that no changes are recorded.
func requireNotRecorded(t require.TestingT, s store.Store) {
	for name, call := range changesCalls(s) {
		if name != "RecordChanges" {
			require.ErrorIs(t, call(context.Background()), store.ErrNotRecorded, name)
		}
	}
}

func testChangesCancelled(t *testing.T, s store.Store) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.ErrorIs(t, s.RecordChanges(ctx, ns, normal), context.Canceled)
	requireNotRecorded(t, s)
	f := begin(t, s)
	f.ping("alice", f.decaysYellow(100))
	for name, call := range changesCalls(s) {
		require.ErrorIs(t, call(ctx), context.Canceled, name)
	}
	require.Len(t, f.read(), 1)
	require.Equal(t, 1, f.sweep(100))
}

func testChangesClosed(t *testing.T, s store.Store) {
	begin(t, s)
	require.NoError(t, s.Close())
	for name, call := range changesCalls(s) {
		require.ErrorIs(t, call(context.Background()), store.ErrClosed, name)
	}
}

// testNotRecorded: without RecordChanges there is no feed, whatever is in the namespace.
func testNotRecorded(t *testing.T, s store.Store) {
	requireNotRecorded(t, s)
	ping(t, s, "alice", base)
	begin(t, s)
	beginWith(t, s, "other", normal)
	require.NoError(t, s.DeleteNamespace(context.Background(), ns))
	requireNotRecorded(t, s)
	ping(t, s, "alice", base)
	leave(t, s, "bob", base)
	forget(t, s, "alice")
	require.Equal(t, left(base), lookup(t, s, "bob")[0])
	requireNotRecorded(t, s)
}

// testRecordAgain: a feed goes on when RecordChanges is called again.
func testRecordAgain(t *testing.T, s store.Store) {
	f := begin(t, s)
	someChanges(f, 3)
	for range 3 {
		require.NoError(t, s.RecordChanges(context.Background(), ns, normal))
	}
	require.Equal(t, f.start, f.snapshot().Watermark)
	require.Len(t, f.read(), 5)
	f.ping("alice", f.start)
	require.Len(t, f.read(), 1)
}

// testRecordNewNamespace: a feed does not make its namespace exist, and has the first user of it.
func testRecordNewNamespace(t *testing.T, s store.Store) {
	f := begin(t, s)
	require.Empty(t, namespaces(t, s, 10))
	require.Equal(t, neverSeen(), f.published("alice"))
	require.Zero(t, f.sweep(100))
	f.leave("bob", f.start)
	require.Empty(t, f.read())
	f.ping("alice", f.start)
	require.Equal(t, []store.Change{entry("alice", neverSeen(), isHere(f.start, lastseen.Green))}, f.read())
	require.Equal(t, []store.NamespaceInfo{{Name: ns, Newest: f.start}}, namespaces(t, s, 10))
}

// testDeleteEndsFeed: readers of a namespace that was deleted find no feed, and get a reset from the next one.
func testDeleteEndsFeed(t *testing.T, s store.Store) {
	f := begin(t, s)
	someChanges(f, 3)
	old, end := f.places, f.readFrom(nil, 1).Places
	require.NoError(t, s.DeleteNamespace(context.Background(), ns))
	requireNotRecorded(t, s)
	ping(t, s, "u0", f.start)
	requireNotRecorded(t, s)

	next := begin(t, s)
	for _, after := range [][]store.Place{old, end} {
		require.Equal(t, next.places, next.requireReset(after, "another feed"))
	}
	require.Empty(t, next.read())
	require.Equal(t, isHere(f.start, lastseen.Green), next.published("u0"))
	next.leave("u0", next.start)
	require.Equal(t, []store.Change{entry("u0", isHere(f.start, lastseen.Green), hasLeft(next.start))}, next.read())
	for _, after := range [][]store.Place{old, end} {
		next.requireReset(after, "another feed")
	}
}

// testRemoveEmptyAndFeed: RemoveEmpty may end the feed, but readers miss nothing without a reset.
func testRemoveEmptyAndFeed(t *testing.T, s store.Store) {
	f := begin(t, s)
	f.ping("alice", f.start)
	require.False(t, removeEmpty(t, s, ns))
	require.Len(t, f.read(), 1)
	forget(t, s, "alice")
	require.True(t, removeEmpty(t, s, ns))
	require.Empty(t, existing(t, s))

	require.NoError(t, s.RecordChanges(context.Background(), ns, normal))
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
	require.Equal(t, []store.Change{entry("alice", isHere(f.start, lastseen.Green), hasLeft(f.start))}, f.read())
}

// testNoFeed: a namespace that cannot have a feed says so, and works.
func testNoFeed(t *testing.T, s store.Store) {
	for range 2 {
		for name, call := range changesCalls(s) {
			err := call(context.Background())
			if name != "RecordChanges" && errors.Is(err, store.ErrNotRecorded) {
				continue // this is right, too
			}
			require.ErrorIs(t, err, store.ErrNoFeed, name)
		}
		require.Equal(t, here(base), ping(t, s, "alice", base))
	}
}
