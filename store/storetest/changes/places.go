package changes

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/kit"
)

// someChanges makes n users arrive and the even ones leave.
func someChanges(f *feed, n int) {
	for i := range n {
		f.ping(fmt.Sprint("u", i), f.start)
		if i%2 == 0 {
			f.leave(fmt.Sprint("u", i), f.start)
		}
	}
}

// byShard returns the entries of each shard.
func byShard(entries []store.Change) map[int][]store.Change {
	shards := map[int][]store.Change{}
	for _, c := range entries {
		shards[c.Shard] = append(shards[c.Shard], c)
	}
	return shards
}

// testPlacesOfEntries: reading a shard on from the place of an entry returns what follows it.
func testPlacesOfEntries(t *testing.T, s store.Store) {
	f := Begin(t, s)
	someChanges(f, 10)
	all, end := f.all(f.places, store.MaxChangesRead)
	shards := byShard(all)
	for shard, entries := range shards {
		for i, c := range entries {
			after := slices.Clone(f.places)
			after[shard] = c.Place
			got, last := f.all(after, 3)
			require.Equal(t, end, last)
			want := maps.Clone(shards)
			if want[shard] = entries[i+1:]; len(want[shard]) == 0 {
				delete(want, shard)
			}
			require.Equal(t, want, byShard(got))
		}
	}
}

// testPlacesInvalid: what is not a place of the feed is a reset, and no error.
func testPlacesInvalid(t *testing.T, s store.Store) {
	f := Begin(t, s)
	someChanges(f, 5)
	for _, place := range []store.Place{
		"", " ", "-", "0", "0-0", "0-0/0", "$", "*", "+", "(", "1/", "/1", "-1/1", "1/-1", "1.5/1", "NaN/NaN",
		"\x00", "\xff\xfe",
		"9999999999999-0/1", "18446744073709551615-18446744073709551615/4503599627370495",
		"99999999999999999999999999/99999999999999999999999999", "1e3/1e3", "0x1/0x1", "inf/inf",
		store.Place(strings.Repeat("9", 100_000)), store.Place(strings.Repeat("x/", 100_000)),
	} {
		after := slices.Repeat([]store.Place{place}, len(f.places))
		require.Equal(t, f.readFrom(nil, 1).Places, f.requireReset(after, string(place[:min(50, len(place))])))
		after = slices.Clone(f.places)
		after[len(after)-1] = place
		f.requireReset(after, "one place of several")
	}
	f.requireReset(append(slices.Clone(f.places), f.places[0]), "too many places")
	f.requireReset(append(slices.Clone(f.places), ""), "too many places")
	f.requireReset(slices.Repeat(f.places, 10_000), "too many places")
	if len(f.places) > 1 {
		f.requireReset(f.places[1:], "too few places")
		f.requireReset(append(slices.Clone(f.places[1:]), f.places[0]), "places of other shards")
	}
	require.Len(t, f.Read(), 8)
}

// testPlacesAltered: whatever a caller makes of a place, the result is a reset, or what follows some place.
func testPlacesAltered(t *testing.T, s store.Store) {
	f := Begin(t, s)
	someChanges(f, 6)
	entries, end := f.all(f.places, 100)
	shard := entries[0].Shard
	all := byShard(entries)[shard]
	var reads []*store.ChangesRead
	for _, place := range alterations(all[0].Place) {
		after := slices.Clone(end)
		after[shard] = place
		reads = append(reads, &store.ChangesRead{Namespace: kit.Namespace, After: after, Limit: 100})
	}
	s.ReadChanges(context.Background(), reads)
	resets := 0
	for _, read := range reads {
		require.NoError(t, read.Err)
		require.Equal(t, end, read.Places)
		require.LessOrEqual(t, len(read.Changes), len(all))
		if read.Reset {
			resets++
			require.Empty(t, read.Changes)
		}
		following := append([]store.Change{}, all[len(all)-len(read.Changes):]...)
		require.Equal(t, following, append([]store.Change{}, read.Changes...), "%q", read.After[shard])
	}
	require.Greater(t, resets, len(reads)/2)
}

// alterations returns texts that are similar to a place.
func alterations(place store.Place) []store.Place {
	altered := []store.Place{place + "0", place + " ", place + place}
	for i := range place {
		altered = append(altered, place[:i], place[i:])
		for _, b := range []store.Place{"", "0", "1", "9", "-", "/", ".", "a", "+", " ", "\x00"} {
			altered = append(altered, place[:i]+b+place[i+1:], place[:i]+b+place[i:])
		}
	}
	return altered
}

// testPlacesOfOtherNamespace: a place is one of its namespace only.
func testPlacesOfOtherNamespace(t *testing.T, s store.Store) {
	f, other := Begin(t, s), beginWith(t, s, "other", Normal)
	for _, feed := range []*feed{f, other} {
		someChanges(feed, 3)
	}
	f.requireReset(other.places, "places of another feed")
	end := other.readFrom(nil, 1).Places
	f.requireReset(end, "the end of another feed")
	require.Len(t, f.Read(), 5)
	require.Len(t, other.Read(), 5)
}

// testReadNamespaces: each of the reads of a call has its own result.
func testReadNamespaces(t *testing.T, s store.Store) {
	var feeds []*feed
	var reads []*store.ChangesRead
	for i := range 30 {
		f := beginWith(t, s, fmt.Sprint("room", i), Normal)
		someChanges(f, i%3)
		feeds = append(feeds, f)
		reads = append(reads, &store.ChangesRead{Namespace: f.namespace, After: f.places, Limit: 10})
	}
	end := &store.ChangesRead{Namespace: "room5", Limit: 10}
	reset := &store.ChangesRead{Namespace: "room5", After: feeds[6].places, Limit: 10}
	unknown := &store.ChangesRead{Namespace: "unknown", After: feeds[6].places, Limit: 10}
	s.ReadChanges(context.Background(), append([]*store.ChangesRead{end, unknown, reset}, reads...))
	require.ErrorIs(t, unknown.Err, store.ErrNotRecorded)
	require.Empty(t, unknown.Changes)
	require.NoError(t, end.Err)
	require.False(t, end.Reset)
	require.Empty(t, end.Changes)
	require.NoError(t, reset.Err)
	require.True(t, reset.Reset)
	require.Equal(t, end.Places, reset.Places)
	for i, read := range reads {
		require.NoError(t, read.Err)
		require.False(t, read.Reset)
		require.Len(t, read.Changes, []int{0, 2, 3}[i%3])
		require.Equal(t, feeds[i].start, read.Watermark)
		requireConsistent(t, read)
	}
}

// testSnapshot: a snapshot has the published presences, and reading on from it what comes after.
func testSnapshot(t *testing.T, s store.Store) {
	f := Begin(t, s)
	f.ping("alice", f.start)
	before := f.snapshot("alice", "nobody", "alice")
	alice := isHere(f.start, lastseen.Green)
	require.Equal(t, []store.Published{alice, neverSeen(), alice}, before.Users)
	require.Equal(t, f.start, before.Watermark)
	require.Equal(t, before.Places, f.readFrom(nil, 1).Places)
	f.sweep(100)
	require.Equal(t, f.start+100, f.snapshot().Watermark)
}

// testSnapshotLarge: a snapshot has up to MaxWatched users.
func testSnapshotLarge(t *testing.T, s store.Store) {
	f := Begin(t, s)
	names := make([]string, store.MaxWatched)
	var batch []store.PresenceEvent
	for i := range names {
		names[i] = fmt.Sprint("user", i)
		if i%3 > 0 {
			batch = append(batch, store.PresenceEvent{User: names[i], At: f.start - lastseen.Instant(i)})
		}
	}
	sendAll(t, s, batch)
	for i, p := range f.snapshot(names...).Users {
		want := neverSeen()
		if i%3 > 0 {
			want = isHere(f.start-lastseen.Instant(i), lastseen.Green)
		}
		require.Equal(t, want, p, names[i])
	}
}
