package filestore

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// TestFeedOfClockSetBack: a sweep or a write restarts the feed, so that it does not stand still.
func TestFeedOfClockSetBack(t *testing.T) {
	t.Parallel()
	for _, by := range []string{"sweep", "write"} {
		f := newFeedTest(t, time.Hour)
		begin := f.end()
		f.set(-time.Hour)
		now := f.time()
		if by == "sweep" {
			require.True(t, f.sweep(now).Begun)
		}
		ping(t, f.Store, "alice", now)
		r := f.after(begin)
		require.True(t, r.Reset)
		require.Equal(t, now, r.Watermark)
		begin = f.end()
		f.passed.add(time.Minute)
		require.Equal(t, 1, f.sweep(now.Add(time.Minute)).Decays)
		require.Equal(t, []string{"alice green→yellow"}, f.texts(begin))
	}
}

// TestFeedBarelyAhead: sweeps and writes go on while the watermark is ahead by half the green threshold or 5 s.
func TestFeedBarelyAhead(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for green, ahead := range map[time.Duration]time.Duration{
		time.Second: 500 * time.Millisecond, time.Minute: store.MaxAhead,
	} {
		for _, more := range []time.Duration{0, time.Millisecond} {
			f := newFeedTest(t, time.Hour)
			require.NoError(t, f.DeleteNamespace(ctx, "chat"))
			th := lastseen.Thresholds{Green: green, Yellow: 5 * time.Minute}
			require.NoError(t, f.RecordChanges(ctx, "chat", th))
			f.mu.Lock()
			f.index.feeds.byName["chat"].watermark = f.time().Add(ahead + more)
			f.mu.Unlock()
			require.Equal(t, more > 0, f.sweepAs(th, f.time()).Begun)
		}
	}
}

// TestFeedOfOtherThresholds: the feed restarts with them when it has not been swept for a while.
func TestFeedOfOtherThresholds(t *testing.T) {
	t.Parallel()
	f := newFeedTest(t, time.Hour)
	begun, begin := f.time(), f.end()
	others := lastseen.Thresholds{Green: 2 * time.Minute, Yellow: 3 * time.Minute}
	f.passed.add(store.SweepTakeoverOthers - time.Millisecond)
	w := f.sweepAs(others, f.time())
	require.NoError(t, w.Err)
	require.False(t, w.Begun)
	require.Equal(t, begun, w.Watermark)
	f.passed.add(time.Millisecond)
	w = f.sweepAs(others, f.time())
	require.True(t, w.Begun)
	require.Equal(t, f.time(), w.Watermark)
	require.True(t, f.after(begin).Reset)
	ping(t, f.Store, "alice", f.time())
	f.passed.add(time.Minute)
	require.Zero(t, f.sweepAs(others, f.time()).Decays)
	f.passed.add(time.Minute)
	require.Equal(t, 1, f.sweepAs(others, f.time()).Decays)
}

// TestFeedEnds: by itself, however the clock is set; with the namespace, even if that never existed; with the store.
func TestFeedEnds(t *testing.T) {
	t.Parallel()
	f := newFeedTest(t, time.Hour)
	ctx := context.Background()
	begin := f.end()
	f.set(20 * 365 * 24 * time.Hour)
	f.passed.add(store.ChangesKept - 20*time.Second - 1)
	require.NoError(t, f.after(begin).Err)
	f.passed.add(1)
	require.ErrorIs(t, f.after(begin).Err, store.ErrNotRecorded)
	_, err := f.SnapshotChanges(ctx, "chat", nil)
	require.ErrorIs(t, err, store.ErrNotRecorded)
	require.ErrorIs(t, f.sweep(f.time()).Err, store.ErrNotRecorded)
	f.record()
	require.True(t, f.after(begin).Reset)

	begin = f.end()
	require.NoError(t, f.DeleteNamespace(ctx, "chat"))
	require.ErrorIs(t, f.after(begin).Err, store.ErrNotRecorded)
	f.record()
	names, err := f.Namespaces(ctx, "", 1)
	require.NoError(t, err)
	require.Empty(t, names, "a feed does not create a namespace")

	require.NoError(t, f.Register(ctx, []string{"chat"}))
	begin = f.end()
	ping(t, f.Store, "alice", f.time())
	require.Len(t, f.texts(begin), 1)
	require.NoError(t, f.Forget(ctx, "chat", "alice"))
	removed, err := f.RemoveEmpty(ctx, "chat")
	require.NoError(t, err)
	require.True(t, removed)
	require.ErrorIs(t, f.after(begin).Err, store.ErrNotRecorded)

	f.record()
	require.NoError(t, f.Close())
	require.ErrorIs(t, f.after(begin).Err, store.ErrClosed)
	require.ErrorIs(t, f.RecordChanges(ctx, "chat", minutes), store.ErrClosed)
}

// TestExpiredFeedIsFreed: also if nobody asks for it.
func TestExpiredFeedIsFreed(t *testing.T) {
	path := newPath(t)
	synctest.Test(t, func(t *testing.T) {
		s := open(t, Options{Path: path, Sync: time.Hour})
		for _, name := range []string{"chat", "other"} {
			require.NoError(t, s.RecordChanges(context.Background(), name, minutes))
		}
		ping(t, s, "alice", lastseen.InstantOf(time.Now()))
		time.Sleep(store.ChangesKept / 2)
		require.NoError(t, s.RecordChanges(context.Background(), "other", minutes))
		feeds := func() int {
			s.mu.RLock()
			defer s.mu.RUnlock()
			return len(s.index.feeds.byName)
		}
		time.Sleep(store.ChangesKept/2 - time.Second)
		require.Equal(t, 2, feeds())
		time.Sleep(expireEvery + time.Second)
		require.Equal(t, 1, feeds())
		s.mu.RLock()
		n, _ := s.index.namespaces.Get("chat")
		require.Nil(t, n.feed)
		s.mu.RUnlock()
		time.Sleep(store.ChangesKept)
		require.Zero(t, feeds())
	})
}

// TestFeedPlaces: whatever is not a place of this feed is a reset.
func TestFeedPlaces(t *testing.T) {
	t.Parallel()
	f := newFeedTest(t, time.Hour)
	ping(t, f.Store, "alice", f.time())
	epoch := f.index.feeds.byName["chat"].epoch
	for _, after := range [][]store.Place{
		{},
		{""},
		{"1"},
		{store.Place(epoch)},
		{store.Place(epoch + "2")},
		{store.Place(epoch + "-1")},
		{store.Place(epoch + "99999999999999999999")},
		{store.Place(epoch + "1 ")},
		{store.Place("x" + epoch + "1")},
		{store.Place(epoch + "1"), store.Place(epoch + "1")},
	} {
		r := f.after(after)
		require.NoError(t, r.Err)
		require.True(t, r.Reset, "%q", after)
		require.Empty(t, r.Changes)
		require.Equal(t, []store.Place{store.Place(epoch + "1")}, r.Places)
	}
	require.Equal(t, []string{"alice grey→green"}, f.texts([]store.Place{store.Place(epoch + "0")}))
	require.Empty(t, f.texts([]store.Place{store.Place(epoch + "1")}))
}

// TestFeedsAreBounded: feeds of namespaces that do not exist count as namespaces do.
func TestFeedsAreBounded(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := open(t, Options{Path: newPath(t), Sync: time.Hour, MaxNamespaces: 3})
	require.NoError(t, s.Register(ctx, []string{"a", "b"}))
	require.NoError(t, s.RecordChanges(ctx, "x", minutes))
	require.NoError(t, s.RecordChanges(ctx, "y", minutes))
	require.NoError(t, s.RecordChanges(ctx, "z", minutes))
	require.ErrorIs(t, s.RecordChanges(ctx, "more", minutes), store.ErrNamespaceLimit)
	require.NoError(t, s.RecordChanges(ctx, "x", minutes))
	require.NoError(t, s.RecordChanges(ctx, "a", minutes))
}
