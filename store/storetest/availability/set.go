package availability

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/kit"
)

// testAvailability: a user's availability is what others see, until the user sets another one.
func testAvailability(t *testing.T, s store.Store) {
	at := kit.Now(t, s)
	kit.Ping(t, s, "alice", at)
	for _, what := range []lastseen.AvailabilityState{
		Busy, Away, State(lastseen.Busy, ""), State("", "a note alone"), Until(at+60*kit.Minute, Busy),
		Until(at+90*kit.Minute, State("", "for a while")), Until(lastseen.MaxInstant, Away), Nothing, Busy,
	} {
		for range 2 { // repeating it changes nothing
			require.Equal(t, kit.Here(at), Set(t, s, "alice", what))
			Require(t, s, "alice", what)
		}
		require.Equal(t, what, Get(t, s, "alice", at-60*kit.Minute), "since when is not kept")
	}
	Require(t, s, "bob", Nothing)
	require.Equal(t, []string{"alice"}, kit.Remaining(t, s), "bob does not exist")
}

// testAvailabilityOfNeverSeen: a user without a state can set an availability, and is still never seen.
func testAvailabilityOfNeverSeen(t *testing.T, s store.Store) {
	require.Zero(t, Set(t, s, "alice", Nothing))
	require.Empty(t, kit.Existing(t, s), "saying nothing does not create a namespace")
	require.Zero(t, Set(t, s, "alice", Busy))
	require.Equal(t, []store.NamespaceInfo{{Name: kit.Namespace}}, kit.Namespaces(t, s, 10),
		"saying something creates it")
	Require(t, s, "alice", Busy)
	require.Zero(t, kit.Lookup(t, s, "alice")[0])
	require.Empty(t, kit.Remaining(t, s))
	require.Equal(t, []int64{0, 0}, kit.Count(t, s, kit.Everyone()...))
	newest, err := s.Newest(context.Background(), kit.Namespace)
	require.NoError(t, err)
	require.Zero(t, newest)

	require.Equal(t, kit.Here(kit.Base), kit.Ping(t, s, "alice", kit.Base))
	require.Equal(t, kit.Left(kit.Base), kit.Leave(t, s, "alice", kit.Base))
	Require(t, s, "alice", Busy)
	require.Equal(t, kit.Left(kit.Base), Set(t, s, "alice", Nothing))
	Require(t, s, "alice", Nothing)
}

// OddNotes are valid notes that look like something else to a store, and the longest ones.
func OddNotes() []string {
	return []string{
		"a", " ", "  two spaces  ", "1", "0", "-1", "1e3", "+inf", "-inf", "nil", "null", "true", "%s", "%2F", `"`, `'`,
		`\`, `\n`, "{}", `{"note":1}`, "[]", "a|b", "a:b", "a,b", "busy", "invisible", "1700000000000 busy", "<b>&</b>",
		"é", "e\u0301", "日本語", "🙂", "\u200e\u200f\u061c", "\u00a0", "\ufffd", "\U0010ffff", "شكرا",
		strings.Repeat("x", lastseen.MaxNoteLen), strings.Repeat("🙂", lastseen.MaxNoteLen),
		strings.Repeat(" ", lastseen.MaxNoteLen),
	}
}

// testAvailabilityNotes: any note arrives as it was written, with any availability.
func testAvailabilityNotes(t *testing.T, s store.Store) {
	start := kit.Now(t, s)
	for i, note := range OddNotes() {
		require.NoError(t, lastseen.CheckNote(note))
		user := fmt.Sprint("user", i)
		for _, what := range []lastseen.AvailabilityState{
			State("", note), State(lastseen.Away, note), Until(start+60*kit.Minute, State(lastseen.Busy, note)),
		} {
			Set(t, s, user, what)
			Require(t, s, user, what)
		}
		for _, what := range []lastseen.AvailabilityState{
			State(lastseen.Invisible, note), Until(start+60*kit.Minute, State(lastseen.Invisible, note)),
		} {
			SetAt(t, s, user, what, start)
			requireInvisible(t, s, user, what, kit.Left(start), Until(start+60*kit.Minute, State(lastseen.Busy, note)))
		}
	}
}

// testAvailabilityOfUserIDs: any user ID works.
func testAvailabilityOfUserIDs(t *testing.T, s store.Store) {
	start := kit.Now(t, s)
	ids, want := kit.OddIDs(), map[string]store.Details{}
	for i, id := range ids {
		if i%3 == 0 {
			continue // sets nothing
		}
		what := Until(start+60*kit.Minute, State(lastseen.Busy, fmt.Sprint(i)))
		Set(t, s, id, what)
		want[id] = store.Details{Availability: what}
	}
	require.Equal(t, want, Details(t, s, ids...))
	for i, id := range ids {
		if i%3 == 1 {
			SetAt(t, s, id, Invisible, start)
		}
	}
	kit.Write(s.Ping).In(t, kit.Namespace, kit.Now(t, s), ids...)
	for i, state := range kit.Lookup(t, s, ids...) {
		require.Equal(t, i%3 == 1, state.Left, "%q", ids[i])
	}
	require.Equal(t, want, Details(t, s, ids...))
	for _, id := range ids {
		kit.Forget(t, s, id)
	}
	require.Empty(t, Details(t, s, ids...))
}

// testAvailabilityNamespaces: users of one name in two namespaces are two users.
func testAvailabilityNamespaces(t *testing.T, s store.Store) {
	at := kit.Now(t, s)
	SetIn(t, s, "first", "alice", Busy, at)
	SetIn(t, s, "second", "alice", Invisible, at)
	kit.Write(s.Ping).In(t, "first", at, "alice")
	kit.Write(s.Ping).In(t, "second", at, "alice")
	kit.Write(s.Ping).In(t, "third", at, "alice")
	require.Equal(t, store.Details{Availability: Busy}, DetailsIn(t, s, "first", "alice")["alice"])
	require.Empty(t, DetailsIn(t, s, "second", "alice"))
	require.Empty(t, DetailsIn(t, s, "third", "alice"))
	require.Equal(t, Invisible, getIn(t, s, "second", "alice", at))
	require.Equal(t, Nothing, getIn(t, s, "third", "alice", at))
	for name, want := range map[string]lastseen.State{
		"first": kit.Here(at), "second": kit.Left(at), "third": kit.Here(at),
	} {
		states, _, err := s.Describe(context.Background(), name, []string{"alice"})
		require.NoError(t, err)
		require.Equal(t, want, states[0], name)
	}
	require.Equal(t, []string{"first", "second", "third"}, kit.Existing(t, s))
}

// testAvailabilityMany: one call describes many users, in the order asked, also twice, and most of them without
// details.
func testAvailabilityMany(t *testing.T, s store.Store) {
	names := kit.Crowd(t, s, 2000)
	want := map[string]store.Details{}
	for i := 0; i < len(names); i += 20 {
		what := State(lastseen.Away, names[i])
		require.Equal(t, kit.Here(kit.Base), Set(t, s, names[i], what))
		want[names[i]] = store.Details{Availability: what}
	}
	require.Equal(t, want, Details(t, s, names...))
	asked := []string{names[40], "nobody", names[1], names[40], names[20]}
	require.Equal(t, map[string]store.Details{names[40]: want[names[40]], names[20]: want[names[20]]},
		Details(t, s, asked...))
	require.Empty(t, Details(t, s, names[1:20]...))
	require.Empty(t, Details(t, s))
}

// testAvailabilityEnds: an availability ends by itself, at the same instant for everyone.
func testAvailabilityEnds(t *testing.T, s store.Store) {
	start := kit.Now(t, s)
	end := start - 30*kit.Minute
	kit.Ping(t, s, "alice", start-70*kit.Minute)
	require.Equal(t, kit.Here(start-70*kit.Minute), SetAt(t, s, "alice", Until(end, Busy), start-60*kit.Minute))
	require.Equal(t, Nothing, Get(t, s, "alice", end))
	require.Equal(t, Nothing, Get(t, s, "alice", start))
	Require(t, s, "alice", Nothing)
	require.Equal(t, kit.Here(start), kit.Ping(t, s, "alice", start))
	Require(t, s, "alice", Nothing)

	Set(t, s, "bob", Until(start+60*kit.Minute, Busy))
	require.Equal(t, Busy.Note, Get(t, s, "bob", start+60*kit.Minute-1).Note, "one millisecond is left")
	require.Equal(t, Nothing, Get(t, s, "bob", start+60*kit.Minute))
	Require(t, s, "bob", Until(start+60*kit.Minute, Busy))
}

// testAvailabilityEndedBefore: an availability that has ended when it is set is recorded as nothing.
func testAvailabilityEndedBefore(t *testing.T, s store.Store) {
	start := kit.Now(t, s)
	for i, what := range []lastseen.AvailabilityState{Busy, State("", "a note"), Invisible} {
		user := fmt.Sprint("user", i)
		for _, end := range []lastseen.Instant{lastseen.MinInstant, kit.Base, start - kit.Minute, start} {
			require.Zero(t, SetAt(t, s, user, Until(end, what), start))
			require.Empty(t, kit.Existing(t, s), "saying nothing does not create a namespace")
			Require(t, s, user, Nothing)
			require.Equal(t, Nothing, Get(t, s, user, end-1), "nothing was recorded")
		}
	}
	Set(t, s, "alice", Busy)
	require.Zero(t, SetAt(t, s, "alice", Until(start-1, Away), start))
	Require(t, s, "alice", Nothing)
	require.Equal(t, kit.Here(start), kit.Ping(t, s, "alice", start), "she was not invisible")
	require.Equal(t, kit.Here(start), SetAt(t, s, "alice", Until(start-1, Invisible), start))
	require.Equal(t, kit.Here(start+1), kit.Ping(t, s, "alice", start+1), "she was not invisible")
}

// testAvailabilityAhead: a caller's clock that is too far ahead ends nothing.
func testAvailabilityAhead(t *testing.T, s store.Store) {
	start := kit.Now(t, s)
	years := start.Add(20 * 365 * 24 * time.Hour)
	for i, at := range []lastseen.Instant{start.Add(time.Hour), years, lastseen.MaxInstant} {
		user := fmt.Sprint("user", i)
		SetAt(t, s, user, Until(start+30*kit.Minute, Busy), at)
		Require(t, s, user, Until(start+30*kit.Minute, Busy))
	}
	SetAt(t, s, "near", Until(start+1000, Busy), start+3000)
	require.Equal(t, Nothing, Get(t, s, "near", start), "it had ended by then")
}

// testAvailabilityWithWrongTimes: nothing is deleted because a caller's time is past its end.
func testAvailabilityWithWrongTimes(t *testing.T, s store.Store) {
	start := kit.Now(t, s)
	hour, ctx := Until(start+60*kit.Minute, Busy), context.Background()
	Set(t, s, "alice", hour)
	SetAt(t, s, "bob", Until(start+60*kit.Minute, Invisible), start)
	for _, at := range []lastseen.Instant{start + 90*kit.Minute, lastseen.MaxInstant} {
		require.Equal(t, Nothing, Get(t, s, "alice", at))
		require.Equal(t, Nothing, Get(t, s, "bob", at))
		SetAt(t, s, "other", Away, at)
		kit.Ping(t, s, "other", at)
		_, err := s.Trim(ctx, kit.Namespace, store.TrimQuery{Age: time.Hour, Now: at, All: true})
		require.ErrorIs(t, err, store.ErrClockMoved)
		Require(t, s, "alice", hour)
		requireInvisible(t, s, "bob", Until(start+60*kit.Minute, Invisible), kit.Left(start), Nothing)
	}
	for range 3 { // time that passed by the store's clock, but not by the caller's
		SetAt(t, s, "carol", Until(start-30*kit.Minute, Busy), start-60*kit.Minute)
		SetAt(t, s, "other", Away, start-50*kit.Minute)
		require.Equal(t, Until(start-30*kit.Minute, Busy), Get(t, s, "carol", start-40*kit.Minute))
	}
}

// testAvailabilityEndAlone: an end without an availability and a note clears the availability before.
func testAvailabilityEndAlone(t *testing.T, s store.Store) {
	start := kit.Now(t, s)
	end := Until(start+60*kit.Minute, Nothing)
	require.Zero(t, SetAt(t, s, "alice", end, start))
	require.Empty(t, kit.Existing(t, s), "it creates no namespace")
	Require(t, s, "alice", Nothing)
	SetAt(t, s, "alice", Busy, start)
	SetAt(t, s, "bob", Invisible, start-60*kit.Minute)
	for _, user := range []string{"alice", "bob"} {
		SetAt(t, s, user, end, start-30*kit.Minute)
		Require(t, s, user, Nothing)
	}
	require.Empty(t, Details(t, s, "alice", "bob"))
	require.Equal(t, kit.Here(start), kit.Ping(t, s, "bob", start), "the hidden time has ended")
	kit.Forget(t, s, "alice", "bob")
	require.True(t, kit.RemoveEmpty(t, s, kit.Namespace))
}
