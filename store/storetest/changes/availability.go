package changes

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/availability"
	"github.com/lastseen/lastseen/store/storetest/devices"
	"github.com/lastseen/lastseen/store/storetest/kit"
)

// RunAvailability tests what changes feeds have of availability. Each subtest opens a store of its own.
func RunAvailability(t *testing.T, open kit.Open) {
	t.Helper()
	kit.RunEach(t, open, kit.Cases{
		{"Said", testChangesOfSaid},
		{"Said/NeverSeen", testChangesOfSaidNeverSeen},
		{"Said/Notes", testChangesOfNotes},
		{"Idle", testChangesOfIdle},
		{"Invisible/Equal", testChangesOfInvisibleEqualLeft},
		{"Invisible/Until", testChangesOfHiddenEnds},
		{"Before", testSaidBeforeFeed},
		{"Sweep", testSweepEnds},
		{"Sweep/Order", testSweepEndsInOrder},
		{"Sweep/SameInstant", testSweepEndsAndDecays},
		{"Sweep/OneSweep", testSweepEndsBetweenDecays},
		{"Sweep/Many", testSweepManyEnds},
		{"Sweep/OneInstant", testSweepEndsOfOneInstant},
		{"Sweep/Ahead", testSweepDeletesNothingAhead},
		{"Delete", testDeleteEndsSaid},
		{"Concurrent", testSaidChangesConcurrent},
	})
	t.Run("Model", func(t *testing.T) {
		testChangesModel(t, func(t testing.TB) kit.Breakable { return kit.Breakable{Store: open(t), Talks: true} })
	})
}

// with returns a published presence with what is said.
func with(p store.Published, s lastseen.Said) store.Published {
	p.Said = s
	return p
}

// idleSince returns a published presence of a user who is idle.
func idleSince(p store.Published, at lastseen.Instant) store.Published {
	p.IdleSince = at
	return p
}

// say records what a user says a minute before the feed began, so that it can end at any time of a test.
func (f *feed) say(user string, what lastseen.Said) {
	availability.SayIn(f.t, f.s, f.namespace, user, what, f.start-kit.Minute)
}

// requireEntries checks the entries since the last read.
func (f *feed) requireEntries(want ...store.Change) {
	f.t.Helper()
	require.Equal(f.t, append([]store.Change{}, want...), append([]store.Change{}, f.Read()...))
}

// testChangesOfSaid: saying something else appends an entry with all that is published, and what was published before.
func testChangesOfSaid(t *testing.T, s store.Store) {
	f := Begin(t, s)
	f.ping("alice", f.start)
	f.Read()
	was := isHere(f.start, lastseen.Green)
	for _, what := range []lastseen.Said{
		availability.Busy, availability.Said(lastseen.Busy, "another note"), availability.Said("",
			"a note alone"), availability.Away, availability.Until(f.start+kit.Minute, availability.Away),
		availability.Until(f.start+2*kit.Minute, availability.Away), availability.Nothing,
	} {
		is := with(was, what)
		f.say("alice", what)
		f.requireEntries(entry("alice", was, is))
		require.Equal(t, is, f.published("alice"))
		f.say("alice", what)
		f.requireEntries()
		was = is
	}
}

// testChangesOfSaidNeverSeen: what a user says who was never seen is a change.
func testChangesOfSaidNeverSeen(t *testing.T, s store.Store) {
	f := Begin(t, s)
	f.say("alice", availability.Busy)
	f.requireEntries(entry("alice", neverSeen(), with(neverSeen(), availability.Busy)))
	require.Equal(t, with(neverSeen(), availability.Busy), f.published("alice"))
	f.ping("alice", f.start)
	f.requireEntries(entry("alice", with(neverSeen(), availability.Busy),
		with(isHere(f.start, lastseen.Green), availability.Busy)))

	f.say("bob", availability.Busy)
	f.Read()
	f.leave("bob", f.start)
	f.requireEntries(entry("bob", with(neverSeen(), availability.Busy), with(hasLeft(f.start), availability.Busy)))
	f.say("bob", availability.Away)
	f.requireEntries(entry("bob", with(hasLeft(f.start), availability.Busy), with(hasLeft(f.start), availability.Away)))
	f.say("carol", availability.Nothing)
	f.requireEntries()
}

// testChangesOfNotes: any note arrives as it was written.
func testChangesOfNotes(t *testing.T, s store.Store) {
	f := Begin(t, s)
	f.ping("alice", f.start)
	f.Read()
	was := isHere(f.start, lastseen.Green)
	for i, note := range availability.OddNotes() {
		is := with(was, availability.Said(lastseen.Availabilities()[i%2], note))
		if i%3 == 0 {
			is.Said.Until = f.start + kit.Minute
		}
		f.say("alice", is.Said)
		f.requireEntries(entry("alice", was, is))
		require.Equal(t, is, f.published("alice"))
		was = is
	}
	ids := kit.OddIDs()
	for i, id := range ids {
		if i%2 == 0 {
			f.say(id, availability.Busy)
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

// testChangesOfIdle: becoming idle, and not idle, is a change.
func testChangesOfIdle(t *testing.T, s store.Store) {
	f := Begin(t, s)
	at, green := f.start, isHere(f.start, lastseen.Green)
	f.device(availability.IdleAt("alice", "a", at))
	f.requireEntries(entry("alice", neverSeen(), idleSince(green, at-10)))
	require.Equal(t, idleSince(green, at-10), f.published("alice"))
	f.device(availability.IdleAt("alice", "a", at+1))
	f.requireEntries()
	idle, later := idleSince(isHere(at+1, lastseen.Green), at-10), isHere(at+2, lastseen.Green)
	f.device(devices.On("alice", "b", at+2))
	f.requireEntries(entry("alice", idle, later))
	f.device(availability.IdleAt("alice", "b", at+20))
	f.requireEntries(entry("alice", later, idleSince(isHere(at+20, lastseen.Green), at+10)))
	f.device(devices.Bye("alice", "b", at+21))
	f.requireEntries(entry("alice",
		idleSince(isHere(at+20, lastseen.Green), at+10), idleSince(isHere(at+21, lastseen.Green), at-10)))
	f.say("alice", availability.Busy)
	was := with(idleSince(isHere(at+21, lastseen.Green), at-10), availability.Busy)
	f.requireEntries(entry("alice", idleSince(isHere(at+21, lastseen.Green), at-10), was))
	f.device(devices.On("alice", "a", at+22))
	f.requireEntries(entry("alice", was, with(isHere(at+22, lastseen.Green), availability.Busy)))
	f.device(availability.IdleAt("alice", "a", at+40))
	f.Read()
	f.leave("alice", at+41)
	f.requireEntries(entry("alice",
		with(idleSince(isHere(at+40, lastseen.Green), at+30), availability.Busy), with(hasLeft(at+41),
			availability.Busy)))
}
