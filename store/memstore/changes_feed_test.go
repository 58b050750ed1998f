package memstore

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/memstore/packed"
)

// TestFeedOfClockSetBack: an advance or a write restarts the feed, so that it does not stand still.
func TestFeedOfClockSetBack(t *testing.T) {
	t.Parallel()
	for _, by := range []string{"advance", "write"} {
		f := newFeedTest(t, false)
		begin := f.end()
		f.set(-time.Hour)
		now := f.Instant()
		if by == "advance" {
			require.True(t, f.advance(now).Begun)
		}
		ping(t, f.Store, "alice", now)
		r := f.after(begin)
		require.True(t, r.Reset)
		require.Equal(t, now, r.Watermark)
		begin = f.end()
		f.Passed.Add(time.Minute - store.MaxAhead) // an advance can be as far ahead as a write
		require.Equal(t, 1, f.advance(now.Add(time.Minute)).Transitions)
		require.Equal(t, []string{"alice green→yellow"}, f.texts(begin))
	}
}

// TestFeedBarelyAhead: advances and writes go on while the watermark is ahead by half the green threshold or 5 s.
func TestFeedBarelyAhead(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for green, ahead := range map[time.Duration]time.Duration{
		time.Second: 500 * time.Millisecond, time.Minute: store.MaxAhead,
	} {
		for _, more := range []time.Duration{0, time.Millisecond} {
			f := newFeedTest(t, false)
			require.NoError(t, f.DeleteNamespace(ctx, "chat"))
			th := lastseen.Thresholds{Green: green, Yellow: 5 * time.Minute}
			require.NoError(t, f.Register(ctx, []string{"chat"}))
			require.NoError(t, f.RecordChanges(ctx, "chat", th))
			f.tables.mu.Lock()
			f.tables.index.feed("chat").watermark = f.Instant().Add(ahead + more)
			f.tables.mu.Unlock()
			require.Equal(t, more > 0, f.advanceAs(th, f.Instant()).Begun)
		}
	}
}

// TestFeedOfOtherThresholds: the feed restarts with them when it has not been advanced for a while.
func TestFeedOfOtherThresholds(t *testing.T) {
	t.Parallel()
	f := newFeedTest(t, false)
	begun, begin := f.Instant(), f.end()
	others := lastseen.Thresholds{Green: 2 * time.Minute, Yellow: 3 * time.Minute}
	f.Passed.Add(store.AdvanceTakeoverOthers - time.Millisecond)
	w := f.advanceAs(others, f.Instant())
	require.NoError(t, w.Err)
	require.False(t, w.Begun)
	require.Equal(t, begun, w.Watermark)
	f.Passed.Add(time.Millisecond)
	w = f.advanceAs(others, f.Instant())
	require.True(t, w.Begun)
	require.Equal(t, f.Instant(), w.Watermark)
	require.True(t, f.after(begin).Reset)
	ping(t, f.Store, "alice", f.Instant())
	f.Passed.Add(time.Minute)
	require.Zero(t, f.advanceAs(others, f.Instant()).Transitions)
	f.Passed.Add(time.Minute)
	require.Equal(t, 1, f.advanceAs(others, f.Instant()).Transitions)
}

// TestFeedEnds by itself, however the clock is set.
func TestFeedEnds(t *testing.T) {
	t.Parallel()
	f := newFeedTest(t, false)
	ctx := context.Background()
	begin := f.end()
	f.set(20 * 365 * 24 * time.Hour)
	f.Passed.Add(store.ChangesKept - 20*time.Second - 1)
	require.NoError(t, f.after(begin).Err)
	f.Passed.Add(1)
	require.ErrorIs(t, f.after(begin).Err, store.ErrNotRecorded)
	_, err := f.SnapshotChanges(ctx, "chat", nil)
	require.ErrorIs(t, err, store.ErrNotRecorded)
	require.ErrorIs(t, f.advance(f.Instant()).Err, store.ErrNotRecorded)
	f.record()
	require.True(t, f.after(begin).Reset)
}

// TestExpiredFeedIsFreed: also if nobody asks for it.
func TestExpiredFeedIsFreed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, Options{})
		require.NoError(t, s.Register(context.Background(), []string{"chat", "other"}))
		for _, name := range []string{"chat", "other"} {
			require.NoError(t, s.RecordChanges(context.Background(), name, minutes))
		}
		ping(t, s, "alice", lastseen.InstantOf(time.Now()))
		time.Sleep(store.ChangesKept / 2)
		require.NoError(t, s.RecordChanges(context.Background(), "other", minutes))
		feeds := func() int {
			s.tables.mu.RLock()
			defer s.tables.mu.RUnlock()
			left := 0
			s.tables.index.namespaces.Scan(func(_ string, n *namespace) bool {
				if n.feed != nil {
					left++
				}
				return true
			})
			return left
		}
		time.Sleep(store.ChangesKept/2 - time.Second)
		require.Equal(t, 2, feeds())
		time.Sleep(expireEvery + time.Second)
		require.Equal(t, 1, feeds())
		s.tables.mu.RLock()
		n, _ := s.tables.index.namespaces.Get("chat")
		require.Nil(t, n.feed)
		s.tables.mu.RUnlock()
		time.Sleep(store.ChangesKept)
		require.Zero(t, feeds())
	})
}

// TestAdvanceSteps: a step ends between two instants, and has all users of one.
func TestAdvanceSteps(t *testing.T) {
	t.Parallel()
	f := newFeedTest(t, false)
	begun := f.Instant()
	f.fill("a", 600, begun)
	f.fill("b", 401, begun+1)
	f.fill("c", store.MaxAdvanceInstant, begun+2)
	f.fill("d", 1, begun+3)
	f.Passed.Add(2 * time.Minute)
	for _, want := range []store.ChangesAdvance{
		{Transitions: 600, More: true, Watermark: begun.Add(time.Minute), Lag: time.Minute},
		{Transitions: 401, More: true, Watermark: begun.Add(time.Minute) + 1, Lag: time.Minute - time.Millisecond},
		{
			Transitions: store.MaxAdvanceInstant, More: true,
			Watermark: begun.Add(time.Minute) + 2, Lag: time.Minute - 2*time.Millisecond,
		},
		{Transitions: 1, Watermark: f.Instant(), Lag: time.Minute - 3*time.Millisecond},
	} {
		want.Namespace, want.Thresholds, want.Now = "chat", minutes, f.Instant()
		require.Equal(t, want, *f.advance(f.Instant()))
	}
	f.fill("e", store.MaxAdvanceInstant+1, f.Instant())
	begin := f.end()
	f.pass(time.Hour)
	for w := f.advance(f.Instant()); ; w = f.advance(f.Instant()) {
		require.NoError(t, w.Err)
		if w.Begun {
			require.False(t, w.More)
			require.Equal(t, f.Instant(), w.Watermark)
			break
		}
		require.True(t, w.More)
	}
	require.True(t, f.after(begin).Reset)
	require.Empty(t, f.texts(f.end()))
}

// TestAdvanceOfBacklog: the feed restarts if there is more to append than could be kept. A user who turns yellow and
// grey counts twice, since the steps are short.
func TestAdvanceOfBacklog(t *testing.T) {
	testenv.SkipWithRace(t, "there is one goroutine")
	t.Parallel()
	users := newUsers()
	for i := range store.MaxChanges / 2 {
		users.set(strconv.Itoa(i), packed.Score(base)+packed.Score(i/100))
	}
	n := newNamespace(users)
	for _, fits := range []bool{true, false} {
		f := &feed{}
		f.begin(minutes, base.Add(time.Second))
		w := &store.ChangesAdvance{Now: base.Add(time.Hour)}
		require.Equal(t, fits, f.advance(n, w, w.Now, 0))
		require.Equal(t, fits, w.More)
		(&index{}).setIn(n, "one more", lastseen.State{At: base.Add(time.Minute)})
	}
}

// TestAdvanceNear1970: users who left are not taken for users who are present, when a threshold reaches before 1970.
func TestAdvanceNear1970(t *testing.T) {
	t.Parallel()
	users := newUsers()
	users.set("here", packed.ScoreOf(lastseen.State{At: 1}))
	users.set("left", packed.ScoreOf(lastseen.State{At: 1, Left: true}))
	f, n := &feed{}, newNamespace(users)
	f.begin(minutes, 2)
	for _, at := range []lastseen.Instant{60_001, 300_001} {
		w := &store.ChangesAdvance{Now: at}
		require.True(t, f.advance(n, w, at, 0))
		require.Equal(t, 1, w.Transitions)
	}
}
