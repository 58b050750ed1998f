package storetest

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// sayNow records what a user says at the time at which the feed begins.
func (f *feed) sayNow(user string, what lastseen.Said) {
	sayIn(f.t, f.s, f.namespace, user, what, f.start)
}

// testChangesOfInvisible: becoming invisible appends what a leave appends, and what is hidden appends nothing.
func testChangesOfInvisible(t *testing.T, s store.Store) {
	f := begin(t, s)
	at := f.start
	f.device(idleAt("alice", "a", at-20))
	f.say("alice", busy)
	f.read()
	f.sayNow("alice", invisible)
	was := with(idleSince(isHere(at-20, lastseen.Green), at-30), busy)
	f.requireEntries(entry("alice", was, with(hasLeft(at), busy)))
	require.Equal(t, with(hasLeft(at), busy), f.published("alice"))
	f.ping("alice", at+100)
	f.leave("alice", at+100)
	f.device(on("alice", "a", at+100), idleAt("alice", "b", at+100), bye("alice", "a", at+101))
	f.sayNow("alice", until(at+10*minute, invisible))
	f.requireEntries()
	write(s.Ping).in(t, ns, at, "alice", "bob")
	f.requireEntries(entry("bob", neverSeen(), isHere(at, lastseen.Green)))

	f.sayNow("carol", invisible)
	f.requireEntries()
	require.Equal(t, hasLeft(at), f.published("carol"), "as a leave of a user who was never seen")
	f.ping("carol", at+1)
	f.requireEntries()
	f.leave("dave", at)
	f.sayNow("dave", invisible)
	f.requireEntries()
	require.Zero(t, f.sweep(maxPlayed))
	f.requireEntries()
}

// testChangesOfInvisibleEqualLeft: the feed of a namespace in which users are invisible equals that of one in which
// they left, also after they were trimmed.
func testChangesOfInvisibleEqualLeft(t *testing.T, s store.Store) {
	visible, hidden := beginWith(t, s, leftNS, normal), beginWith(t, s, hiddenNS, normal)
	hidden.start = visible.start + maxPlayed/2 // the same watermark for both
	visible.start = hidden.start
	both := []*feed{visible, hidden}
	requireEqual := func(why string) {
		require.Equal(t, byUser(visible.read()), byUser(hidden.read()), why)
		users := []string{"alice", "bob", "carol", "dave"}
		require.Equal(t, visible.snapshot(users...).Users, hidden.snapshot(users...).Users, why)
	}
	requireTrimmed := func(users int) {
		for _, f := range both {
			result := trim(t, s, f.namespace, base+minute, true)
			require.Equal(t, store.TrimResult{Deleted: users}, result, f.namespace)
		}
		requireEqual("trimmed")
	}
	for _, f := range both {
		f.sweep(0)
		f.ping("carol", base-10)
		f.say("bob", busy)
		f.device(idleAt("alice", "a", f.start-100))
		f.say("alice", until(f.start+500, busy))
		f.ping("bob", f.decaysYellow(500))
	}
	requireEqual("present")
	visible.leave("alice", visible.start-50)
	sayIn(t, s, hiddenNS, "alice", until(hidden.start+300, invisible), hidden.start-50)
	for _, user := range []string{"carol", "dave"} { // the second one was never seen
		visible.leave(user, base)
		sayIn(t, s, hiddenNS, user, invisible, base)
	}
	requireEqual("gone")
	for _, after := range []lastseen.Instant{0, 299, 301, 500, 600} {
		for _, f := range both {
			f.sweep(after)
		}
		requireEqual("swept")
		if now(t, s) < hidden.start+290 {
			hidden.ping("alice", hidden.start+200)
			hidden.device(on("alice", "b", hidden.start), idleAt("alice", "a", hidden.start+1))
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
		sayIn(t, s, f.namespace, "alice", away, now(t, s))
		sayIn(t, s, f.namespace, "carol", away, now(t, s))
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
		f.leave(user, base+2*minute)
		f.device(on(user, "a", f.start), idleAt(user, "b", base))
	}
}

// testChangesOfHiddenEnds: the end of a hidden time is in no entry.
func testChangesOfHiddenEnds(t *testing.T, s store.Store) {
	f := begin(t, s)
	f.ping("alice", f.start-2*minute)
	f.read()
	f.say("alice", until(f.start+100, invisible))
	f.read()
	require.Zero(t, f.sweep(200))
	f.requireEntries()
	require.Equal(t, hasLeft(f.start-minute), f.published("alice"))

	past := f.start - minute/2
	f.say("bob", until(past, invisible))
	f.ping("bob", past-1)
	f.requireEntries()
	f.ping("bob", past)
	f.requireEntries(entry("bob", hasLeft(f.start-minute), isHere(past, lastseen.Yellow)))
}

// testChangesOfVisibleAgain: becoming visible changes what is said, and no state.
func testChangesOfVisibleAgain(t *testing.T, s store.Store) {
	f := begin(t, s)
	at := f.start - minute
	for user, before := range map[string]lastseen.Said{"alice": busy, "bob": nothing} {
		f.ping(user, at)
		f.say(user, before)
		f.say(user, invisible)
		f.read()
		f.say(user, away)
		gone := with(hasLeft(at), before)
		f.requireEntries(entry(user, gone, with(gone, away)))
		f.say(user, invisible)
		f.requireEntries()
		f.say(user, away)
		f.requireEntries()
		f.ping(user, at-1)
		f.requireEntries()
		f.ping(user, f.start)
		f.requireEntries(entry(user, with(gone, away), with(isHere(f.start, lastseen.Green), away)))
		f.sayNow(user, invisible)
		f.read()
		f.sayNow(user, nothing)
		f.requireEntries(entry(user, with(hasLeft(f.start), away), hasLeft(f.start)))
	}
}

// testChangesOfSaidForget: an entry of a user who is forgotten says nothing, and there is one if others could see a
// state, or something said.
func testChangesOfSaidForget(t *testing.T, s store.Store) {
	f := begin(t, s)
	f.ping("state", f.start)
	f.say("state", busy)
	f.say("unknown", busy)
	f.say("ended", until(f.start, busy))
	f.say("ends", until(f.start+100, busy))
	f.ping("idle", f.start)
	f.device(idleAt("idle", "a", f.start))
	f.sayNow("hidden", invisible)
	f.say("hidden too", busy)
	f.sayNow("hidden too", invisible)
	f.read()
	for _, c := range []struct {
		user string
		was  store.Published
	}{
		{"state", with(isHere(f.start, lastseen.Green), busy)},
		{"unknown", with(neverSeen(), busy)},
		{"ends", with(neverSeen(), until(f.start+100, busy))},
		{"idle", idleSince(isHere(f.start, lastseen.Green), f.start-10)},
		{"hidden", hasLeft(f.start)},
		{"hidden too", with(hasLeft(f.start), busy)},
	} {
		forget(t, s, c.user)
		f.requireEntries(entry(c.user, c.was, neverSeen()))
		require.Equal(t, neverSeen(), f.published(c.user))
		forget(t, s, c.user)
		f.requireEntries()
	}
	forget(t, s, "ended")
	f.requireEntries()
	require.Zero(t, f.sweep(200), "nothing ends that is forgotten")
	f.requireEntries()
	f.ping("hidden", f.start)
	f.requireEntries(entry("hidden", neverSeen(), isHere(f.start, lastseen.Green)))
}

// testChangesOfSaidTrim: a trim is silent, and what is said stays published.
func testChangesOfSaidTrim(t *testing.T, s store.Store) {
	f := begin(t, s)
	f.ping("here", base)
	f.leave("left", base)
	for _, user := range []string{"here", "left"} {
		f.say(user, until(f.start+100, busy))
	}
	f.read()
	require.Equal(t, store.TrimResult{Deleted: 2}, trim(t, s, ns, base+minute, true))
	f.requireEntries()
	unknown := with(neverSeen(), until(f.start+100, busy))
	require.Equal(t, unknown, f.published("here"))
	require.Equal(t, unknown, f.published("left"))
	require.Equal(t, 2, f.sweep(100))
	require.Equal(t, map[string][]store.Change{
		"here": {entry("here", unknown, neverSeen())}, "left": {entry("left", unknown, neverSeen())},
	}, byUser(f.read()))
}

// testSnapshotOfSaid: a snapshot has what is published, and reading on from it what comes after.
func testSnapshotOfSaid(t *testing.T, s store.Store) {
	f := begin(t, s)
	at := f.start
	f.ping("alice", at)
	f.say("alice", busy)
	f.device(idleAt("bob", "a", at))
	f.say("bob", until(at+100, away))
	f.say("carol", busy)
	f.sayNow("dave", invisible)
	want := []store.Published{
		with(isHere(at, lastseen.Green), busy), neverSeen(),
		with(idleSince(isHere(at, lastseen.Green), at-10), until(at+100, away)), with(neverSeen(), busy), hasLeft(at),
		with(isHere(at, lastseen.Green), busy),
	}
	before := f.snapshot("alice", "nobody", "bob", "carol", "dave", "alice")
	require.Equal(t, want, before.Users)
	f.sweep(100)
	f.say("alice", away)
	f.ping("dave", at+50)
	entries, end := f.all(before.Places, 10)
	require.Equal(t, map[string][]store.Change{
		"alice": {entry("alice", want[0], with(want[0], away))},
		"bob":   {entry("bob", want[2], with(want[2], nothing))},
	}, byUser(entries))
	after := f.snapshot("alice", "bob")
	require.Equal(t, []store.Published{with(want[0], away), with(want[2], nothing)}, after.Users)
	require.Equal(t, end, after.Places)
}

// testDeleteEndsSaid: what was said in a namespace that was deleted does not end in its next feed.
func testDeleteEndsSaid(t *testing.T, s store.Store) {
	f := begin(t, s)
	f.say("alice", until(f.start+100, busy))
	f.sayNow("bob", invisible)
	require.NoError(t, s.DeleteNamespace(context.Background(), ns))
	requireNotRecorded(t, s)
	ping(t, s, "alice", f.start)
	ping(t, s, "bob", f.start)
	next := begin(t, s)
	require.Equal(t, isHere(f.start, lastseen.Green), next.published("alice"))
	require.Equal(t, isHere(f.start, lastseen.Green), next.published("bob"))
	require.Zero(t, next.sweep(100))
	next.requireEntries()
}
