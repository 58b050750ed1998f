package storetest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// testSaid: what a user says is what others see, until the user says something else.
func testSaid(t *testing.T, s store.Store) {
	at := now(t, s)
	ping(t, s, "alice", at)
	for _, what := range []lastseen.Said{
		busy, away, said(lastseen.Busy, ""), said("", "a note alone"), until(at+60*minute, busy),
		until(at+90*minute, said("", "for a while")), until(lastseen.MaxInstant, away), nothing, busy,
	} {
		for range 2 { // repeating it changes nothing
			require.Equal(t, here(at), say(t, s, "alice", what))
			requireSaid(t, s, "alice", what)
		}
		require.Equal(t, what, saying(t, s, "alice", at-60*minute), "since when is not kept")
	}
	requireSaid(t, s, "bob", nothing)
	require.Equal(t, []string{"alice"}, remaining(t, s), "bob does not exist")
}

// testSaidOfNeverSeen: a user without a state can say something, and is still never seen.
func testSaidOfNeverSeen(t *testing.T, s store.Store) {
	require.Zero(t, say(t, s, "alice", nothing))
	require.Empty(t, existing(t, s), "saying nothing does not create a namespace")
	require.Zero(t, say(t, s, "alice", busy))
	require.Equal(t, []store.NamespaceInfo{{Name: ns}}, namespaces(t, s, 10), "saying something creates it")
	requireSaid(t, s, "alice", busy)
	require.Zero(t, lookup(t, s, "alice")[0])
	require.Empty(t, remaining(t, s))
	require.Equal(t, []int64{0, 0}, count(t, s, everyone()...))
	newest, err := s.Newest(context.Background(), ns)
	require.NoError(t, err)
	require.Zero(t, newest)

	require.Equal(t, here(base), ping(t, s, "alice", base))
	require.Equal(t, left(base), leave(t, s, "alice", base))
	requireSaid(t, s, "alice", busy)
	require.Equal(t, left(base), say(t, s, "alice", nothing))
	requireSaid(t, s, "alice", nothing)
}

// testSaidReplaced: the last call counts, whatever the times are.
func testSaidReplaced(t *testing.T, s store.Store) {
	start := now(t, s)
	for i, c := range []struct{ first, second lastseen.Said }{
		{busy, away},
		{busy, said(lastseen.Busy, "another note")},
		{until(start+60*minute, busy), away},
		{away, until(start+60*minute, away)},
		{until(start+60*minute, busy), until(start+30*minute, busy)},
		{until(start+60*minute, busy), until(start+90*minute, busy)},
		{said("", "a note"), nothing},
	} {
		user := fmt.Sprint("user", i)
		for _, what := range []lastseen.Said{c.first, c.second, c.first} {
			say(t, s, user, what)
			requireSaid(t, s, user, what)
		}
		sayAt(t, s, user, c.second, start-10*minute)
		requireSaid(t, s, user, c.second)
	}
}

// oddNotes are valid notes that look like something else to a store, and the longest ones.
func oddNotes() []string {
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
	start := now(t, s)
	for i, note := range oddNotes() {
		require.NoError(t, lastseen.CheckNote(note))
		user := fmt.Sprint("user", i)
		for _, what := range []lastseen.Said{
			said("", note), said(lastseen.Away, note), until(start+60*minute, said(lastseen.Busy, note)),
		} {
			say(t, s, user, what)
			requireSaid(t, s, user, what)
		}
		for _, what := range []lastseen.Said{
			said(lastseen.Invisible, note), until(start+60*minute, said(lastseen.Invisible, note)),
		} {
			sayAt(t, s, user, what, start)
			requireInvisible(t, s, user, what, left(start), until(start+60*minute, said(lastseen.Busy, note)))
		}
	}
}

// testSaidOfUserIDs: any user ID works.
func testSaidOfUserIDs(t *testing.T, s store.Store) {
	start := now(t, s)
	ids, want := oddIDs(), map[string]store.Details{}
	for i, id := range ids {
		if i%3 == 0 {
			continue // says nothing
		}
		what := until(start+60*minute, said(lastseen.Busy, fmt.Sprint(i)))
		say(t, s, id, what)
		want[id] = store.Details{Said: what}
	}
	require.Equal(t, want, details(t, s, ids...))
	for i, id := range ids {
		if i%3 == 1 {
			sayAt(t, s, id, invisible, start)
		}
	}
	write(s.Ping).in(t, ns, now(t, s), ids...)
	for i, state := range lookup(t, s, ids...) {
		require.Equal(t, i%3 == 1, state.Left, "%q", ids[i])
	}
	require.Equal(t, want, details(t, s, ids...))
	for _, id := range ids {
		forget(t, s, id)
	}
	require.Empty(t, details(t, s, ids...))
}

// testSaidLeavesStates: what is said does not change a state, and a state does not change what is said.
func testSaidLeavesStates(t *testing.T, s store.Store) {
	at := now(t, s)
	for user, state := range map[string]lastseen.State{
		"present": here(at), "left": left(at), "old": here(base), "gone": left(base), "unknown": {},
	} {
		switch {
		case state.Left:
			leave(t, s, user, state.At)
		case state.Known():
			ping(t, s, user, state.At)
		}
		require.Equal(t, state, say(t, s, user, busy))
		require.Equal(t, state, lookup(t, s, user)[0])
		require.Equal(t, here(at+1), ping(t, s, user, at+1))
		require.Equal(t, left(at+1), leave(t, s, user, at+1))
		require.Equal(t, left(at+1), say(t, s, user, busy))
		requireSaid(t, s, user, busy)
	}
	require.Equal(t, []store.NamespaceInfo{{Name: ns, Newest: at + 1}}, namespaces(t, s, 10))
}

// testSaidNamespaces: users of one name in two namespaces are two users.
func testSaidNamespaces(t *testing.T, s store.Store) {
	at := now(t, s)
	sayIn(t, s, "first", "alice", busy, at)
	sayIn(t, s, "second", "alice", invisible, at)
	write(s.Ping).in(t, "first", at, "alice")
	write(s.Ping).in(t, "second", at, "alice")
	write(s.Ping).in(t, "third", at, "alice")
	require.Equal(t, store.Details{Said: busy}, detailsIn(t, s, "first", "alice")["alice"])
	require.Empty(t, detailsIn(t, s, "second", "alice"))
	require.Empty(t, detailsIn(t, s, "third", "alice"))
	require.Equal(t, invisible, sayingIn(t, s, "second", "alice", at))
	require.Equal(t, nothing, sayingIn(t, s, "third", "alice", at))
	for name, want := range map[string]lastseen.State{"first": here(at), "second": left(at), "third": here(at)} {
		states, err := s.Lookup(context.Background(), name, []string{"alice"})
		require.NoError(t, err)
		require.Equal(t, want, states[0], name)
	}
	require.Equal(t, []string{"first", "second", "third"}, existing(t, s))
}

// testSaidMany: one call describes many users, in the order asked, also twice, and most of them without details.
func testSaidMany(t *testing.T, s store.Store) {
	names := crowd(t, s, 2000)
	want := map[string]store.Details{}
	for i := 0; i < len(names); i += 20 {
		what := said(lastseen.Away, names[i])
		require.Equal(t, here(base), say(t, s, names[i], what))
		want[names[i]] = store.Details{Said: what}
	}
	require.Equal(t, want, details(t, s, names...))
	asked := []string{names[40], "nobody", names[1], names[40], names[20]}
	require.Equal(t, map[string]store.Details{names[40]: want[names[40]], names[20]: want[names[20]]},
		details(t, s, asked...))
	require.Empty(t, details(t, s, names[1:20]...))
	require.Empty(t, details(t, s))
}

// testSaidEnds: what is said ends by itself, at the same instant for everyone.
func testSaidEnds(t *testing.T, s store.Store) {
	start := now(t, s)
	end := start - 30*minute
	ping(t, s, "alice", start-70*minute)
	require.Equal(t, here(start-70*minute), sayAt(t, s, "alice", until(end, busy), start-60*minute))
	require.Equal(t, nothing, saying(t, s, "alice", end))
	require.Equal(t, nothing, saying(t, s, "alice", start))
	requireSaid(t, s, "alice", nothing)
	require.Equal(t, here(start), ping(t, s, "alice", start))
	requireSaid(t, s, "alice", nothing)

	say(t, s, "bob", until(start+60*minute, busy))
	require.Equal(t, busy.Note, saying(t, s, "bob", start+60*minute-1).Note, "one millisecond is left")
	require.Equal(t, nothing, saying(t, s, "bob", start+60*minute))
	requireSaid(t, s, "bob", until(start+60*minute, busy))
}

// testSaidEndedBefore: what has ended when it is said is recorded as nothing.
func testSaidEndedBefore(t *testing.T, s store.Store) {
	start := now(t, s)
	for i, what := range []lastseen.Said{busy, said("", "a note"), invisible} {
		user := fmt.Sprint("user", i)
		for _, end := range []lastseen.Instant{lastseen.MinInstant, base, start - minute, start} {
			require.Zero(t, sayAt(t, s, user, until(end, what), start))
			require.Empty(t, existing(t, s), "saying nothing does not create a namespace")
			requireSaid(t, s, user, nothing)
			require.Equal(t, nothing, saying(t, s, user, end-1), "nothing was recorded")
		}
	}
	say(t, s, "alice", busy)
	require.Zero(t, sayAt(t, s, "alice", until(start-1, away), start))
	requireSaid(t, s, "alice", nothing)
	require.Equal(t, here(start), ping(t, s, "alice", start), "she was not invisible")
	require.Equal(t, here(start), sayAt(t, s, "alice", until(start-1, invisible), start))
	require.Equal(t, here(start+1), ping(t, s, "alice", start+1), "she was not invisible")
}

// testSaidAhead: a caller's clock that is too far ahead ends nothing.
func testSaidAhead(t *testing.T, s store.Store) {
	start := now(t, s)
	years := start.Add(20 * 365 * 24 * time.Hour)
	for i, at := range []lastseen.Instant{start.Add(time.Hour), years, lastseen.MaxInstant} {
		user := fmt.Sprint("user", i)
		sayAt(t, s, user, until(start+30*minute, busy), at)
		requireSaid(t, s, user, until(start+30*minute, busy))
	}
	sayAt(t, s, "near", until(start+1000, busy), start+3000)
	require.Equal(t, nothing, saying(t, s, "near", start), "it had ended by then")
}

// testSaidWithWrongTimes: nothing is deleted because a caller's time is past its end.
func testSaidWithWrongTimes(t *testing.T, s store.Store) {
	start := now(t, s)
	hour, ctx := until(start+60*minute, busy), context.Background()
	say(t, s, "alice", hour)
	sayAt(t, s, "bob", until(start+60*minute, invisible), start)
	for _, at := range []lastseen.Instant{start + 90*minute, lastseen.MaxInstant} {
		require.Equal(t, nothing, saying(t, s, "alice", at))
		require.Equal(t, nothing, saying(t, s, "bob", at))
		sayAt(t, s, "other", away, at)
		ping(t, s, "other", at)
		_, err := s.Trim(ctx, ns, store.TrimQuery{Age: time.Hour, Now: at, All: true})
		require.ErrorIs(t, err, store.ErrClockMoved)
		requireSaid(t, s, "alice", hour)
		requireInvisible(t, s, "bob", until(start+60*minute, invisible), left(start), nothing)
	}
	for range 3 { // time that passed by the store's clock, but not by the caller's
		sayAt(t, s, "carol", until(start-30*minute, busy), start-60*minute)
		sayAt(t, s, "other", away, start-50*minute)
		require.Equal(t, until(start-30*minute, busy), saying(t, s, "carol", start-40*minute))
	}
}

// testSaidEndAlone: an end without an availability and a note says nothing, in place of what was said.
func testSaidEndAlone(t *testing.T, s store.Store) {
	start := now(t, s)
	end := until(start+60*minute, nothing)
	require.Zero(t, sayAt(t, s, "alice", end, start))
	require.Empty(t, existing(t, s), "it creates no namespace")
	requireSaid(t, s, "alice", nothing)
	sayAt(t, s, "alice", busy, start)
	sayAt(t, s, "bob", invisible, start-60*minute)
	for _, user := range []string{"alice", "bob"} {
		sayAt(t, s, user, end, start-30*minute)
		requireSaid(t, s, user, nothing)
	}
	require.Empty(t, details(t, s, "alice", "bob"))
	require.Equal(t, here(start), ping(t, s, "bob", start), "the hidden time has ended")
	forget(t, s, "alice", "bob")
	require.True(t, removeEmpty(t, s, ns))
}
