package storetest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// testInvisible: a user who becomes invisible leaves, and pings, leaves and devices change nothing from then on.
func testInvisible(t *testing.T, s store.Store) {
	start := now(t, s)
	ping(t, s, "alice", start-10*minute)
	require.Equal(t, left(start-5*minute), sayAt(t, s, "alice", invisible, start-5*minute))
	requireInvisible(t, s, "alice", invisible, left(start-5*minute), nothing)
	for _, at := range []lastseen.Instant{base, start - 5*minute, start - 5*minute + 1, start - minute, start} {
		require.Equal(t, left(start-5*minute), ping(t, s, "alice", at), "%s", at)
		require.Equal(t, left(start-5*minute), leave(t, s, "alice", at), "%s", at)
		require.Equal(t, left(start-5*minute), recordOne(t, s, on("alice", "a", at)), "%s", at)
		require.Equal(t, left(start-5*minute), recordOne(t, s, bye("alice", "a", at)), "%s", at)
	}
	requireInvisible(t, s, "alice", invisible, left(start-5*minute), nothing)
	require.Empty(t, devicesOf(t, s, "alice").Records)
	require.Equal(t, here(start), ping(t, s, "bob", start), "others are seen")
}

// testInvisibleNeverSeen: becoming invisible is a leave also of a user who was never seen.
func testInvisibleNeverSeen(t *testing.T, s store.Store) {
	start := now(t, s)
	require.Equal(t, left(start), sayAt(t, s, "alice", invisible, start))
	requireInvisible(t, s, "alice", invisible, left(start), nothing)
	require.Equal(t, []store.Record{{User: "alice", State: left(start)}},
		list(t, s, store.ListQuery{Ranges: everyone(), Limit: 10}))
	require.Equal(t, []store.NamespaceInfo{{Name: ns, Newest: start}}, namespaces(t, s, 10))
	require.Equal(t, left(start), ping(t, s, "alice", start+1))
}

// testInvisibleAhead: the leave is at the call's time, bounded like that of a ping, or at the user's if that is later.
func testInvisibleAhead(t *testing.T, s store.Store) {
	start := now(t, s)
	ping(t, s, "alice", start+2000)
	require.Equal(t, left(start+2000), sayAt(t, s, "alice", invisible, start))
	ping(t, s, "bob", start-minute)
	require.Equal(t, left(start+2000), sayAt(t, s, "bob", invisible, start+2000))
	for i, ahead := range []time.Duration{time.Hour, 20 * 365 * 24 * time.Hour} {
		user := []string{"carol", "dave"}[i]
		state := sayAt(t, s, user, invisible, start.Add(ahead))
		require.True(t, state.Left)
		require.InDelta(t, int64(start), int64(state.At), float64(store.MaxAhead/time.Millisecond)-1)
		require.Equal(t, state, ping(t, s, user, start.Add(ahead)), "hidden")
	}
}

// testInvisibleInBatch: what is hidden of a batch changes nothing for the others, and a hidden user has their state in
// the result.
func testInvisibleInBatch(t *testing.T, s store.Store) {
	start := now(t, s)
	ping(t, s, "known", start-minute)
	sayAt(t, s, "hidden", invisible, start)
	sayAt(t, s, "other", until(start+60*minute, invisible), start)
	batch := []store.Sighting{
		{User: "hidden", At: start},
		{User: "known", At: start},
		{User: "new", At: start + 1},
		{User: "hidden", At: start + 1},
		{User: "other", At: start + 2},
		{User: "new", At: start},
	}
	require.Equal(t, []lastseen.State{
		left(start), here(start), here(start + 1), left(start), left(start), here(start + 1),
	}, write(s.Ping).send(t, ns, batch))
	require.Equal(t, []lastseen.State{
		left(start), left(start), left(start + 1), left(start), left(start), left(start + 1),
	}, write(s.Leave).send(t, ns, batch))
	require.Equal(t, []lastseen.State{left(start), left(start)}, write(s.Ping).in(t, ns, start+5, "other", "hidden"))
	want := []lastseen.State{left(start), here(start + 5), left(start), here(start + 5), left(start)}
	require.Equal(t, want, record(t, s,
		on("hidden", "a", start+5), on("known", "a", start+5), on("other", "a", start+5), on("known", "b", start),
		bye("hidden", "a", start+6),
	))
	requireDevices(t, s, "known", "a", "b")
	requireDevices(t, s, "hidden")
}

// testInvisibleDevices: becoming invisible is a leave on all devices, and nothing is kept of what devices assert then.
func testInvisibleDevices(t *testing.T, s store.Store) {
	start := now(t, s)
	for _, user := range []string{"alice", "bob"} {
		record(t, s, on(user, "a", start-1000), withMeta(on(user, "b", start-500), `{"n":1}`))
	}
	require.Equal(t, left(start), sayAt(t, s, "alice", invisible, start))
	require.Equal(t, left(start), leave(t, s, "bob", start))
	want := devicesOf(t, s, "bob")
	require.Equal(t, want, devicesOf(t, s, "alice"))
	for i, sighting := range []store.DeviceSighting{
		on("alice", "a", start+1), bye("alice", "b", start+1), withMeta(on("alice", "c", start+2), `{"n":2}`),
		on("alice", "a", start-100), bye("alice", "b", start-100),
	} {
		require.Equal(t, left(start), recordOne(t, s, sighting), i)
		require.Equal(t, want, devicesOf(t, s, "alice"), i)
	}
	end := now(t, s) + 10
	sayAt(t, s, "alice", nothing, end)
	require.Equal(t, left(start), recordOne(t, s, on("alice", "c", start+2)), "late")
	require.Equal(t, want, devicesOf(t, s, "alice"), "what was hidden is not shown later")
}

// testInvisibleIdle: a device that has been idle since the hidden time, or since before it, is idle since it is heard
// after that.
func testInvisibleIdle(t *testing.T, s store.Store) {
	start := now(t, s)
	first, end := start-60*minute, start-40*minute
	for _, user := range hide(t, s, first, end, nothing)[1:] {
		idle := func(id string, at, since lastseen.Instant) store.DeviceSighting {
			d := on(user, id, at)
			d.Idle = since
			return d
		}
		other := on("other", "a", end+10)
		other.Idle = end - 1
		record(t, s, on("other", "b", end-1), idle("a", end+10, end-1), other, idle("b", end-1, end-2))
		require.Equal(t, end+10, details(t, s, user)[user].IdleSince, user)
		record(t, s, idle("a", end+20, end-1))
		require.Equal(t, end+10, details(t, s, user)[user].IdleSince, "it was not used in between")
		record(t, s, on(user, "a", end+30))
		record(t, s, idle("a", end+40, end))
		require.Equal(t, end, details(t, s, user)[user].IdleSince, "not hidden")
		record(t, s, on(user, "a", end+50))
		record(t, s, idle("a", end+60, first-1000))
		require.Equal(t, end+60, details(t, s, user)[user].IdleSince, "since before the hidden time")
	}
	require.Equal(t, end-1, devicesOf(t, s, "other").Records[0].IdleSince, "others show it")
}

// testInvisibleKeepsWhatOthersSee: others see of an invisible user what they would see after a leave: what was said
// before, until that ends.
func testInvisibleKeepsWhatOthersSee(t *testing.T, s store.Store) {
	start := now(t, s)
	say(t, s, "alice", busy)
	sayAt(t, s, "alice", invisible, start)
	requireInvisible(t, s, "alice", invisible, left(start), busy)
	sayAt(t, s, "alice", until(start+60*minute, said(lastseen.Invisible, "")), start)
	requireInvisible(t, s, "alice", until(start+60*minute, said(lastseen.Invisible, "")), left(start), busy)
	say(t, s, "alice", away)
	requireSaid(t, s, "alice", away)
	require.Equal(t, left(start), lookup(t, s, "alice")[0], "becoming visible does not change the state")

	hour := until(start+60*minute, busy)
	say(t, s, "bob", hour)
	sayAt(t, s, "bob", invisible, start)
	requireInvisible(t, s, "bob", invisible, left(start), hour)
	say(t, s, "bob", nothing)
	requireSaid(t, s, "bob", nothing)

	sayAt(t, s, "carol", until(start-30*minute, busy), start-60*minute)
	sayAt(t, s, "carol", invisible, start-50*minute)
	requireInvisible(t, s, "carol", invisible, left(start-50*minute), nothing)
}

// testInvisibleAgain: an invisible user who says Invisible again changes the end and the note alone.
func testInvisibleAgain(t *testing.T, s store.Store) {
	start := now(t, s)
	first := start - 60*minute
	require.Equal(t, left(first), sayAt(t, s, "alice", invisible, first))
	for i, what := range []lastseen.Said{
		said(lastseen.Invisible, ""), until(start+10*minute, invisible), until(start+5*minute, invisible),
		said(lastseen.Invisible, "another"), until(start+90*minute, said(lastseen.Invisible, "x")),
	} {
		at := start - 50*minute + lastseen.Instant(i)*minute
		require.Equal(t, left(first), sayAt(t, s, "alice", what, at), "the state stays")
		requireInvisible(t, s, "alice", what, left(first), nothing)
		require.Equal(t, left(first), ping(t, s, "alice", at))
	}
	end := until(start-20*minute, invisible)
	require.Equal(t, left(first), sayAt(t, s, "alice", end, start-30*minute), "an earlier end")
	require.Equal(t, left(first), ping(t, s, "alice", start-20*minute-1))
	require.Equal(t, here(start-20*minute), ping(t, s, "alice", start-20*minute))
}

// testInvisibleUntil: the hidden time ends by itself. Pings from then on count, and earlier ones never do.
func testInvisibleUntil(t *testing.T, s store.Store) {
	start := now(t, s)
	first, end := start-60*minute, start-30*minute
	say(t, s, "alice", away)
	sayAt(t, s, "alice", until(end, invisible), first)
	require.Equal(t, until(end, invisible), saying(t, s, "alice", end-1))
	require.Equal(t, away, saying(t, s, "alice", end), "what was said before counts again")
	requireSaid(t, s, "alice", away)
	for _, at := range []lastseen.Instant{base, first, first + 1, end - 1} {
		require.Equal(t, left(first), ping(t, s, "alice", at), "hidden")
		require.Equal(t, left(first), leave(t, s, "alice", at), "hidden")
		require.Equal(t, left(first), recordOne(t, s, on("alice", "a", at)), "hidden")
		require.Equal(t, left(first), recordOne(t, s, bye("alice", "b", at)), "hidden")
	}
	require.Empty(t, devicesOf(t, s, "alice").Records)
	require.Equal(t, left(first), lookup(t, s, "alice")[0], "the end changes nothing")
	require.Equal(t, here(end), ping(t, s, "alice", end))
	require.Equal(t, here(end), ping(t, s, "alice", end-1))
	require.Equal(t, here(end+1), recordOne(t, s, on("alice", "a", end+1)))
	require.Equal(t, here(end+1), recordOne(t, s, bye("alice", "c", end-1)), "hidden")
	requireDevices(t, s, "alice", "a")
	require.Equal(t, left(start), leave(t, s, "alice", start))
}

// testInvisibleAgainAfterUntil: after the end, saying Invisible again is another leave.
func testInvisibleAgainAfterUntil(t *testing.T, s store.Store) {
	start := now(t, s)
	first, end := start-60*minute, start-30*minute
	sayAt(t, s, "alice", until(end, invisible), first)
	require.Equal(t, left(end), sayAt(t, s, "alice", until(start+60*minute, invisible), end))
	require.Equal(t, left(end), ping(t, s, "alice", end+1), "hidden")

	sayAt(t, s, "bob", until(end, invisible), first)
	require.Equal(t, here(end+10), ping(t, s, "bob", end+10))
	require.Equal(t, left(end+10), sayAt(t, s, "bob", invisible, end+5), "the ping was later")
	require.Equal(t, left(end+10), ping(t, s, "bob", start), "hidden")
	require.Equal(t, left(end+10), sayAt(t, s, "bob", nothing, start-5*minute))
	require.Equal(t, left(end+10), ping(t, s, "bob", end-1), "hidden before")
	require.Equal(t, left(end+10), ping(t, s, "bob", start-6*minute), "hidden before")
	require.Equal(t, here(start-5*minute), ping(t, s, "bob", start-5*minute))
}

// testInvisibleEnded: saying something else, or nothing, ends the hidden time. What was hidden stays hidden.
func testInvisibleEnded(t *testing.T, s store.Store) {
	start := now(t, s)
	first, end := start-60*minute, start-30*minute
	for user, next := range map[string]lastseen.Said{"nothing": nothing, "busy": busy, "note": said("", "a note")} {
		for suffix, what := range map[string]lastseen.Said{
			"": invisible, " until": until(start-10*minute, invisible), " later": until(start+60*minute, invisible),
		} {
			user := user + suffix
			ping(t, s, user, first-1)
			sayAt(t, s, user, what, first)
			require.Equal(t, left(first), sayAt(t, s, user, next, end), "the state stays")
			requireSaid(t, s, user, next)
			for _, at := range []lastseen.Instant{base, first, first + 1, end - 1} {
				require.Equal(t, left(first), ping(t, s, user, at), "hidden")
				require.Equal(t, left(first), leave(t, s, user, at), "hidden")
				require.Equal(t, left(first), recordOne(t, s, on(user, "a", at)), "hidden")
			}
			require.Equal(t, here(end), ping(t, s, user, end))
			require.Equal(t, here(start), ping(t, s, user, start))
			requireDevices(t, s, user)
		}
	}
}

// testInvisibleEndedTwice: saying something else later does not change when the hidden time ended.
func testInvisibleEndedTwice(t *testing.T, s store.Store) {
	start := now(t, s)
	first, end := start-60*minute, start-30*minute
	sayAt(t, s, "alice", invisible, first)
	sayAt(t, s, "alice", nothing, end)
	for i, what := range []lastseen.Said{nothing, busy, away, nothing} {
		sayAt(t, s, "alice", what, start-20*minute+lastseen.Instant(i)*minute)
	}
	require.Equal(t, left(first), ping(t, s, "alice", end-1), "hidden")
	require.Equal(t, here(end), ping(t, s, "alice", end))

	sayAt(t, s, "bob", until(end, invisible), first)
	sayAt(t, s, "bob", busy, start-20*minute)
	require.Equal(t, left(first), ping(t, s, "bob", end-1), "hidden")
	require.Equal(t, here(end), ping(t, s, "bob", end), "it had ended by itself")
}

// testVisibleAgainWithoutHiddenTime: saying something hides nothing of a user who was not invisible.
func testVisibleAgainWithoutHiddenTime(t *testing.T, s store.Store) {
	start := now(t, s)
	for _, what := range []lastseen.Said{busy, nothing, away, until(start+60*minute, busy)} {
		sayAt(t, s, "alice", what, start-10*minute)
	}
	require.Equal(t, here(start-30*minute), ping(t, s, "alice", start-30*minute))
	sayAt(t, s, "bob", nothing, start)
	require.Equal(t, here(start-30*minute), ping(t, s, "bob", start-30*minute))
}
