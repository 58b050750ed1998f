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

// testSaid: what a user says is what others see, until the user says something else.
func testSaid(t *testing.T, s store.Store) {
	at := kit.Now(t, s)
	kit.Ping(t, s, "alice", at)
	for _, what := range []lastseen.Said{
		Busy, Away, Said(lastseen.Busy, ""), Said("", "a note alone"), Until(at+60*kit.Minute, Busy),
		Until(at+90*kit.Minute, Said("", "for a while")), Until(lastseen.MaxInstant, Away), Nothing, Busy,
	} {
		for range 2 { // repeating it changes nothing
			require.Equal(t, kit.Here(at), Set(t, s, "alice", what))
			RequireSaid(t, s, "alice", what)
		}
		require.Equal(t, what, Get(t, s, "alice", at-60*kit.Minute), "since when is not kept")
	}
	RequireSaid(t, s, "bob", Nothing)
	require.Equal(t, []string{"alice"}, kit.Remaining(t, s), "bob does not exist")
}

// testSaidOfNeverSeen: a user without a state can say something, and is still never seen.
func testSaidOfNeverSeen(t *testing.T, s store.Store) {
	require.Zero(t, Set(t, s, "alice", Nothing))
	require.Empty(t, kit.Existing(t, s), "saying nothing does not create a namespace")
	require.Zero(t, Set(t, s, "alice", Busy))
	require.Equal(t, []store.NamespaceInfo{{Name: kit.Namespace}}, kit.Namespaces(t, s, 10),
		"saying something creates it")
	RequireSaid(t, s, "alice", Busy)
	require.Zero(t, kit.Lookup(t, s, "alice")[0])
	require.Empty(t, kit.Remaining(t, s))
	require.Equal(t, []int64{0, 0}, kit.Count(t, s, kit.Everyone()...))
	newest, err := s.Newest(context.Background(), kit.Namespace)
	require.NoError(t, err)
	require.Zero(t, newest)

	require.Equal(t, kit.Here(kit.Base), kit.Ping(t, s, "alice", kit.Base))
	require.Equal(t, kit.Left(kit.Base), kit.Leave(t, s, "alice", kit.Base))
	RequireSaid(t, s, "alice", Busy)
	require.Equal(t, kit.Left(kit.Base), Set(t, s, "alice", Nothing))
	RequireSaid(t, s, "alice", Nothing)
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

// testSaidNotes: any note arrives as it was written, whatever is said with it.
func testSaidNotes(t *testing.T, s store.Store) {
	start := kit.Now(t, s)
	for i, note := range OddNotes() {
		require.NoError(t, lastseen.CheckNote(note))
		user := fmt.Sprint("user", i)
		for _, what := range []lastseen.Said{
			Said("", note), Said(lastseen.Away, note), Until(start+60*kit.Minute, Said(lastseen.Busy, note)),
		} {
			Set(t, s, user, what)
			RequireSaid(t, s, user, what)
		}
		for _, what := range []lastseen.Said{
			Said(lastseen.Invisible, note), Until(start+60*kit.Minute, Said(lastseen.Invisible, note)),
		} {
			SayAt(t, s, user, what, start)
			requireInvisible(t, s, user, what, kit.Left(start), Until(start+60*kit.Minute, Said(lastseen.Busy, note)))
		}
	}
}

// testSaidOfUserIDs: any user ID works.
func testSaidOfUserIDs(t *testing.T, s store.Store) {
	start := kit.Now(t, s)
	ids, want := kit.OddIDs(), map[string]store.Details{}
	for i, id := range ids {
		if i%3 == 0 {
			continue // says nothing
		}
		what := Until(start+60*kit.Minute, Said(lastseen.Busy, fmt.Sprint(i)))
		Set(t, s, id, what)
		want[id] = store.Details{Said: what}
	}
	require.Equal(t, want, Details(t, s, ids...))
	for i, id := range ids {
		if i%3 == 1 {
			SayAt(t, s, id, Invisible, start)
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

// testSaidNamespaces: users of one name in two namespaces are two users.
func testSaidNamespaces(t *testing.T, s store.Store) {
	at := kit.Now(t, s)
	SayIn(t, s, "first", "alice", Busy, at)
	SayIn(t, s, "second", "alice", Invisible, at)
	kit.Write(s.Ping).In(t, "first", at, "alice")
	kit.Write(s.Ping).In(t, "second", at, "alice")
	kit.Write(s.Ping).In(t, "third", at, "alice")
	require.Equal(t, store.Details{Said: Busy}, DetailsIn(t, s, "first", "alice")["alice"])
	require.Empty(t, DetailsIn(t, s, "second", "alice"))
	require.Empty(t, DetailsIn(t, s, "third", "alice"))
	require.Equal(t, Invisible, sayingIn(t, s, "second", "alice", at))
	require.Equal(t, Nothing, sayingIn(t, s, "third", "alice", at))
	for name, want := range map[string]lastseen.State{
		"first": kit.Here(at), "second": kit.Left(at), "third": kit.Here(at),
	} {
		states, err := s.Lookup(context.Background(), name, []string{"alice"})
		require.NoError(t, err)
		require.Equal(t, want, states[0], name)
	}
	require.Equal(t, []string{"first", "second", "third"}, kit.Existing(t, s))
}

// testSaidMany: one call describes many users, in the order asked, also twice, and most of them without details.
func testSaidMany(t *testing.T, s store.Store) {
	names := kit.Crowd(t, s, 2000)
	want := map[string]store.Details{}
	for i := 0; i < len(names); i += 20 {
		what := Said(lastseen.Away, names[i])
		require.Equal(t, kit.Here(kit.Base), Set(t, s, names[i], what))
		want[names[i]] = store.Details{Said: what}
	}
	require.Equal(t, want, Details(t, s, names...))
	asked := []string{names[40], "nobody", names[1], names[40], names[20]}
	require.Equal(t, map[string]store.Details{names[40]: want[names[40]], names[20]: want[names[20]]},
		Details(t, s, asked...))
	require.Empty(t, Details(t, s, names[1:20]...))
	require.Empty(t, Details(t, s))
}

// testSaidEnds: what is said ends by itself, at the same instant for everyone.
func testSaidEnds(t *testing.T, s store.Store) {
	start := kit.Now(t, s)
	end := start - 30*kit.Minute
	kit.Ping(t, s, "alice", start-70*kit.Minute)
	require.Equal(t, kit.Here(start-70*kit.Minute), SayAt(t, s, "alice", Until(end, Busy), start-60*kit.Minute))
	require.Equal(t, Nothing, Get(t, s, "alice", end))
	require.Equal(t, Nothing, Get(t, s, "alice", start))
	RequireSaid(t, s, "alice", Nothing)
	require.Equal(t, kit.Here(start), kit.Ping(t, s, "alice", start))
	RequireSaid(t, s, "alice", Nothing)

	Set(t, s, "bob", Until(start+60*kit.Minute, Busy))
	require.Equal(t, Busy.Note, Get(t, s, "bob", start+60*kit.Minute-1).Note, "one millisecond is left")
	require.Equal(t, Nothing, Get(t, s, "bob", start+60*kit.Minute))
	RequireSaid(t, s, "bob", Until(start+60*kit.Minute, Busy))
}

// testSaidEndedBefore: what has ended when it is said is recorded as nothing.
func testSaidEndedBefore(t *testing.T, s store.Store) {
	start := kit.Now(t, s)
	for i, what := range []lastseen.Said{Busy, Said("", "a note"), Invisible} {
		user := fmt.Sprint("user", i)
		for _, end := range []lastseen.Instant{lastseen.MinInstant, kit.Base, start - kit.Minute, start} {
			require.Zero(t, SayAt(t, s, user, Until(end, what), start))
			require.Empty(t, kit.Existing(t, s), "saying nothing does not create a namespace")
			RequireSaid(t, s, user, Nothing)
			require.Equal(t, Nothing, Get(t, s, user, end-1), "nothing was recorded")
		}
	}
	Set(t, s, "alice", Busy)
	require.Zero(t, SayAt(t, s, "alice", Until(start-1, Away), start))
	RequireSaid(t, s, "alice", Nothing)
	require.Equal(t, kit.Here(start), kit.Ping(t, s, "alice", start), "she was not invisible")
	require.Equal(t, kit.Here(start), SayAt(t, s, "alice", Until(start-1, Invisible), start))
	require.Equal(t, kit.Here(start+1), kit.Ping(t, s, "alice", start+1), "she was not invisible")
}

// testSaidAhead: a caller's clock that is too far ahead ends nothing.
func testSaidAhead(t *testing.T, s store.Store) {
	start := kit.Now(t, s)
	years := start.Add(20 * 365 * 24 * time.Hour)
	for i, at := range []lastseen.Instant{start.Add(time.Hour), years, lastseen.MaxInstant} {
		user := fmt.Sprint("user", i)
		SayAt(t, s, user, Until(start+30*kit.Minute, Busy), at)
		RequireSaid(t, s, user, Until(start+30*kit.Minute, Busy))
	}
	SayAt(t, s, "near", Until(start+1000, Busy), start+3000)
	require.Equal(t, Nothing, Get(t, s, "near", start), "it had ended by then")
}

// testSaidWithWrongTimes: nothing is deleted because a caller's time is past its end.
func testSaidWithWrongTimes(t *testing.T, s store.Store) {
	start := kit.Now(t, s)
	hour, ctx := Until(start+60*kit.Minute, Busy), context.Background()
	Set(t, s, "alice", hour)
	SayAt(t, s, "bob", Until(start+60*kit.Minute, Invisible), start)
	for _, at := range []lastseen.Instant{start + 90*kit.Minute, lastseen.MaxInstant} {
		require.Equal(t, Nothing, Get(t, s, "alice", at))
		require.Equal(t, Nothing, Get(t, s, "bob", at))
		SayAt(t, s, "other", Away, at)
		kit.Ping(t, s, "other", at)
		_, err := s.Trim(ctx, kit.Namespace, store.TrimQuery{Age: time.Hour, Now: at, All: true})
		require.ErrorIs(t, err, store.ErrClockMoved)
		RequireSaid(t, s, "alice", hour)
		requireInvisible(t, s, "bob", Until(start+60*kit.Minute, Invisible), kit.Left(start), Nothing)
	}
	for range 3 { // time that passed by the store's clock, but not by the caller's
		SayAt(t, s, "carol", Until(start-30*kit.Minute, Busy), start-60*kit.Minute)
		SayAt(t, s, "other", Away, start-50*kit.Minute)
		require.Equal(t, Until(start-30*kit.Minute, Busy), Get(t, s, "carol", start-40*kit.Minute))
	}
}

// testSaidEndAlone: an end without an availability and a note says nothing, in place of what was said.
func testSaidEndAlone(t *testing.T, s store.Store) {
	start := kit.Now(t, s)
	end := Until(start+60*kit.Minute, Nothing)
	require.Zero(t, SayAt(t, s, "alice", end, start))
	require.Empty(t, kit.Existing(t, s), "it creates no namespace")
	RequireSaid(t, s, "alice", Nothing)
	SayAt(t, s, "alice", Busy, start)
	SayAt(t, s, "bob", Invisible, start-60*kit.Minute)
	for _, user := range []string{"alice", "bob"} {
		SayAt(t, s, user, end, start-30*kit.Minute)
		RequireSaid(t, s, user, Nothing)
	}
	require.Empty(t, Details(t, s, "alice", "bob"))
	require.Equal(t, kit.Here(start), kit.Ping(t, s, "bob", start), "the hidden time has ended")
	kit.Forget(t, s, "alice", "bob")
	require.True(t, kit.RemoveEmpty(t, s, kit.Namespace))
}
