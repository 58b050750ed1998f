package storetest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// testChangesOfWrites: a write that changes the published presence appends an entry, and other writes append none.
func testChangesOfWrites(t *testing.T, s store.Store) {
	f := begin(t, s)
	at := f.start
	before := now(t, s)
	f.ping("alice", at)
	entries, end := f.all(f.places, 10)
	recorded := entries[0].Recorded
	require.GreaterOrEqual(t, recorded, before.Add(-time.Second))
	require.LessOrEqual(t, recorded, now(t, s).Add(time.Second))
	require.Equal(t, []store.Change{entry("alice", neverSeen(), isHere(at, lastseen.Green))}, bare(entries))
	f.places = end

	f.ping("alice", at+1)
	f.ping("alice", at)
	require.Empty(t, f.read(), "the time alone changed, or nothing")
	f.leave("alice", at+2)
	require.Equal(t, []store.Change{entry("alice", isHere(at+1, lastseen.Green), hasLeft(at+2))}, f.read())
	f.leave("alice", at+3)
	f.ping("alice", at+1)
	require.Empty(t, f.read(), "the time alone changed, or nothing")
	f.ping("alice", at+4)
	require.Equal(t, []store.Change{entry("alice", hasLeft(at+3), isHere(at+4, lastseen.Green))}, f.read())

	yellow, grey := f.decaysGrey(1), f.decaysGrey(0)
	f.ping("bob", yellow)
	require.Equal(t, []store.Change{entry("bob", neverSeen(), isHere(yellow, lastseen.Yellow))}, f.read())
	f.ping("carol", grey)
	require.Empty(t, f.read(), "she was grey, and is")
	require.Equal(t, isHere(grey, lastseen.Grey), f.published("carol"))
	f.ping("carol", yellow)
	f.ping("carol", yellow+1)
	f.ping("carol", at)
	require.Equal(t, []store.Change{
		entry("carol", isHere(grey, lastseen.Grey), isHere(yellow, lastseen.Yellow)),
		entry("carol", isHere(yellow+1, lastseen.Yellow), isHere(at, lastseen.Green)),
	}, f.read(), "an entry has the time of the change")
}

// testChangesOfLeft: writes about long ago change no status, but whether the user left.
func testChangesOfLeft(t *testing.T, s store.Store) {
	f := begin(t, s)
	grey := func(at lastseen.Instant) store.Published { return isHere(at, lastseen.Grey) }
	f.ping("alice", base)
	f.leave("alice", base+10)
	require.Equal(t, []store.Change{entry("alice", grey(base), hasLeft(base+10))}, f.read())
	f.ping("alice", base+9)
	f.ping("alice", base+10)
	require.Empty(t, f.read(), "the leave counts")
	f.ping("alice", base+20)
	require.Equal(t, []store.Change{entry("alice", hasLeft(base+10), grey(base+20))}, f.read())
	f.leave("alice", base+19)
	require.Empty(t, f.read(), "the ping counts")
	f.leave("alice", base+20)
	require.Equal(t, []store.Change{entry("alice", grey(base+20), hasLeft(base+20))}, f.read(),
		"at the same millisecond, the leave counts")
	require.Equal(t, hasLeft(base+20), f.published("alice"))
}

// testChangesOfNeverSeen: a leave of a user who was never seen is no change, but known.
func testChangesOfNeverSeen(t *testing.T, s store.Store) {
	f := begin(t, s)
	for i, at := range []lastseen.Instant{base, f.start} {
		user := fmt.Sprint("user", i)
		f.leave(user, at-2)
		f.leave(user, at-1)
		f.ping(user, at-3)
		require.Empty(t, f.read())
		require.Equal(t, hasLeft(at-1), f.published(user))
		f.ping(user, f.start)
		require.Equal(t, []store.Change{entry(user, hasLeft(at-1), isHere(f.start, lastseen.Green))}, f.read())
	}
}

// testChangesAtWatermark: presences are published as of the watermark, whatever the clock shows.
func testChangesAtWatermark(t *testing.T, s store.Store) {
	f := begin(t, s)
	at := f.decaysYellow(100)
	for _, user := range []string{"pings", "leaves", "stays", "late"} {
		f.ping(user, at)
	}
	f.read()
	require.Zero(t, f.sweep(99))
	f.ping("pings", f.start+500)
	require.Empty(t, f.read(), "green before and after")
	f.leave("leaves", f.start+500)
	require.Equal(t, []store.Change{entry("leaves", isHere(at, lastseen.Green), hasLeft(f.start+500))}, f.read())
	f.ping("late", at+50)
	require.Equal(t, 1, f.sweep(120))
	require.Equal(t, []store.Change{entry("stays", isHere(at, lastseen.Green), isHere(at, lastseen.Yellow))}, f.read())
	require.Equal(t, 1, f.sweep(maxPlayed))
	require.Equal(t, []store.Change{entry("late", isHere(at, lastseen.Green), isHere(at+50, lastseen.Yellow))},
		f.read())
	f.ping("stays", at+1)
	require.Empty(t, f.read(), "late: yellow before and after")
	f.ping("stays", f.start)
	require.Equal(t, []store.Change{entry("stays", isHere(at+1, lastseen.Yellow), isHere(f.start, lastseen.Green))},
		f.read())
}

// testChangesOfBatch: a call about several users appends an entry for each whose presence changes. A user named twice
// may change twice, since a call may be carried out in parts.
func testChangesOfBatch(t *testing.T, s store.Store) {
	f := begin(t, s)
	at := f.start
	f.ping("known", at)
	f.read()
	names := []string{"a", "b", "c", "d", "known", "e"}
	write(s.Ping).in(t, ns, at, names...)
	got := byUser(f.read())
	require.Len(t, got, len(names)-1)
	for user, entries := range got {
		require.Equal(t, []store.Change{entry(user, neverSeen(), isHere(at, lastseen.Green))}, entries)
	}
	write(s.Leave).in(t, ns, at+1, names...)
	got = byUser(f.read())
	require.Len(t, got, len(names))
	for user, entries := range got {
		require.Equal(t, []store.Change{entry(user, isHere(at, lastseen.Green), hasLeft(at+1))}, entries)
	}

	write(s.Ping).send(t, ns, []store.Sighting{
		{User: "twice", At: f.decaysGrey(500)},
		{User: "other", At: at},
		{User: "twice", At: at},
		{User: "twice", At: f.decaysGrey(0)},
	})
	entries := byUser(f.read())["twice"]
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
	f := begin(t, s)
	states := []lastseen.State{ping(t, s, "alice", lastseen.MaxInstant), ping(t, s, "bob", f.start+1)}
	require.Less(t, states[0].At, f.start+minute)
	require.Equal(t, map[string][]store.Change{
		"alice": {entry("alice", neverSeen(), isHere(states[0].At, lastseen.Green))},
		"bob":   {entry("bob", neverSeen(), isHere(f.start+1, lastseen.Green))},
	}, byUser(f.read()))
	state := leave(t, s, "bob", lastseen.MaxInstant)
	if state.Left { // the clock has passed the ping
		require.Equal(t, []store.Change{entry("bob", isHere(f.start+1, lastseen.Green), hasLeft(state.At))}, f.read())
	} else {
		require.Empty(t, f.read())
	}
}

// testChangesOfUserIDs: any user ID arrives as it was written.
func testChangesOfUserIDs(t *testing.T, s store.Store) {
	f := begin(t, s)
	ids := oddIDs()
	write(s.Ping).in(t, ns, f.decaysYellow(100), ids...)
	sent := byUser(f.read())
	require.Equal(t, len(ids), f.sweep(200))
	decayed, snapshot := byUser(f.read()), f.snapshot(ids...)
	for i, id := range ids {
		require.Len(t, sent[id], 1, "%q", id)
		require.Len(t, decayed[id], 1, "%q", id)
		require.Equal(t, lastseen.Yellow, snapshot.Users[i].Status, "%q", id)
		forget(t, s, id)
	}
	forgotten := byUser(f.read())
	for _, id := range ids {
		require.Len(t, forgotten[id], 1, "%q", id)
	}
}

// testChangesOfForget: a user who is forgotten appears once as never seen, whatever was published.
func testChangesOfForget(t *testing.T, s store.Store) {
	f := begin(t, s)
	states := map[string]store.Published{
		"green":  isHere(f.start, lastseen.Green),
		"yellow": isHere(f.decaysGrey(500), lastseen.Yellow),
		"grey":   isHere(base, lastseen.Grey),
		"left":   hasLeft(f.start),
		"old":    hasLeft(base),
	}
	for user, p := range states {
		w := write(s.Ping)
		if p.Left {
			w = s.Leave
		}
		w.in(t, ns, p.At, user)
	}
	f.read()
	for user, p := range states {
		forget(t, s, user, user, "nobody")
		require.Equal(t, []store.Change{entry(user, p, neverSeen())}, f.read())
		require.Equal(t, neverSeen(), f.published(user))
		f.ping(user, f.start-1)
		require.Equal(t, []store.Change{entry(user, neverSeen(), isHere(f.start-1, lastseen.Green))}, f.read(),
			"nothing from before counts")
	}
	require.Zero(t, f.sweep(maxPlayed))
	require.Empty(t, f.read(), "a user who was forgotten does not decay")
}

// testChangesOfForgetAndPing: a user who is forgotten appears once as never seen, even if a ping arrives at the same
// time.
func testChangesOfForgetAndPing(t *testing.T, s store.Store) {
	const users = 40
	f := begin(t, s)
	names := crowdAt(t, s, users, f.start)
	f.read()
	var wg sync.WaitGroup
	for _, user := range names {
		wg.Go(func() {
			if err := s.Forget(context.Background(), ns, user); err != nil {
				t.Error(err)
			}
		})
		wg.Go(func() {
			if _, err := s.Ping(context.Background(), ns, sightings(f.start, user)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	entries, snapshot := byUser(f.read()), f.snapshot(names...)
	for i, user := range names {
		was := isHere(f.start, lastseen.Green)
		want := []store.Change{entry(user, was, neverSeen())}
		if snapshot.Users[i].Known() { // the ping came later
			want = append(want, entry(user, neverSeen(), was))
		}
		require.Equal(t, want, entries[user])
	}
}

// testChangesOfTrim: what a trim deletes was published as grey by its age, and is not in the feed.
func testChangesOfTrim(t *testing.T, s store.Store) {
	f := begin(t, s)
	for name, at := range map[string]lastseen.Instant{
		"old": base, "before": f.decaysGrey(-1), "limit": f.decaysGrey(0), "yellow": f.decaysGrey(100),
		"green": f.start,
	} {
		f.ping("here "+name, at)
		f.leave("left "+name, at)
	}
	f.read()
	trimAll := func() (deleted int) {
		query := store.TrimQuery{Age: time.Millisecond, Now: now(t, s), All: true}
		result, err := s.Trim(context.Background(), ns, query)
		require.NoError(t, err)
		return result.Deleted
	}
	require.Equal(t, 4, trimAll())
	require.Zero(t, trimAll())
	stay := []string{
		"here green", "here limit", "here yellow", "left green", "left limit", "left yellow",
	}
	require.Equal(t, stay, slices.Sorted(slices.Values(remaining(t, s))))
	require.Equal(t, 1, f.sweep(100))
	f.read()
	require.Equal(t, 2, trimAll(), "those at the limit")
	require.Zero(t, f.sweep(101))
	require.Equal(t, 2, trimAll(), "those who were yellow")
	require.Empty(t, f.read(), "a trim is silent")
	require.Equal(t, []string{"here green", "left green"}, slices.Sorted(slices.Values(remaining(t, s))))
}

// testChangesOfTrimmedNamespace: a feed continues when no users are left.
func testChangesOfTrimmedNamespace(t *testing.T, s store.Store) {
	f := begin(t, s)
	names := make([]string, 1000)
	for i := range names {
		names[i] = fmt.Sprint(strings.Repeat("long", 50), i)
	}
	write(s.Ping).in(t, ns, base, names...)
	for n := 0; len(remaining(t, s)) > 0; n++ {
		trim(t, s, ns, base+minute, true)
		require.Less(t, n, 100)
	}
	f.ping("alice", f.start)
	require.Equal(t, []store.Change{entry("alice", neverSeen(), isHere(f.start, lastseen.Green))}, f.read())
}

// testTrimWithoutFeed: a feed that was there holds no users back.
func testTrimWithoutFeed(t *testing.T, s store.Store) {
	begin(t, s)
	require.NoError(t, s.DeleteNamespace(context.Background(), ns))
	at := now(t, s)
	ping(t, s, "alice", at-minute)
	require.Equal(t, store.TrimResult{Deleted: 1}, trim(t, s, ns, at-minute/2, true))
}
