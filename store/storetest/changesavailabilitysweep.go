package storetest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// testSweepEnds: what is said ends once, by the sweep that reaches its end.
func testSweepEnds(t *testing.T, s store.Store) {
	f := begin(t, s)
	hour := until(f.start+100, busy)
	f.ping("alice", f.start)
	f.say("alice", hour)
	f.say("bob", hour)
	f.read()
	require.Zero(t, f.sweep(99))
	require.Equal(t, with(neverSeen(), hour), f.published("bob"))
	require.Equal(t, 2, f.sweep(100))
	require.Equal(t, map[string][]store.Change{
		"alice": {entry("alice", with(isHere(f.start, lastseen.Green), hour), isHere(f.start, lastseen.Green))},
		"bob":   {entry("bob", with(neverSeen(), hour), neverSeen())},
	}, byUser(f.read()))
	require.Equal(t, isHere(f.start, lastseen.Green), f.published("alice"))
	require.Equal(t, neverSeen(), f.published("bob"))
	f.ping("alice", f.start-1)
	f.ping("bob", f.start)
	f.requireEntries(entry("bob", neverSeen(), isHere(f.start, lastseen.Green)))
	require.Zero(t, f.sweep(maxPlayed))
	f.say("alice", nothing)
	f.requireEntries()
}

// testSweepEndsReplaced: only the end of what was said last counts.
func testSweepEndsReplaced(t *testing.T, s store.Store) {
	f := begin(t, s)
	for user, next := range map[string]lastseen.Said{
		"nothing": nothing, "no end": busy, "later": until(f.start+500, busy), "sooner": until(f.start+50, away),
	} {
		f.say(user, until(f.start+100, busy))
		f.say(user, next)
	}
	f.read()
	require.Equal(t, 1, f.sweep(60))
	f.requireEntries(entry("sooner", with(neverSeen(), until(f.start+50, away)), neverSeen()))
	require.Zero(t, f.sweep(499))
	f.say("sooner", until(f.start+600, away))
	f.read()
	require.Equal(t, 1, f.sweep(500))
	f.requireEntries(entry("later", with(neverSeen(), until(f.start+500, busy)), neverSeen()))
	require.Equal(t, 1, f.sweep(maxPlayed))
	f.requireEntries(entry("sooner", with(neverSeen(), until(f.start+600, away)), neverSeen()))
	require.Equal(t, with(neverSeen(), busy), f.published("no end"))
}

// testSweepEndsInOrder: one sweep appends ends and decays in the order of their instants.
func testSweepEndsInOrder(t *testing.T, s store.Store) {
	f := begin(t, s)
	order := []string{"end 10", "decay 20", "end 30", "grey 40", "end 50", "decay 60"}
	f.say(order[0], until(f.start+10, busy))
	f.ping(order[1], f.decaysYellow(20))
	f.say(order[2], until(f.start+30, said("", "a note")))
	f.ping(order[3], f.decaysGrey(40))
	f.ping(order[4], f.start)
	f.say(order[4], until(f.start+50, busy))
	f.ping(order[5], f.decaysYellow(60))
	f.say(order[5], busy)
	f.read()
	places := f.places
	require.Equal(t, len(order), f.sweep(100))
	entries, end := f.all(places, 10)
	f.places = end
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

// testSweepEndsAndDecays: a user whose availability ends in the millisecond of a decay has one entry.
func testSweepEndsAndDecays(t *testing.T, s store.Store) {
	f := begin(t, s)
	ends := until(f.start+100, busy)
	yellow, grey := f.decaysYellow(100), f.decaysGrey(100)
	f.device(idleAt("yellow", "a", yellow), idleAt("grey", "a", grey))
	for _, user := range []string{"yellow", "grey"} {
		f.say(user, ends)
	}
	f.ping("other", yellow)
	f.read()
	require.Zero(t, f.sweep(99))
	require.Equal(t, 3, f.sweep(100))
	require.Equal(t, map[string][]store.Change{
		"yellow": {entry("yellow",
			with(idleSince(isHere(yellow, lastseen.Green), yellow-10), ends),
			idleSince(isHere(yellow, lastseen.Yellow), yellow-10))},
		"grey": {entry("grey",
			with(idleSince(isHere(grey, lastseen.Yellow), grey-10), ends), isHere(grey, lastseen.Grey))},
		"other": {entry("other", isHere(yellow, lastseen.Green), isHere(yellow, lastseen.Yellow))},
	}, byUser(f.read()))

	sweep := f.sweepOnce(maxPlayed)
	require.Zero(t, sweep.Decays)
	require.Zero(t, sweep.Lag)
}

// testSweepEndsBetweenDecays: what one sweep appends of a user continues from what was published, up to what is.
func testSweepEndsBetweenDecays(t *testing.T, s store.Store) {
	f := beginWith(t, s, ns, thresholds{Green: 30 * time.Second, Yellow: 30*time.Second + 100*time.Millisecond})
	was := map[string]store.Published{}
	for _, end := range []lastseen.Instant{50, 99, 100, 101, 150, 199, 200, 201, 250} {
		user := fmt.Sprint("ends ", int(end))
		at := f.decaysYellow(100) // and grey 100 ms later
		f.device(idleAt(user, "a", at))
		f.say(user, until(f.start+end, busy))
		was[user] = with(idleSince(isHere(at, lastseen.Green), at-10), until(f.start+end, busy))
		require.Equal(t, was[user], f.published(user))
	}
	f.read()
	decays := f.sweep(300)
	entries := f.read()
	require.Len(t, entries, decays)
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

// testSweepManyEnds: one call ends what about MaxEnds users of each shard say; other calls end the rest, each once.
func testSweepManyEnds(t *testing.T, s store.Store) {
	f := begin(t, s)
	n := tooManyFor(f)
	for i := range n {
		f.say(fmt.Sprint("u", i), until(f.start+1+lastseen.Instant(i%100), busy))
	}
	f.read()
	calls, ends, last := 0, 0, f.start
	for more := true; more; calls++ {
		sweep := f.sweepOnce(100)
		require.False(t, sweep.Begun)
		require.LessOrEqual(t, sweep.Decays, store.MaxEnds*len(f.places))
		require.GreaterOrEqual(t, sweep.Watermark, last)
		more, ends, last = sweep.More, ends+sweep.Decays, sweep.Watermark
		require.Less(t, calls, n)
		require.Len(t, f.read(), sweep.Decays)
		for i, p := range f.snapshot("u0", "u50", "u99").Users {
			end := f.start + 1 + []lastseen.Instant{0, 50, 99}[i]
			if len(f.places) == 1 {
				require.Equal(t, end <= last, p.Said == nothing, "it ends with the watermark")
			}
		}
	}
	require.Equal(t, f.start+100, last)
	require.Equal(t, n, ends)
	require.GreaterOrEqual(t, calls, 2)
	require.Zero(t, f.sweep(101))
}

// testSweepEndsOfOneInstant: what ends in the same millisecond ends together.
func testSweepEndsOfOneInstant(t *testing.T, s store.Store) {
	f := begin(t, s)
	n := tooManyFor(f)
	for i := range n {
		f.say(fmt.Sprint("u", i), until(f.start+100, busy))
	}
	f.say("before", until(f.start+99, busy))
	f.say("after", until(f.start+101, busy))
	f.read()
	ends := 0
	for more := true; more; {
		sweep := f.sweepOnce(101)
		require.False(t, sweep.Begun)
		more, ends = sweep.More, ends+sweep.Decays
		snapshot := f.snapshot("u0", "u1", "u2")
		for _, p := range snapshot.Users {
			if len(f.places) == 1 {
				require.Equal(t, snapshot.Watermark >= f.start+100, p.Said == nothing)
			}
		}
	}
	require.Equal(t, n+2, ends)
	for user, entries := range byUser(f.read()) {
		require.Len(t, entries, 1, user)
	}
}

// testSweepDeletesNothingAhead: a sweep that is ahead of the store's clock ends what is said in the feed alone.
func testSweepDeletesNothingAhead(t *testing.T, s store.Store) {
	f := begin(t, s)
	ends := until(f.start+maxPlayed-100, busy)
	f.say("alice", ends)
	f.read()
	require.Equal(t, 1, f.sweep(maxPlayed))
	says := saying(t, s, "alice", f.start)
	_, described, err := s.Describe(t.Context(), ns, []string{"alice"})
	require.NoError(t, err)
	if now(t, s) < ends.Until {
		require.Equal(t, ends, says)
		require.Equal(t, map[string]store.Details{"alice": {Said: ends}}, described)
	}
	require.Equal(t, neverSeen(), f.published("alice"))
}

// testSaidBeforeFeed: a feed publishes what was said before it began, and what ended before is in no entry.
func testSaidBeforeFeed(t *testing.T, s store.Store) {
	start := now(t, s)
	soon, hour := until(start+playAhead+maxPlayed/2+1000, busy), until(start+60*minute, away)
	ping(t, s, "ended", start)
	sayAt(t, s, "ended", until(start-30*minute, busy), start-60*minute)
	sayAt(t, s, "soon", soon, start)
	sayAt(t, s, "hour", hour, start)
	sayAt(t, s, "hidden", until(soon.Until, invisible), start)
	record(t, s, idleAt("idle", "a", start))
	f := begin(t, s)
	require.Equal(t, []store.Published{
		isHere(start, lastseen.Green), with(neverSeen(), hour), hasLeft(start),
		idleSince(isHere(start, lastseen.Green), start-10),
	}, f.snapshot("ended", "hour", "hidden", "idle").Users)
	if f.start < soon.Until {
		require.Equal(t, with(neverSeen(), soon), f.published("soon"))
		require.Equal(t, 1, f.sweep(maxPlayed))
		f.requireEntries(entry("soon", with(neverSeen(), soon), neverSeen()))
	}
	f.ping("ended", start-1)
	f.say("hour", busy)
	f.requireEntries(entry("hour", with(neverSeen(), hour), with(neverSeen(), busy)))
}
