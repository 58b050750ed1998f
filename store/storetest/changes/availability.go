package changes

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/availability"
	"github.com/lastseen/lastseen/store/storetest/kit"
)

// RunAvailability tests what changes feeds have of availability. Each subtest opens a store of its own. The
// model compares each entry after anything that users say, their idle times and their calls.
func RunAvailability(t *testing.T, open kit.Open) {
	t.Helper()
	kit.RunEach(t, open, kit.Cases{
		{"Said/Notes", testChangesOfNotes},
		{"Invisible/Equal", testChangesOfInvisibleEqualLeft},
		{"Invisible/Until", testChangesOfHiddenEnds},
		{"Before", testSaidBeforeFeed},
		{"Sweep/Order", testSweepEndsInOrder},
		{"Sweep/SameInstant", testSweepEndsAndDecays},
		{"Sweep/OneSweep", testSweepEndsBetweenDecays},
		{"Sweep/Many", testSweepManyEnds},
		{"Sweep/OneInstant", testSweepEndsOfOneInstant},
		{"Sweep/Ahead", testSweepDeletesNothingAhead},
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
