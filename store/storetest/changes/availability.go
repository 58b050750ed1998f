package changes

import (
	"context"
	"testing"

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
