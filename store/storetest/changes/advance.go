package changes

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/kit"
)

// testAdvanceAgain: the watermark never goes back, and what was advanced is not advanced again.
func testAdvanceAgain(t *testing.T, s store.Store) {
	f := Begin(t, s)
	f.ping("alice", f.yellowAt(100))
	require.Equal(t, 1, f.advance(1000))
	f.Read()
	for _, after := range []lastseen.Instant{1000, 999, 50, -kit.Minute, -f.start, lastseen.MinInstant - f.start} {
		advance := f.advanceOnce(after)
		require.Zero(t, advance.Transitions)
		require.False(t, advance.Begun)
		require.False(t, advance.More)
		require.Equal(t, f.start+1000, advance.Watermark)
		require.Equal(t, f.start+1000, f.snapshot().Watermark)
		require.Equal(t, f.start+1000, f.readFrom(f.positions, 1).Watermark)
	}
	f.ping("bob", f.yellowAt(1000))
	f.ping("carol", f.yellowAt(1001))
	require.Equal(t, map[string][]store.Change{
		"bob":   {entry("bob", neverSeen(), isHere(f.yellowAt(1000), lastseen.Yellow))},
		"carol": {entry("carol", neverSeen(), isHere(f.yellowAt(1001), lastseen.Green))},
	}, byUser(f.Read()))
	require.Equal(t, 1, f.advance(1001))
}

// testAdvanceYellowBefore: users who were there before the feed began are published as they are then.
func testAdvanceYellowBefore(t *testing.T, s store.Store) {
	start := kit.Now(t, s)
	green, yellow, old := start, start.Add(-Normal.Yellow)+maxPlayed, start-60*kit.Minute
	for user, at := range map[string]lastseen.Instant{"green": green, "yellow": yellow, "old": old} {
		kit.Ping(t, s, user, at)
	}
	kit.Leave(t, s, "left", start)
	f := Begin(t, s)
	require.Equal(t, []store.Published{
		isHere(green, lastseen.Green), isHere(yellow, lastseen.Yellow), isHere(old, lastseen.Grey), hasLeft(start),
	}, f.snapshot("green", "yellow", "old", "left").Users)
	require.Equal(t, 1, f.advance(maxPlayed), "it was in time")
	f.requireEntries(entry("yellow", isHere(yellow, lastseen.Yellow), isHere(yellow, lastseen.Grey)))
}

// testAdvanceMany: about MaxAdvance users of each shard turn yellow in one call, and the rest in other calls, each user
// once.
func testAdvanceMany(t *testing.T, s store.Store) {
	f := Begin(t, s)
	n := tooManyFor(f)
	batch := make([]store.PresenceEvent, n)
	for i := range batch {
		at := f.yellowAt(1 + lastseen.Instant(i%100))
		batch[i] = store.PresenceEvent{User: fmt.Sprint("u", i), At: at}
	}
	sendAll(t, s, batch)
	f.Read()
	calls, transitions, last := 0, 0, f.start
	for more := true; more; calls++ {
		advance := f.advanceOnce(100)
		require.False(t, advance.Begun)
		require.LessOrEqual(t, advance.Transitions, store.MaxAdvance*len(f.positions))
		require.GreaterOrEqual(t, advance.Watermark, last)
		more, transitions, last = advance.More, transitions+advance.Transitions, advance.Watermark
		require.Less(t, calls, n)
		entries := f.Read()
		require.Len(t, entries, advance.Transitions)
	}
	require.Equal(t, f.start+100, last)
	require.Equal(t, n, transitions)
	require.GreaterOrEqual(t, calls, 2)
	for i, p := range f.snapshot("u0", "u99", fmt.Sprint("u", n-1)).Users {
		require.Equal(t, lastseen.Yellow, p.Status, i)
	}
	require.Zero(t, f.advance(101))
}

// tooManyFor returns a number of users that one call does not advance, unless they turn yellow, or what they say ends,
// in the same millisecond.
func tooManyFor(f *feed) int {
	return max(store.MaxAdvance, store.MaxEnds) * len(f.positions) * 3 / 2
}

// testAdvanceOneInstant: users who turn yellow or grey in the same millisecond are advanced together.
func testAdvanceOneInstant(t *testing.T, s store.Store) {
	f := Begin(t, s)
	n := store.MaxAdvanceInstant
	if len(f.positions) > 1 { // they are not all in one shard
		n = tooManyFor(f)
	}
	names := crowdAt(t, s, n, f.yellowAt(100))
	f.Read()
	f.ping("before", f.yellowAt(99))
	f.ping("after", f.yellowAt(101))
	transitions := 0
	for more := true; more; {
		advance := f.advanceOnce(101)
		require.False(t, advance.Begun)
		more, transitions = advance.More, transitions+advance.Transitions
		for _, user := range names[:5] {
			want := lastseen.Green
			snapshot := f.snapshot(user)
			if snapshot.Watermark >= f.start+100 {
				want = lastseen.Yellow
			}
			require.Equal(t, want, snapshot.Users[0].Status)
		}
	}
	require.Equal(t, n+2, transitions)
	got := byUser(f.Read())
	for _, user := range names {
		require.Len(t, got[user], 1)
	}
}

// crowdAt pings n users at a time and returns their names.
func crowdAt(t *testing.T, s store.Store, n int, at lastseen.Instant) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprint("u", i)
	}
	sendAll(t, s, kit.Events(at, names...))
	return names
}

// sendAll pings in calls of a size that every store takes.
func sendAll(t *testing.T, s store.Store, batch []store.PresenceEvent) {
	for part := range slices.Chunk(batch, 5000) {
		kit.Write(s.Ping).Send(t, kit.Namespace, part)
	}
}

// testAdvanceTooManyInOneInstant: the feed begins again, at a time that is past that instant, and goes on from there.
func testAdvanceTooManyInOneInstant(t *testing.T, s store.Store) {
	recordChanges(t, s, kit.Namespace, Normal)
	f := &feed{t: t, s: s, namespace: kit.Namespace, thresholds: Normal}
	read := f.readFrom(nil, 1)
	if f.start, f.positions = read.Watermark, read.Positions; len(f.positions) > 1 {
		t.Skip("it would need too many users in each shard")
	}
	turning := isHere(f.yellowAt(200), lastseen.Green)
	names := crowdAt(t, s, store.MaxAdvanceInstant+1, turning.At)
	end := f.readFrom(nil, 1).Positions
	require.Eventually(t, func() bool { return kit.Now(t, s) > f.start+200 }, time.Minute, time.Millisecond)
	begun, last := false, lastseen.Instant(0)
	for more := true; more; {
		advance := f.advanceOnce(201)
		require.GreaterOrEqual(t, advance.Watermark, last)
		begun, more, last = begun || advance.Begun, advance.More, advance.Watermark
	}
	require.True(t, begun)
	f.requireReset(f.positions, "the feed began again")
	f.positions = f.requireReset(end, "the feed began again")

	f.start = kit.Now(t, s) + playAhead
	require.Zero(t, f.advance(0), "they turned yellow before the feed began")
	turning.Status = lastseen.Yellow
	require.Equal(t, turning, f.published(names[0]))
	f.ping(names[0], f.start)
	f.requireEntries(entry(names[0], turning, isHere(f.start, lastseen.Green)))
}

// testAdvanceAhead: an advance is refused if its time is too far ahead of the store's clock.
func testAdvanceAhead(t *testing.T, s store.Store) {
	f := Begin(t, s)
	f.ping("alice", f.yellowAt(100))
	f.Read()
	for _, ahead := range []time.Duration{store.MaxAhead + 2*time.Second, time.Hour, 1 << 62} {
		advance := &store.ChangesAdvance{Namespace: kit.Namespace, Thresholds: Normal, Now: kit.Now(t, s).Add(ahead)}
		far := &store.ChangesAdvance{Namespace: kit.Namespace, Thresholds: Normal, Now: lastseen.MaxInstant}
		s.AdvanceChanges(context.Background(), []*store.ChangesAdvance{advance, far})
		require.ErrorIs(t, advance.Err, store.ErrClockMoved)
		require.ErrorIs(t, far.Err, store.ErrClockMoved)
		require.Equal(t, f.start, f.snapshot().Watermark)
	}
	f.requireEntries()
	require.Equal(t, 1, f.advance(100))
}

// testAdvanceOtherThresholds: thresholds of a feed stay, and a process with others waits until nobody uses them.
func testAdvanceOtherThresholds(t *testing.T, s store.Store) {
	f := Begin(t, s)
	f.ping("alice", f.yellowAt(100))
	f.Read()
	others := thresholds{Green: 20 * time.Second, Yellow: time.Minute}
	require.NoError(t, s.RecordChanges(context.Background(), kit.Namespace, others))
	advance := &store.ChangesAdvance{Namespace: kit.Namespace, Thresholds: others, Now: f.start + 1000}
	s.AdvanceChanges(context.Background(), []*store.ChangesAdvance{advance})
	require.NoError(t, advance.Err)
	require.False(t, advance.Begun)
	require.Zero(t, advance.Transitions)
	require.Equal(t, f.start, advance.Watermark)
	f.requireEntries()
	f.ping("bob", f.start.Add(-others.Yellow))
	require.Equal(t, []store.Change{
		entry("bob", neverSeen(), isHere(f.start.Add(-others.Yellow), lastseen.Yellow)),
	}, f.Read(), "judged by the feed's thresholds")
	require.Equal(t, 1, f.advance(100))
}

// testAdvanceLongThresholds: thresholds are up to ten years.
func testAdvanceLongThresholds(t *testing.T, s store.Store) {
	const most = lastseen.MaxDuration
	f := beginWith(t, s, kit.Namespace, thresholds{Green: most - 100*time.Millisecond, Yellow: most})
	at := f.yellowAt(50)
	f.ping("alice", at)
	f.ping("bob", lastseen.MinInstant)
	f.requireEntries(entry("alice", neverSeen(), isHere(at, lastseen.Green)))
	require.Equal(t, 1, f.advance(149))
	require.Equal(t, 1, f.advance(150))
	require.Equal(t, []store.Change{
		entry("alice", isHere(at, lastseen.Green), isHere(at, lastseen.Yellow)),
		entry("alice", isHere(at, lastseen.Yellow), isHere(at, lastseen.Grey)),
	}, f.Read())
}

// testAdvanceNamespaces: each of the advances of a call has its own result.
func testAdvanceNamespaces(t *testing.T, s store.Store) {
	var feeds []*feed
	var advances []*store.ChangesAdvance
	for i := range 20 {
		f := beginWith(t, s, fmt.Sprint("room", i), Normal)
		f.ping("alice", f.yellowAt(100))
		f.Read()
		feeds = append(feeds, f)
		advances = append(advances, &store.ChangesAdvance{
			Namespace: f.namespace, Thresholds: Normal, Now: f.start + 100,
		})
	}
	advances = append(advances, advances[3:6]...)
	advances[20] = &store.ChangesAdvance{Namespace: "unknown", Thresholds: Normal, Now: feeds[0].start}
	advances[21] = &store.ChangesAdvance{Namespace: "room0", Thresholds: Normal, Now: lastseen.MaxInstant}
	advances[22] = &store.ChangesAdvance{Namespace: "room1", Thresholds: Normal, Now: feeds[1].start + 100}
	s.AdvanceChanges(context.Background(), advances)
	require.ErrorIs(t, advances[20].Err, store.ErrNotRecorded)
	require.ErrorIs(t, advances[21].Err, store.ErrClockMoved)
	require.Equal(t, 1, advances[1].Transitions+advances[22].Transitions, "the same namespace twice")
	for i, f := range feeds {
		require.NoError(t, advances[i].Err)
		require.Equal(t, f.start+100, advances[i].Watermark)
		require.Len(t, f.Read(), 1)
	}
	s.AdvanceChanges(context.Background(), nil)
	s.ReadChanges(context.Background(), nil)
}

// testAdvanceTogether: of several advances at once, one appends a transition.
func testAdvanceTogether(t *testing.T, s store.Store) {
	const users, advancers = 200, 4
	f := Begin(t, s)
	for i := range users {
		f.ping(fmt.Sprint("u", i), f.yellowAt(lastseen.Instant(1+i)))
	}
	f.Read()
	var transitions atomic.Int64
	var wg sync.WaitGroup
	for range advancers {
		wg.Go(func() {
			for i := range lastseen.Instant(20) {
				advance := &store.ChangesAdvance{Namespace: kit.Namespace, Thresholds: Normal, Now: f.start + 10 + 10*i}
				s.AdvanceChanges(context.Background(), []*store.ChangesAdvance{advance})
				if advance.Err != nil {
					t.Error(advance.Err)
				}
				transitions.Add(int64(advance.Transitions))
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, users, transitions.Load())
	require.Len(t, byUser(f.Read()), users)
	require.Zero(t, f.advance(maxPlayed))
}
