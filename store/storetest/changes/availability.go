package changes

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/availability"
	"github.com/lastseen/lastseen/store/storetest/devices"
	"github.com/lastseen/lastseen/store/storetest/kit"
)

// RunAvailability tests what changes feeds have of availability. Each subtest opens its own store. The
// model compares each entry after anything that users say, their idle times and their calls.
func RunAvailability(t *testing.T, open kit.Open) {
	t.Helper()
	kit.RunEach(t, open, kit.Cases{
		{"Availability/Notes", testChangesOfNotes},
		{"Invisible/Equal", testChangesOfInvisibleEqualLeft},
		{"Invisible/Until", testChangesOfHiddenEnds},
		{"Before", testAvailabilityBeforeFeed},
		{"Advance/Order", testAdvanceEndsInOrder},
		{"Advance/SameInstant", testAdvanceEndsAndTransitions},
		{"Advance/OneAdvance", testAdvanceEndsBetweenTransitions},
		{"Advance/Many", testAdvanceManyEnds},
		{"Advance/OneInstant", testAdvanceEndsOfOneInstant},
		{"Advance/Ahead", testAdvanceDeletesNothingAhead},
		{"Concurrent", testAvailabilityChangesConcurrent},
	})
	t.Run("Model", func(t *testing.T) {
		testChangesModel(t, func(t testing.TB) kit.Breakable { return kit.Breakable{Store: open(t), Talks: true} })
	})
}

// with returns a published presence with an availability.
func with(p store.Published, s lastseen.AvailabilityState) store.Published {
	p.Availability = s
	return p
}

// idleSince returns a published presence of a user who is idle.
func idleSince(p store.Published, at lastseen.Instant) store.Published {
	p.IdleSince = at
	return p
}

// setAvailability records a user's availability a minute before the feed began, so that it can end at any time of a
// test.
func (f *feed) setAvailability(user string, what lastseen.AvailabilityState) {
	availability.SetIn(f.t, f.s, f.namespace, user, what, f.start-kit.Minute)
}

// requireEntries checks the entries since the last read.
func (f *feed) requireEntries(want ...store.Change) {
	f.t.Helper()
	require.Equal(f.t, append([]store.Change{}, want...), append([]store.Change{}, f.Read()...))
}

// testChangesOfNotes: any note arrives as it was written.
func testChangesOfNotes(t *testing.T, s store.Store) {
	f := Begin(t, s)
	f.ping("alice", f.start)
	f.Read()
	was := isHere(f.start, lastseen.Green)
	for i, note := range availability.OddNotes() {
		is := with(was, availability.State(lastseen.Availabilities()[i%2], note))
		if i%3 == 0 {
			is.Availability.Until = f.start + kit.Minute
		}
		f.setAvailability("alice", is.Availability)
		f.requireEntries(entry("alice", was, is))
		require.Equal(t, is, f.published("alice"))
		was = is
	}
	ids := kit.OddIDs()
	for i, id := range ids {
		if i%2 == 0 {
			f.setAvailability(id, availability.Busy)
		}
		f.ping(id, f.start)
	}
	got := byUser(f.Read())
	for i, id := range ids {
		want := entry(id, neverSeen(), isHere(f.start, lastseen.Green))
		if i%2 == 0 {
			want = entry(id, with(neverSeen(), availability.Busy),
				with(isHere(f.start, lastseen.Green), availability.Busy))
		}
		require.Equal(t, want, got[id][len(got[id])-1], "%q", id)
	}
}

// testChangesOfInvisibleEqualLeft: the feed of a namespace in which users are invisible equals that of one in which
// they left, also after they were trimmed.
func testChangesOfInvisibleEqualLeft(t *testing.T, s store.Store) {
	visible, hidden := beginWith(t, s, availability.LeftNS, Normal), beginWith(t, s, availability.HiddenNS, Normal)
	hidden.start = visible.start + maxPlayed/2 // the same watermark for both
	visible.start = hidden.start
	both := []*feed{visible, hidden}
	requireEqual := func(why string) {
		require.Equal(t, byUser(visible.Read()), byUser(hidden.Read()), why)
		users := []string{"alice", "bob", "carol", "dave"}
		require.Equal(t, visible.snapshot(users...).Users, hidden.snapshot(users...).Users, why)
	}
	requireTrimmed := func(users int) {
		for _, f := range both {
			result := kit.Trim(t, s, f.namespace, kit.Base+kit.Minute, true)
			require.Equal(t, store.TrimResult{Deleted: users}, result, f.namespace)
		}
		requireEqual("trimmed")
	}
	for _, f := range both {
		f.advance(0)
		f.ping("carol", kit.Base-10)
		f.setAvailability("bob", availability.Busy)
		f.device(availability.IdleAt("alice", "a", f.start-100))
		f.setAvailability("alice", availability.Until(f.start+500, availability.Busy))
		f.ping("bob", f.yellowAt(500))
	}
	requireEqual("present")
	visible.leave("alice", visible.start-50)
	availability.SetIn(t, s, availability.HiddenNS, "alice",
		availability.Until(hidden.start+300, availability.Invisible), hidden.start-50)
	for _, user := range []string{"carol", "dave"} { // the second one was never seen
		visible.leave(user, kit.Base)
		availability.SetIn(t, s, availability.HiddenNS, user, availability.Invisible, kit.Base)
	}
	requireEqual("gone")
	for _, after := range []lastseen.Instant{0, 299, 301, 500, 600} {
		for _, f := range both {
			f.advance(after)
		}
		requireEqual("advanced")
		if kit.Now(t, s) < hidden.start+290 {
			hidden.ping("alice", hidden.start+200)
			hidden.device(devices.On("alice", "b", hidden.start), availability.IdleAt("alice", "a", hidden.start+1))
			requireEqual("pinged")
		}
		if after == 299 {
			requireTrimmed(2)
		}
		hidden.goOn("carol", "dave") // also after they were deleted
		requireEqual("pinged by those who are hidden without an end")
	}
	requireTrimmed(0)
	for _, f := range both {
		availability.SetIn(t, s, f.namespace, "alice", availability.Away, kit.Now(t, s))
		availability.SetIn(t, s, f.namespace, "carol", availability.Away, kit.Now(t, s))
		require.NoError(t, s.Forget(context.Background(), f.namespace, "bob"))
		require.NoError(t, s.Forget(context.Background(), f.namespace, "dave"))
	}
	requireEqual("visible again")
	for _, f := range both {
		require.NoError(t, s.Forget(context.Background(), f.namespace, "alice"))
		f.ping("alice", f.start)
	}
	requireEqual("forgotten")
}

// goOn asserts for users who are invisible from base on.
func (f *feed) goOn(users ...string) {
	for _, user := range users {
		f.ping(user, f.start)
		f.leave(user, kit.Base+2*kit.Minute)
		f.device(devices.On(user, "a", f.start), availability.IdleAt(user, "b", kit.Base))
	}
}

// testChangesOfHiddenEnds: the end of a hidden time is in no entry.
func testChangesOfHiddenEnds(t *testing.T, s store.Store) {
	f := Begin(t, s)
	f.ping("alice", f.start-2*kit.Minute)
	f.Read()
	f.setAvailability("alice", availability.Until(f.start+100, availability.Invisible))
	f.Read()
	require.Zero(t, f.advance(200))
	f.requireEntries()
	require.Equal(t, hasLeft(f.start-kit.Minute), f.published("alice"))

	past := f.start - kit.Minute/2
	f.setAvailability("bob", availability.Until(past, availability.Invisible))
	f.requireEntries(entry("bob", neverSeen(), hasLeft(f.start-kit.Minute)))
	f.ping("bob", past-1)
	f.requireEntries()
	f.ping("bob", past)
	f.requireEntries(entry("bob", hasLeft(f.start-kit.Minute), isHere(past, lastseen.Yellow)))
}

// testAdvanceEndsInOrder: one advance appends ends and transitions in the order of their instants.
func testAdvanceEndsInOrder(t *testing.T, s store.Store) {
	f := Begin(t, s)
	order := []string{"end 10", "transition 20", "end 30", "grey 40", "end 50", "transition 60"}
	f.setAvailability(order[0], availability.Until(f.start+10, availability.Busy))
	f.ping(order[1], f.yellowAt(20))
	f.setAvailability(order[2], availability.Until(f.start+30, availability.State("", "a note")))
	f.ping(order[3], f.greyAt(40))
	f.ping(order[4], f.start)
	f.setAvailability(order[4], availability.Until(f.start+50, availability.Busy))
	f.ping(order[5], f.yellowAt(60))
	f.setAvailability(order[5], availability.Busy)
	f.Read()
	positions := f.positions
	require.Equal(t, len(order), f.advance(100))
	entries, end := f.all(positions, 10)
	f.positions = end
	for shard, part := range byShard(entries) {
		names := []string{}
		for _, c := range part {
			names = append(names, c.User)
		}
		want := slices.DeleteFunc(slices.Clone(order), func(user string) bool { return !slices.Contains(names, user) })
		require.Equal(t, want, names, "shard %d", shard)
	}
	require.Len(t, entries, len(order))
}

// testAdvanceEndsAndTransitions: a user whose availability ends in the millisecond of a transition has one entry.
func testAdvanceEndsAndTransitions(t *testing.T, s store.Store) {
	f := Begin(t, s)
	ends := availability.Until(f.start+100, availability.Busy)
	yellow, grey := f.yellowAt(100), f.greyAt(100)
	f.device(availability.IdleAt("yellow", "a", yellow), availability.IdleAt("grey", "a", grey))
	for _, user := range []string{"yellow", "grey"} {
		f.setAvailability(user, ends)
	}
	f.ping("other", yellow)
	f.Read()
	require.Zero(t, f.advance(99))
	require.Equal(t, 3, f.advance(100))
	require.Equal(t, map[string][]store.Change{
		"yellow": {entry("yellow",
			with(idleSince(isHere(yellow, lastseen.Green), yellow-10), ends),
			idleSince(isHere(yellow, lastseen.Yellow), yellow-10))},
		"grey": {entry("grey",
			with(idleSince(isHere(grey, lastseen.Yellow), grey-10), ends), isHere(grey, lastseen.Grey))},
		"other": {entry("other", isHere(yellow, lastseen.Green), isHere(yellow, lastseen.Yellow))},
	}, byUser(f.Read()))

	advance := f.advanceOnce(maxPlayed)
	require.Zero(t, advance.Transitions)
	require.Zero(t, advance.Lag)
}

// testAdvanceEndsBetweenTransitions: what one advance appends of a user continues from what was published, up to what
// is.
func testAdvanceEndsBetweenTransitions(t *testing.T, s store.Store) {
	f := beginWith(t, s, kit.Namespace,
		thresholds{Green: 30 * time.Second, Yellow: 30*time.Second + 100*time.Millisecond})
	was := map[string]store.Published{}
	for _, end := range []lastseen.Instant{50, 99, 100, 101, 150, 199, 200, 201, 250} {
		user := fmt.Sprint("ends ", int(end))
		at := f.yellowAt(100) // and grey 100 ms later
		f.device(availability.IdleAt(user, "a", at))
		f.setAvailability(user, availability.Until(f.start+end, availability.Busy))
		was[user] = with(idleSince(isHere(at, lastseen.Green), at-10),
			availability.Until(f.start+end, availability.Busy))
		require.Equal(t, was[user], f.published(user))
	}
	f.Read()
	transitions := f.advance(300)
	entries := f.Read()
	require.Len(t, entries, transitions)
	for user, chain := range byUser(entries) {
		requireChain(t, was[user], chain)
		require.LessOrEqual(t, len(chain), 3, "%+v", chain)
		last := chain[len(chain)-1].Published
		require.Equal(t, isHere(was[user].At, lastseen.Grey), last, user)
		require.Equal(t, last, f.published(user))
		delete(was, user)
	}
	require.Empty(t, was, "users without an entry")
}

// testAdvanceManyEnds: one call ends what about MaxEnds users of each shard say; other calls end the rest, each once.
func testAdvanceManyEnds(t *testing.T, s store.Store) {
	f := Begin(t, s)
	n := tooManyFor(f)
	for i := range n {
		f.setAvailability(fmt.Sprint("u", i), availability.Until(f.start+1+lastseen.Instant(i%100), availability.Busy))
	}
	f.Read()
	calls, ends, last := 0, 0, f.start
	for more := true; more; calls++ {
		advance := f.advanceOnce(100)
		require.False(t, advance.Begun)
		require.LessOrEqual(t, advance.Transitions, store.MaxEnds*len(f.positions))
		require.GreaterOrEqual(t, advance.Watermark, last)
		more, ends, last = advance.More, ends+advance.Transitions, advance.Watermark
		require.Less(t, calls, n)
		require.Len(t, f.Read(), advance.Transitions)
		for i, p := range f.snapshot("u0", "u50", "u99").Users {
			end := f.start + 1 + []lastseen.Instant{0, 50, 99}[i]
			if len(f.positions) == 1 {
				require.Equal(t, end <= last, p.Availability == availability.Nothing, "it ends with the watermark")
			}
		}
	}
	require.Equal(t, f.start+100, last)
	require.Equal(t, n, ends)
	require.GreaterOrEqual(t, calls, 2)
	require.Zero(t, f.advance(101))
}

// testAdvanceEndsOfOneInstant: what ends in the same millisecond ends together.
func testAdvanceEndsOfOneInstant(t *testing.T, s store.Store) {
	f := Begin(t, s)
	n := tooManyFor(f)
	for i := range n {
		f.setAvailability(fmt.Sprint("u", i), availability.Until(f.start+100, availability.Busy))
	}
	f.setAvailability("before", availability.Until(f.start+99, availability.Busy))
	f.setAvailability("after", availability.Until(f.start+101, availability.Busy))
	f.Read()
	ends := 0
	for more := true; more; {
		advance := f.advanceOnce(101)
		require.False(t, advance.Begun)
		more, ends = advance.More, ends+advance.Transitions
		snapshot := f.snapshot("u0", "u1", "u2")
		for _, p := range snapshot.Users {
			if len(f.positions) == 1 {
				require.Equal(t, snapshot.Watermark >= f.start+100, p.Availability == availability.Nothing)
			}
		}
	}
	require.Equal(t, n+2, ends)
	for user, entries := range byUser(f.Read()) {
		require.Len(t, entries, 1, user)
	}
}

// testAdvanceDeletesNothingAhead: an advance that is ahead of the store's clock ends availability in the feed alone.
func testAdvanceDeletesNothingAhead(t *testing.T, s store.Store) {
	f := Begin(t, s)
	ends := availability.Until(f.start+maxPlayed-100, availability.Busy)
	f.setAvailability("alice", ends)
	f.Read()
	require.Equal(t, 1, f.advance(maxPlayed))
	availabilityOf := availability.Get(t, s, "alice", f.start)
	_, described, err := s.Describe(t.Context(), kit.Namespace, []string{"alice"})
	require.NoError(t, err)
	if kit.Now(t, s) < ends.Until {
		require.Equal(t, ends, availabilityOf)
		require.Equal(t, map[string]store.Details{"alice": {Availability: ends}}, described)
	}
	require.Equal(t, neverSeen(), f.published("alice"))
}

// testAvailabilityBeforeFeed: a feed publishes the availability before it began, and what ended before is in no entry.
func testAvailabilityBeforeFeed(t *testing.T, s store.Store) {
	start := kit.Now(t, s)
	soon, hour := availability.Until(start+playAhead+maxPlayed/2+1000,
		availability.Busy), availability.Until(start+60*kit.Minute, availability.Away)
	kit.Ping(t, s, "ended", start)
	availability.SetAt(t, s, "ended", availability.Until(start-30*kit.Minute, availability.Busy), start-60*kit.Minute)
	availability.SetAt(t, s, "soon", soon, start)
	availability.SetAt(t, s, "hour", hour, start)
	availability.SetAt(t, s, "hidden", availability.Until(soon.Until, availability.Invisible), start)
	devices.Record(t, s, availability.IdleAt("idle", "a", start))
	f := Begin(t, s)
	require.Equal(t, []store.Published{
		isHere(start, lastseen.Green), with(neverSeen(), hour), hasLeft(start),
		idleSince(isHere(start, lastseen.Green), start-10),
	}, f.snapshot("ended", "hour", "hidden", "idle").Users)
	if f.start < soon.Until {
		require.Equal(t, with(neverSeen(), soon), f.published("soon"))
		require.Equal(t, 1, f.advance(maxPlayed))
		f.requireEntries(entry("soon", with(neverSeen(), soon), neverSeen()))
	}
	f.ping("ended", start-1)
	f.setAvailability("hour", availability.Busy)
	f.requireEntries(entry("hour", with(neverSeen(), hour), with(neverSeen(), availability.Busy)))
}
