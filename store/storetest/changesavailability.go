package storetest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// RunChangesOfAvailability tests what changes feeds have of availability. Each subtest opens a store of its own.
func RunChangesOfAvailability(t *testing.T, open Open) {
	t.Helper()
	suite := []struct {
		name string
		test func(*testing.T, store.Store)
	}{
		{"Said", testChangesOfSaid},
		{"Said/NeverSeen", testChangesOfSaidNeverSeen},
		{"Said/AtWatermark", testChangesOfSaidAtWatermark},
		{"Said/Notes", testChangesOfNotes},
		{"Said/WithWrites", testChangesKeepSaid},
		{"Idle", testChangesOfIdle},
		{"Idle/Decay", testChangesOfIdleDecays},
		{"Idle/Back", testChangesOfIdleBack},
		{"Invisible", testChangesOfInvisible},
		{"Invisible/Equal", testChangesOfInvisibleEqualLeft},
		{"Invisible/Until", testChangesOfHiddenEnds},
		{"Invisible/Visible", testChangesOfVisibleAgain},
		{"Forget", testChangesOfSaidForget},
		{"Trim", testChangesOfSaidTrim},
		{"Snapshot", testSnapshotOfSaid},
		{"Before", testSaidBeforeFeed},
		{"Sweep", testSweepEnds},
		{"Sweep/Replaced", testSweepEndsReplaced},
		{"Sweep/Order", testSweepEndsInOrder},
		{"Sweep/SameInstant", testSweepEndsAndDecays},
		{"Sweep/OneSweep", testSweepEndsBetweenDecays},
		{"Sweep/Many", testSweepManyEnds},
		{"Sweep/OneInstant", testSweepEndsOfOneInstant},
		{"Sweep/Ahead", testSweepDeletesNothingAhead},
		{"Delete", testDeleteEndsSaid},
		{"Concurrent", testSaidChangesConcurrent},
	}
	for _, c := range suite {
		t.Run(c.name, func(t *testing.T) { c.test(t, open(t)) })
	}
	t.Run("Model", func(t *testing.T) {
		testChangesModel(t, func(t testing.TB) Breakable { return Breakable{Store: open(t), Talks: true} })
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
	sayIn(f.t, f.s, f.namespace, user, what, f.start-minute)
}

// requireEntries checks the entries since the last read.
func (f *feed) requireEntries(want ...store.Change) {
	f.t.Helper()
	require.Equal(f.t, append([]store.Change{}, want...), append([]store.Change{}, f.read()...))
}

// testChangesOfSaid: saying something else appends an entry with all that is published, and what was published before.
func testChangesOfSaid(t *testing.T, s store.Store) {
	f := begin(t, s)
	f.ping("alice", f.start)
	f.read()
	was := isHere(f.start, lastseen.Green)
	for _, what := range []lastseen.Said{
		busy, said(lastseen.Busy, "another note"), said("", "a note alone"), away, until(f.start+minute, away),
		until(f.start+2*minute, away), nothing,
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

// testChangesOfSaidNeverSeen: what a user says who was never seen is a change, and a leave of that user is none.
func testChangesOfSaidNeverSeen(t *testing.T, s store.Store) {
	f := begin(t, s)
	f.say("alice", busy)
	f.requireEntries(entry("alice", neverSeen(), with(neverSeen(), busy)))
	require.Equal(t, with(neverSeen(), busy), f.published("alice"))
	f.ping("alice", f.start)
	f.requireEntries(entry("alice", with(neverSeen(), busy), with(isHere(f.start, lastseen.Green), busy)))

	f.say("bob", busy)
	f.read()
	f.leave("bob", f.start)
	f.requireEntries()
	f.say("bob", away)
	f.requireEntries(entry("bob", with(hasLeft(f.start), busy), with(hasLeft(f.start), away)))
	f.say("carol", nothing)
	f.requireEntries()
}

// testChangesOfSaidAtWatermark: what is said is published as of the watermark.
func testChangesOfSaidAtWatermark(t *testing.T, s store.Store) {
	f := begin(t, s)
	for _, end := range []lastseen.Instant{f.start - minute + 1, f.start - 1, f.start} {
		f.say("alice", until(end, busy))
		f.requireEntries()
		require.Equal(t, neverSeen(), f.published("alice"), "it has ended")
	}
	f.say("alice", until(f.start+1, busy))
	f.requireEntries(entry("alice", neverSeen(), with(neverSeen(), until(f.start+1, busy))))
	f.say("alice", until(f.start, away))
	f.requireEntries(entry("alice", with(neverSeen(), until(f.start+1, busy)), neverSeen()))
	require.Zero(t, f.sweep(100))
	f.requireEntries()
}

// testChangesOfNotes: any note arrives as it was written.
func testChangesOfNotes(t *testing.T, s store.Store) {
	f := begin(t, s)
	f.ping("alice", f.start)
	f.read()
	was := isHere(f.start, lastseen.Green)
	for i, note := range oddNotes() {
		is := with(was, said(lastseen.Availabilities()[i%2], note))
		if i%3 == 0 {
			is.Said.Until = f.start + minute
		}
		f.say("alice", is.Said)
		f.requireEntries(entry("alice", was, is))
		require.Equal(t, is, f.published("alice"))
		was = is
	}
	ids := oddIDs()
	for i, id := range ids {
		if i%2 == 0 {
			f.say(id, busy)
		}
		f.ping(id, f.start)
	}
	got := byUser(f.read())
	for i, id := range ids {
		want := entry(id, neverSeen(), isHere(f.start, lastseen.Green))
		if i%2 == 0 {
			want = entry(id, with(neverSeen(), busy), with(isHere(f.start, lastseen.Green), busy))
		}
		require.Equal(t, want, got[id][len(got[id])-1], "%q", id)
	}
}

// testChangesKeepSaid: entries of pings, leaves, devices and decays have what the user says.
func testChangesKeepSaid(t *testing.T, s store.Store) {
	f := begin(t, s)
	f.say("alice", busy)
	f.read()
	decays := f.decaysYellow(100)
	f.ping("alice", decays)
	f.requireEntries(entry("alice", with(neverSeen(), busy), with(isHere(decays, lastseen.Green), busy)))
	require.Equal(t, 1, f.sweep(100))
	f.requireEntries(
		entry("alice", with(isHere(decays, lastseen.Green), busy), with(isHere(decays, lastseen.Yellow), busy)))
	f.device(on("alice", "a", f.start))
	f.requireEntries(
		entry("alice", with(isHere(decays, lastseen.Yellow), busy), with(isHere(f.start, lastseen.Green), busy)))
	f.device(on("alice", "a", f.start+1))
	f.ping("alice", f.start+1)
	f.requireEntries()
	f.device(bye("alice", "a", f.start+2))
	f.requireEntries(
		entry("alice", with(isHere(f.start+1, lastseen.Green), busy), with(hasLeft(f.start+2), busy)))
	write(s.Ping).in(t, ns, f.start+3, "bob", "alice", "carol")
	require.Equal(t, map[string][]store.Change{
		"alice": {entry("alice", with(hasLeft(f.start+2), busy), with(isHere(f.start+3, lastseen.Green), busy))},
		"bob":   {entry("bob", neverSeen(), isHere(f.start+3, lastseen.Green))},
		"carol": {entry("carol", neverSeen(), isHere(f.start+3, lastseen.Green))},
	}, byUser(f.read()))
	f.leave("alice", f.start+4)
	f.requireEntries(
		entry("alice", with(isHere(f.start+3, lastseen.Green), busy), with(hasLeft(f.start+4), busy)))
}

// testChangesOfIdle: becoming idle, and not idle, is a change.
func testChangesOfIdle(t *testing.T, s store.Store) {
	f := begin(t, s)
	at, green := f.start, isHere(f.start, lastseen.Green)
	f.device(idleAt("alice", "a", at))
	f.requireEntries(entry("alice", neverSeen(), idleSince(green, at-10)))
	require.Equal(t, idleSince(green, at-10), f.published("alice"))
	f.device(idleAt("alice", "a", at+1))
	f.requireEntries()
	idle, later := idleSince(isHere(at+1, lastseen.Green), at-10), isHere(at+2, lastseen.Green)
	f.device(on("alice", "b", at+2))
	f.requireEntries(entry("alice", idle, later))
	f.device(idleAt("alice", "b", at+20))
	f.requireEntries(entry("alice", later, idleSince(isHere(at+20, lastseen.Green), at+10)))
	f.device(bye("alice", "b", at+21))
	f.requireEntries(entry("alice",
		idleSince(isHere(at+20, lastseen.Green), at+10), idleSince(isHere(at+21, lastseen.Green), at-10)))
	f.say("alice", busy)
	was := with(idleSince(isHere(at+21, lastseen.Green), at-10), busy)
	f.requireEntries(entry("alice", idleSince(isHere(at+21, lastseen.Green), at-10), was))
	f.device(on("alice", "a", at+22))
	f.requireEntries(entry("alice", was, with(isHere(at+22, lastseen.Green), busy)))
	f.device(idleAt("alice", "a", at+40))
	f.read()
	f.leave("alice", at+41)
	f.requireEntries(entry("alice",
		with(idleSince(isHere(at+40, lastseen.Green), at+30), busy), with(hasLeft(at+41), busy)))
}

// testChangesOfIdleDecays: a yellow user can be idle, and a grey one is not.
func testChangesOfIdleDecays(t *testing.T, s store.Store) {
	f := begin(t, s)
	yellow, grey := f.decaysYellow(100), f.decaysGrey(200)
	f.device(idleAt("yellow", "a", yellow))
	f.device(idleAt("grey", "a", grey))
	f.device(idleAt("old", "a", base))
	f.read()
	require.Equal(t, isHere(base, lastseen.Grey), f.published("old"))
	require.Equal(t, 1, f.sweep(100))
	f.requireEntries(entry("yellow",
		idleSince(isHere(yellow, lastseen.Green), yellow-10), idleSince(isHere(yellow, lastseen.Yellow), yellow-10)))
	require.Equal(t, 1, f.sweep(200))
	f.requireEntries(entry("grey", idleSince(isHere(grey, lastseen.Yellow), grey-10), isHere(grey, lastseen.Grey)))
	require.Equal(t, isHere(grey, lastseen.Grey), f.published("grey"))
	f.device(idleAt("grey", "b", grey))
	f.device(on("grey", "b", grey))
	f.device(idleAt("old", "a", base+100))
	f.requireEntries()
	f.device(idleAt("grey", "c", f.start))
	f.requireEntries(entry("grey", isHere(grey, lastseen.Grey), idleSince(isHere(f.start, lastseen.Green), f.start-10)))
}

// testChangesOfIdleBack: what a ping without a device, and a leave without one, append for a user who was idle has what
// was published before, and what others see then.
func testChangesOfIdleBack(t *testing.T, s store.Store) {
	f := begin(t, s)
	grey := f.decaysGrey(100)
	f.device(idleAt("leaves", "a", f.start), idleAt("decays", "a", grey), idleAt("both", "a", grey))
	f.say("both", busy)
	f.read()
	f.leave("leaves", f.start+1)
	f.requireEntries(entry("leaves", idleSince(isHere(f.start, lastseen.Green), f.start-10), hasLeft(f.start+1)))
	f.ping("leaves", f.start+2)
	f.requireEntries(entry("leaves", hasLeft(f.start+1), isHere(f.start+2, lastseen.Green)))
	require.Equal(t, 2, f.sweep(100))
	f.read()
	f.ping("decays", f.start)
	f.requireEntries(entry("decays", isHere(grey, lastseen.Grey), f.seen("decays")))
	f.ping("both", f.start)
	f.requireEntries(entry("both", with(isHere(grey, lastseen.Grey), busy), f.seen("both")))
}

// seen returns a user who is green, with the details that others see. Whether a ping without a device ends that a user
// is idle is up to the store.
func (f *feed) seen(user string) store.Published {
	f.t.Helper()
	p := isHere(f.start, lastseen.Green)
	p.Details = detailsIn(f.t, f.s, f.namespace, user)[user]
	return p
}
