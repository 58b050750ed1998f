package filestore

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// TestSweep: each decay is in the feed once, in the order of the instants.
func TestSweep(t *testing.T) {
	t.Parallel()
	f := newFeedTest(t, time.Hour)
	begun := f.time()
	ping(t, f.Store, "alice", begun)
	ping(t, f.Store, "bob", begun.Add(-30*time.Second))
	ping(t, f.Store, "yellow", begun.Add(-2*time.Minute))
	f.leave("gone", begun)
	begin := f.end()
	f.passed.add(30 * time.Second)
	w := f.sweep(f.time() - 1)
	require.Zero(t, w.Decays)
	require.Equal(t, f.time()-1, w.Watermark)
	w = f.sweep(f.time())
	require.Equal(t, 1, w.Decays)
	require.Zero(t, w.Lag)
	f.passed.add(31 * time.Second)
	w = f.sweep(f.time())
	require.Equal(t, 1, w.Decays)
	require.Equal(t, time.Second, w.Lag)
	ping(t, f.Store, "bob", f.time())
	f.pass(8 * time.Minute)
	require.Equal(t, 3, f.sweep(f.time()).Decays)
	require.Zero(t, f.sweep(f.time()).Decays)
	require.Equal(t, []string{
		"bob green→yellow", "alice green→yellow", "bob yellow→green",
		"yellow yellow→grey", "alice yellow→grey", "bob green→grey",
	}, f.texts(begin))
	require.Equal(t, f.time(), f.sweep(f.time()-1).Watermark, "the watermark does not go back")
}

// TestSweepSteps: a step ends between two instants, and has all users of one.
func TestSweepSteps(t *testing.T) {
	t.Parallel()
	f := newFeedTest(t, time.Hour)
	begun := f.time()
	f.fill("a", 600, begun)
	f.fill("b", 401, begun+1)
	f.fill("c", store.MaxSweepInstant, begun+2)
	f.fill("d", 1, begun+3)
	f.passed.add(2 * time.Minute)
	for _, want := range []store.ChangesSweep{
		{Decays: 600, More: true, Watermark: begun.Add(time.Minute), Lag: time.Minute},
		{Decays: 401, More: true, Watermark: begun.Add(time.Minute) + 1, Lag: time.Minute - time.Millisecond},
		{
			Decays: store.MaxSweepInstant, More: true,
			Watermark: begun.Add(time.Minute) + 2, Lag: time.Minute - 2*time.Millisecond,
		},
		{Decays: 1, Watermark: f.time(), Lag: time.Minute - 3*time.Millisecond},
	} {
		want.Namespace, want.Thresholds, want.Now = "chat", minutes, f.time()
		require.Equal(t, want, *f.sweep(f.time()))
	}
	f.fill("e", store.MaxSweepInstant+1, f.time())
	begin := f.end()
	f.pass(time.Hour)
	for w := f.sweep(f.time()); ; w = f.sweep(f.time()) {
		require.NoError(t, w.Err)
		if w.Begun {
			require.False(t, w.More)
			require.Equal(t, f.time(), w.Watermark)
			break
		}
		require.True(t, w.More)
	}
	require.True(t, f.after(begin).Reset)
	require.Empty(t, f.texts(f.end()))
}

// TestSweepOfBacklog: the feed restarts if there is more to append than could be kept. A user who decays twice
// counts twice, since the steps are short.
func TestSweepOfBacklog(t *testing.T) {
	t.Parallel()
	users := newUsers()
	for i := range store.MaxChanges / 2 {
		users.set(strconv.Itoa(i), score(base)+score(i/100))
	}
	n := newNamespace(users)
	for _, fits := range []bool{true, false} {
		f := &feed{}
		f.begin(minutes, base.Add(time.Second))
		w := &store.ChangesSweep{Now: base.Add(time.Hour)}
		require.Equal(t, fits, f.sweep(n, w, w.Now, 0))
		require.Equal(t, fits, w.More)
		n.set("one more", lastseen.State{At: base.Add(time.Minute)})
	}
}

// TestSweepNear1970: users who left are not taken for users who are present, when a threshold reaches before 1970.
func TestSweepNear1970(t *testing.T) {
	t.Parallel()
	users := newUsers()
	users.set("here", scoreOf(lastseen.State{At: 1}))
	users.set("left", scoreOf(lastseen.State{At: 1, Left: true}))
	f, n := &feed{}, newNamespace(users)
	f.begin(minutes, 2)
	for _, at := range []lastseen.Instant{60_001, 300_001} {
		w := &store.ChangesSweep{Now: at}
		require.True(t, f.sweep(n, w, at, 0))
		require.Equal(t, 1, w.Decays)
	}
}

// TestSweepRefused: a sweep of the future changes nothing.
func TestSweepRefused(t *testing.T) {
	t.Parallel()
	f := newFeedTest(t, time.Hour)
	w := f.sweep(f.time().Add(store.MaxAhead) + 1)
	require.ErrorIs(t, w.Err, store.ErrClockMoved)
	require.Equal(t, f.time(), f.after(nil).Watermark)
	w = f.sweep(f.time().Add(store.MaxAhead))
	require.NoError(t, w.Err)
	require.Equal(t, f.time().Add(store.MaxAhead), w.Watermark)
	w = &store.ChangesSweep{Namespace: "other", Thresholds: minutes, Now: f.time()}
	f.SweepChanges(context.Background(), []*store.ChangesSweep{w})
	require.ErrorIs(t, w.Err, store.ErrNotRecorded)
}
