package availability

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/devices"
	"github.com/lastseen/lastseen/store/storetest/kit"
)

// testInvisibleAhead: the leave is at the call's time, bounded like that of a ping, or at the user's if that is later.
func testInvisibleAhead(t *testing.T, s store.Store) {
	start := kit.Now(t, s)
	kit.Ping(t, s, "alice", start+2000)
	require.Equal(t, kit.Left(start+2000), SetAt(t, s, "alice", Invisible, start))
	kit.Ping(t, s, "bob", start-kit.Minute)
	require.Equal(t, kit.Left(start+2000), SetAt(t, s, "bob", Invisible, start+2000))
	for i, ahead := range []time.Duration{time.Hour, 20 * 365 * 24 * time.Hour} {
		user := []string{"carol", "dave"}[i]
		state := SetAt(t, s, user, Invisible, start.Add(ahead))
		require.True(t, state.Left)
		require.InDelta(t, int64(start), int64(state.At), float64(store.MaxAhead/time.Millisecond)-1)
		require.Equal(t, state, kit.Ping(t, s, user, start.Add(ahead)), "hidden")
	}
}

// testInvisibleInBatch: what is hidden of a batch changes nothing for the others, and a hidden user has their state in
// the result.
func testInvisibleInBatch(t *testing.T, s store.Store) {
	start := kit.Now(t, s)
	kit.Ping(t, s, "known", start-kit.Minute)
	SetAt(t, s, "hidden", Invisible, start)
	SetAt(t, s, "other", Until(start+60*kit.Minute, Invisible), start)
	batch := []store.PresenceEvent{
		{User: "hidden", At: start},
		{User: "known", At: start},
		{User: "new", At: start + 1},
		{User: "hidden", At: start + 1},
		{User: "other", At: start + 2},
		{User: "new", At: start},
	}
	require.Equal(t, []lastseen.State{
		kit.Left(start), kit.Here(start), kit.Here(start + 1), kit.Left(start), kit.Left(start), kit.Here(start + 1),
	}, kit.Write(s.Ping).Send(t, kit.Namespace, batch))
	require.Equal(t, []lastseen.State{
		kit.Left(start), kit.Left(start), kit.Left(start + 1), kit.Left(start), kit.Left(start), kit.Left(start + 1),
	}, kit.Write(s.Leave).Send(t, kit.Namespace, batch))
	require.Equal(t, []lastseen.State{kit.Left(start), kit.Left(start)},
		kit.Write(s.Ping).In(t, kit.Namespace, start+5, "other", "hidden"))
	want := []lastseen.State{
		kit.Left(start), kit.Here(start + 5), kit.Left(start), kit.Here(start + 5),
		kit.Left(start),
	}
	require.Equal(t, want, devices.Record(t, s,
		devices.On("hidden", "a", start+5), devices.On("known", "a", start+5), devices.On("other", "a",
			start+5), devices.On("known", "b", start),
		devices.Bye("hidden", "a", start+6),
	))
	devices.Require(t, s, "known", "a", "b")
	devices.Require(t, s, "hidden")
}

// testInvisibleUntil: the hidden time ends by itself. Pings from then on count, and earlier ones never do.
func testInvisibleUntil(t *testing.T, s store.Store) {
	start := kit.Now(t, s)
	first, end := start-60*kit.Minute, start-30*kit.Minute
	Set(t, s, "alice", Away)
	SetAt(t, s, "alice", Until(end, Invisible), first)
	require.Equal(t, Until(end, Invisible), Get(t, s, "alice", end-1))
	require.Equal(t, Away, Get(t, s, "alice", end), "the availability of before counts again")
	Require(t, s, "alice", Away)
	for _, at := range []lastseen.Instant{kit.Base, first, first + 1, end - 1} {
		require.Equal(t, kit.Left(first), kit.Ping(t, s, "alice", at), "hidden")
		require.Equal(t, kit.Left(first), kit.Leave(t, s, "alice", at), "hidden")
		require.Equal(t, kit.Left(first), devices.RecordOne(t, s, devices.On("alice", "a", at)), "hidden")
		require.Equal(t, kit.Left(first), devices.RecordOne(t, s, devices.Bye("alice", "b", at)), "hidden")
	}
	require.Empty(t, devices.Of(t, s, "alice").Records)
	require.Equal(t, kit.Left(first), kit.Lookup(t, s, "alice")[0], "the end changes nothing")
	require.Equal(t, kit.Here(end), kit.Ping(t, s, "alice", end))
	require.Equal(t, kit.Here(end), kit.Ping(t, s, "alice", end-1))
	require.Equal(t, kit.Here(end+1), devices.RecordOne(t, s, devices.On("alice", "a", end+1)))
	require.Equal(t, kit.Here(end+1), devices.RecordOne(t, s, devices.Bye("alice", "c", end-1)), "hidden")
	devices.Require(t, s, "alice", "a")
	require.Equal(t, kit.Left(start), kit.Leave(t, s, "alice", start))
}

// testInvisibleAndClocksAhead: a ping that arrives in the hidden time is hidden, also if its time is after the end.
func testInvisibleAndClocksAhead(t *testing.T, s store.Store) {
	start := kit.Now(t, s)
	end := start + 60*kit.Minute
	SetAt(t, s, "alice", Until(end, Invisible), start)
	SetAt(t, s, "bob", Invisible, start)
	for _, user := range []string{"alice", "bob"} {
		years := start.Add(20 * 365 * 24 * time.Hour)
		for _, at := range []lastseen.Instant{start + 3000, end, end + 1, years, lastseen.MaxInstant} {
			require.Equal(t, kit.Left(start), kit.Ping(t, s, user, at))
			require.Equal(t, kit.Left(start), kit.Leave(t, s, user, at))
			require.Equal(t, kit.Left(start), devices.RecordOne(t, s, devices.On(user, "a", at)))
		}
		devices.Require(t, s, user)
	}
	near := kit.Now(t, s) + 3000 // carol's hidden time ends in less than MaxAhead
	SetAt(t, s, "carol", Until(near, Invisible), start)
	state := kit.Ping(t, s, "carol", near+500)
	if kit.Now(t, s) < near {
		require.Equal(t, kit.Left(start), state, "it arrived before the end")
	}
}

// testInvisibleLate: pings from the hidden time stay hidden for weeks after it, whatever others do meanwhile.
func testInvisibleLate(t *testing.T, s store.Store) {
	const day = 24 * 60 * kit.Minute
	start := kit.Now(t, s)
	first, end := start-32*day, start.Add(-store.HiddenKept)+10*kit.Minute
	SetAt(t, s, "alice", Until(end, Invisible), first)
	SetAt(t, s, "bob", Invisible, first)
	SetAt(t, s, "bob", Busy, end)
	for i := range 150 { // each of them may delete what is old
		user := fmt.Sprint("user", i)
		SetAt(t, s, user, Until(end+lastseen.Instant(i), Invisible), first)
		SetAt(t, s, user, Nothing, start)
	}
	kit.Ping(t, s, "other", start)
	for _, all := range []bool{false, true} {
		kit.Trim(t, s, kit.Namespace, start-kit.Minute, all)
	}
	require.Equal(t, []string{"other"}, kit.Remaining(t, s))
	for _, user := range []string{"alice", "bob", "user0", "user149"} {
		for _, at := range []lastseen.Instant{first, first + 1, end - 1} {
			require.Zero(t, kit.Ping(t, s, user, at), "%s: hidden", user)
			require.Zero(t, kit.Leave(t, s, user, at), "%s: hidden", user)
			require.Zero(t, devices.RecordOne(t, s, devices.On(user, "a", at)), "%s: hidden", user)
		}
		require.Equal(t, kit.Here(start), kit.Ping(t, s, user, start))
	}
}

// hide makes users invisible from an instant on: one without an end, one until another instant, and one who says
// something else then. It returns the users.
func hide(t *testing.T, s store.Store, from, end lastseen.Instant, then lastseen.AvailabilityState) []string {
	t.Helper()
	SetAt(t, s, "invisible", Invisible, from)
	SetAt(t, s, "until", Until(end, Invisible), from)
	SetAt(t, s, "ended", Invisible, from)
	SetAt(t, s, "ended", then, end)
	return []string{"invisible", "until", "ended"}
}

// requireHides checks that what a user does in a hidden time has no effect.
func requireHides(t *testing.T, s store.Store, user string, from, end lastseen.Instant) {
	t.Helper()
	require.Zero(t, kit.Ping(t, s, user, from+1), user)
	require.Zero(t, kit.Leave(t, s, user, end-1), user)
	require.Zero(t, devices.RecordOne(t, s, devices.On(user, "a", end-1)), user)
}

// testInvisibleRemoveEmpty: a hidden time does not keep a namespace, and outlives it.
func testInvisibleRemoveEmpty(t *testing.T, s store.Store) {
	start := kit.Now(t, s)
	first, end := start-60*kit.Minute, start-40*kit.Minute
	hiding := hide(t, s, first, end, Nothing)
	require.False(t, kit.RemoveEmpty(t, s, kit.Namespace), "they are users who left")
	require.Equal(t, store.TrimResult{Deleted: 3}, kit.Trim(t, s, kit.Namespace, start-30*kit.Minute, true))
	for range 2 {
		require.True(t, kit.RemoveEmpty(t, s, kit.Namespace))
		require.False(t, kit.RemoveEmpty(t, s, kit.Namespace))
		for _, user := range hiding {
			requireHides(t, s, user, first, end)
		}
		require.Empty(t, kit.Existing(t, s), "what is hidden creates no namespace")
		requireInvisible(t, s, "invisible", Invisible, lastseen.State{}, Nothing)
		require.Empty(t, kit.Existing(t, s), "reading creates no namespace")
		again := Until(start+60*kit.Minute, Invisible)
		require.Zero(t, SetAt(t, s, "invisible", again, start))
		require.Zero(t, SetAt(t, s, "ended", Nothing, start))
		requireInvisible(t, s, "invisible", again, lastseen.State{}, Nothing)
		require.Zero(t, SetAt(t, s, "invisible", Invisible, start))
		require.Empty(t, kit.Existing(t, s), "neither does an end that changes")
		kit.Write(s.Ping).In(t, kit.Namespace, start, "other", "invisible")
		require.Equal(t, []string{kit.Namespace}, kit.Existing(t, s))
		require.Equal(t, []string{"other"}, kit.Remaining(t, s))
		kit.Forget(t, s, "other")
	}
	require.Zero(t, SetAt(t, s, "invisible", Nothing, start-kit.Minute))
	require.Zero(t, kit.Ping(t, s, "invisible", start-kit.Minute-1), "hidden")
	require.Equal(t, kit.Here(start), kit.Ping(t, s, "invisible", start))
	require.Equal(t, kit.Here(start), kit.Ping(t, s, "until", start))

	kit.Forget(t, s, "invisible", "until")
	require.True(t, kit.RemoveEmpty(t, s, kit.Namespace))
	kit.Forget(t, s, hiding...)
	require.Equal(t, kit.Here(first+1), kit.Ping(t, s, "ended", first+1), "nothing of who is forgotten is hidden")
}

// testAvailabilityDelete: nothing is left of a namespace that was deleted.
func testAvailabilityDelete(t *testing.T, s store.Store) {
	start := kit.Now(t, s)
	first, end := start-60*kit.Minute, start-40*kit.Minute
	names := []string{"busy", "invisible", "until", "ended"}
	SetAt(t, s, "busy", Busy, first)
	hide(t, s, first, end, Busy)
	SetIn(t, s, "other", "busy", Busy, first)
	for range 2 {
		require.NoError(t, s.DeleteNamespace(context.Background(), kit.Namespace))
		require.Equal(t, []string{"other"}, kit.Existing(t, s))
		for _, user := range names {
			Require(t, s, user, Nothing)
			require.Equal(t, kit.Here(first+1), kit.Ping(t, s, user, first+1), "nothing is hidden")
			Require(t, s, user, Nothing)
		}
	}
	require.Equal(t, store.Details{Availability: Busy}, DetailsIn(t, s, "other", "busy")["busy"])
	SetAt(t, s, "busy", Invisible, start)
	require.Equal(t, kit.Left(start), kit.Ping(t, s, "busy", start+1), "hidden")

	kit.Trim(t, s, kit.Namespace, start+60*kit.Minute, true)
	kit.Forget(t, s, names[1:]...)
	kit.RemoveEmpty(t, s, kit.Namespace)
	require.NoError(t, s.DeleteNamespace(context.Background(), kit.Namespace))
	require.Equal(t, kit.Here(start+1), kit.Ping(t, s, "busy", start+1),
		"deleted although it was not listed any longer")
}
