package changes

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/kit"
)

// testChangesOfWrites: a write that changes the published presence appends an entry, and other writes append none.
func testChangesOfWrites(t *testing.T, s store.Store) {
	f := Begin(t, s)
	at := f.start
	before := kit.Now(t, s)
	f.ping("alice", at)
	entries, end := f.all(f.positions, 10)
	recorded := entries[0].Recorded
	require.GreaterOrEqual(t, recorded, before.Add(-time.Second))
	require.LessOrEqual(t, recorded, kit.Now(t, s).Add(time.Second))
	require.Equal(t, []store.Change{entry("alice", neverSeen(), isHere(at, lastseen.Green))}, bare(entries))
	f.positions = end

	f.ping("alice", at+1)
	f.ping("alice", at)
	f.requireEntries() // the time alone changed, or nothing
	f.leave("alice", at+2)
	f.requireEntries(entry("alice", isHere(at+1, lastseen.Green), hasLeft(at+2)))
	f.leave("alice", at+3)
	f.ping("alice", at+1)
	f.requireEntries() // the time alone changed, or nothing
	f.ping("alice", at+4)
	f.requireEntries(entry("alice", hasLeft(at+3), isHere(at+4, lastseen.Green)))
}

// testChangesOfBatch: a call about several users appends an entry for each whose presence changes. A user named twice
// may change twice, since a call may be carried out in parts.
func testChangesOfBatch(t *testing.T, s store.Store) {
	f := Begin(t, s)
	at := f.start
	f.ping("known", at)
	f.Read()
	names := []string{"a", "b", "c", "d", "known", "e"}
	kit.Write(s.Ping).In(t, kit.Namespace, at, names...)
	got := byUser(f.Read())
	require.Len(t, got, len(names)-1)
	for user, entries := range got {
		require.Equal(t, []store.Change{entry(user, neverSeen(), isHere(at, lastseen.Green))}, entries)
	}
	kit.Write(s.Leave).In(t, kit.Namespace, at+1, names...)
	got = byUser(f.Read())
	require.Len(t, got, len(names))
	for user, entries := range got {
		require.Equal(t, []store.Change{entry(user, isHere(at, lastseen.Green), hasLeft(at+1))}, entries)
	}

	kit.Write(s.Ping).Send(t, kit.Namespace, []store.PresenceEvent{
		{User: "twice", At: f.greyAt(500)},
		{User: "other", At: at},
		{User: "twice", At: at},
		{User: "twice", At: f.greyAt(0)},
	})
	entries := byUser(f.Read())["twice"]
	require.NotEmpty(t, entries)
	requireChain(t, neverSeen(), entries)
	require.Equal(t, isHere(at, lastseen.Green), entries[len(entries)-1].Published)
}

// requireChain checks that each entry of a user continues from the one before it.
func requireChain(t require.TestingT, was store.Published, entries []store.Change) {
	for _, c := range entries {
		require.Equal(t, was.Status, c.WasStatus, "%+v", entries)
		require.Equal(t, was.Left, c.WasLeft, "%+v", entries)
		require.Equal(t, was.Details, c.Was, "%+v", entries)
		was = c.Published
	}
}

// testChangesOfWritesAhead: an entry has the time that was recorded.
func testChangesOfWritesAhead(t *testing.T, s store.Store) {
	f := Begin(t, s)
	states := []lastseen.State{kit.Ping(t, s, "alice", lastseen.MaxInstant), kit.Ping(t, s, "bob", f.start+1)}
	require.Less(t, states[0].At, f.start+kit.Minute)
	require.Equal(t, map[string][]store.Change{
		"alice": {entry("alice", neverSeen(), isHere(states[0].At, lastseen.Green))},
		"bob":   {entry("bob", neverSeen(), isHere(f.start+1, lastseen.Green))},
	}, byUser(f.Read()))
	state := kit.Leave(t, s, "bob", lastseen.MaxInstant)
	if state.Left { // the clock has passed the ping
		f.requireEntries(entry("bob", isHere(f.start+1, lastseen.Green), hasLeft(state.At)))
	} else {
		f.requireEntries()
	}
}

// testChangesOfUserIDs: any user ID arrives as it was written.
func testChangesOfUserIDs(t *testing.T, s store.Store) {
	f := Begin(t, s)
	ids := kit.OddIDs()
	kit.Write(s.Ping).In(t, kit.Namespace, f.yellowAt(100), ids...)
	sent := byUser(f.Read())
	require.Equal(t, len(ids), f.advance(200))
	turned, snapshot := byUser(f.Read()), f.snapshot(ids...)
	for i, id := range ids {
		require.Len(t, sent[id], 1, "%q", id)
		require.Len(t, turned[id], 1, "%q", id)
		require.Equal(t, lastseen.Yellow, snapshot.Users[i].Status, "%q", id)
		kit.Forget(t, s, id)
	}
	forgotten := byUser(f.Read())
	for _, id := range ids {
		require.Len(t, forgotten[id], 1, "%q", id)
	}
}

// testChangesOfForgetAndPing: a user who is forgotten appears once as never seen, even if a ping arrives at the same
// time.
func testChangesOfForgetAndPing(t *testing.T, s store.Store) {
	const users = 40
	f := Begin(t, s)
	names := crowdAt(t, s, users, f.start)
	f.Read()
	var wg sync.WaitGroup
	for _, user := range names {
		wg.Go(func() {
			if err := s.Forget(context.Background(), kit.Namespace, user); err != nil {
				t.Error(err)
			}
		})
		wg.Go(func() {
			if _, err := s.Ping(context.Background(), kit.Namespace, kit.Events(f.start, user)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	entries, snapshot := byUser(f.Read()), f.snapshot(names...)
	for i, user := range names {
		was := isHere(f.start, lastseen.Green)
		want := []store.Change{entry(user, was, neverSeen())}
		if snapshot.Users[i].Known() { // the ping came later
			want = append(want, entry(user, neverSeen(), was))
		}
		require.Equal(t, want, entries[user])
	}
}

// testChangesOfTrimmedNamespace: a feed continues when no users are left.
func testChangesOfTrimmedNamespace(t *testing.T, s store.Store) {
	f := Begin(t, s)
	names := make([]string, 1000)
	for i := range names {
		names[i] = fmt.Sprint(strings.Repeat("long", 50), i)
	}
	kit.Write(s.Ping).In(t, kit.Namespace, kit.Base, names...)
	for n := 0; len(kit.Remaining(t, s)) > 0; n++ {
		kit.Trim(t, s, kit.Namespace, kit.Base+kit.Minute, true)
		require.Less(t, n, 100)
	}
	f.ping("alice", f.start)
	f.requireEntries(entry("alice", neverSeen(), isHere(f.start, lastseen.Green)))
}

// testTrimWithoutFeed: a feed that was there holds no users back.
func testTrimWithoutFeed(t *testing.T, s store.Store) {
	Begin(t, s)
	require.NoError(t, s.DeleteNamespace(context.Background(), kit.Namespace))
	at := kit.Now(t, s)
	kit.Ping(t, s, "alice", at-kit.Minute)
	require.Equal(t, store.TrimResult{Deleted: 1}, kit.Trim(t, s, kit.Namespace, at-kit.Minute/2, true))
}

// testChangesOfContacts: each call that changes contacts appends that, whether the owner was seen or not, and without
// an effect on what is told of presences.
func testChangesOfContacts(t *testing.T, s store.Store) {
	ctx, f := context.Background(), Begin(t, s)
	changed := store.Change{User: "alice", Contacts: true}
	require.NoError(t, s.SetContacts(ctx, f.namespace, "alice", []string{"bob", "carol"}))
	f.requireEntries(changed)
	require.NoError(t, s.SetContacts(ctx, f.namespace, "alice", []string{"carol", "bob"}))
	require.NoError(t, s.ChangeContacts(ctx, f.namespace, "alice", []string{"bob"}, []string{"dan"}))
	f.requireEntries()
	f.ping("alice", f.start)
	require.NoError(t, s.ChangeContacts(ctx, f.namespace, "alice", []string{"dan"}, []string{"bob"}))
	require.NoError(t, s.ChangeContacts(ctx, f.namespace, "alice", nil, []string{"dan"}))
	f.leave("alice", f.start)
	f.requireEntries(
		entry("alice", neverSeen(), isHere(f.start, lastseen.Green)), changed, changed,
		entry("alice", isHere(f.start, lastseen.Green), hasLeft(f.start)))
	kit.Forget(t, s, "alice")
	require.ElementsMatch(t, []store.Change{entry("alice", hasLeft(f.start), neverSeen()), changed}, f.Read())

	many := make([]string, 1200)
	for i := range many {
		many[i] = strconv.Itoa(i)
	}
	for _, contacts := range [][]string{many, nil} { // in one step, or in several
		require.NoError(t, s.SetContacts(ctx, f.namespace, "alice", contacts))
		entries := f.Read()
		require.NotEmpty(t, entries)
		require.Equal(t, slices.Repeat([]store.Change{changed}, len(entries)), entries)
	}
}
