package changes

import (
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
