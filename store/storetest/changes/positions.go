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

// testPositionsOfEntries: reading a shard on from the position of an entry returns what follows it.
func testPositionsOfEntries(t *testing.T, s store.Store) {
	f := Begin(t, s)
	someChanges(f, 10)
	all, end := f.all(f.positions, store.MaxChangesRead)
	shards := byShard(all)
	for shard, entries := range shards {
		for i, c := range entries {
			after := slices.Clone(f.positions)
			after[shard] = c.Position
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

// testPositionsInvalid: what is not a position of the feed is a reset, and no error.
func testPositionsInvalid(t *testing.T, s store.Store) {
	f := Begin(t, s)
	someChanges(f, 5)
	for _, position := range []store.Position{
		"", " ", "-", "0", "0-0", "0-0/0", "$", "*", "+", "(", "1/", "/1", "-1/1", "1/-1", "1.5/1", "NaN/NaN",
		"\x00", "\xff\xfe",
		"9999999999999-0/1", "18446744073709551615-18446744073709551615/4503599627370495",
		"99999999999999999999999999/99999999999999999999999999", "1e3/1e3", "0x1/0x1", "inf/inf",
		store.Position(strings.Repeat("9", 100_000)), store.Position(strings.Repeat("x/", 100_000)),
	} {
		after := slices.Repeat([]store.Position{position}, len(f.positions))
		require.Equal(t, f.readFrom(nil, 1).Positions, f.requireReset(after, string(position[:min(50, len(position))])))
		after = slices.Clone(f.positions)
		after[len(after)-1] = position
		f.requireReset(after, "one position of several")
	}
	f.requireReset(append(slices.Clone(f.positions), f.positions[0]), "too many positions")
	f.requireReset(append(slices.Clone(f.positions), ""), "too many positions")
	f.requireReset(slices.Repeat(f.positions, 10_000), "too many positions")
	if len(f.positions) > 1 {
		f.requireReset(f.positions[1:], "too few positions")
		f.requireReset(append(slices.Clone(f.positions[1:]), f.positions[0]), "positions of other shards")
	}
	require.Len(t, f.Read(), 8)
}

// testPositionsAltered: whatever a caller makes of a position, the result is a reset, or what follows some position.
func testPositionsAltered(t *testing.T, s store.Store) {
	f := Begin(t, s)
	someChanges(f, 6)
	entries, end := f.all(f.positions, 100)
	shard := entries[0].Shard
	all := byShard(entries)[shard]
	var reads []*store.ChangesRead
	for _, position := range alterations(all[0].Position) {
		after := slices.Clone(end)
		after[shard] = position
		reads = append(reads, &store.ChangesRead{Namespace: kit.Namespace, After: after, Limit: 100})
	}
	s.ReadChanges(context.Background(), reads)
	resets := 0
	for _, read := range reads {
		require.NoError(t, read.Err)
		require.Equal(t, end, read.Positions)
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

// alterations returns texts that are similar to a position.
func alterations(position store.Position) []store.Position {
	altered := []store.Position{position + "0", position + " ", position + position}
	for i := range position {
		altered = append(altered, position[:i], position[i:])
		for _, b := range []store.Position{"", "0", "1", "9", "-", "/", ".", "a", "+", " ", "\x00"} {
			altered = append(altered, position[:i]+b+position[i+1:], position[:i]+b+position[i:])
		}
	}
	return altered
}

// testPositionsOfOtherNamespace: a position is one of its namespace only.
func testPositionsOfOtherNamespace(t *testing.T, s store.Store) {
	f, other := Begin(t, s), beginWith(t, s, "other", Normal)
	for _, feed := range []*feed{f, other} {
		someChanges(feed, 3)
	}
	f.requireReset(other.positions, "positions of another feed")
	end := other.readFrom(nil, 1).Positions
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
		reads = append(reads, &store.ChangesRead{Namespace: f.namespace, After: f.positions, Limit: 10})
	}
	end := &store.ChangesRead{Namespace: "room5", Limit: 10}
	reset := &store.ChangesRead{Namespace: "room5", After: feeds[6].positions, Limit: 10}
	unknown := &store.ChangesRead{Namespace: "unknown", After: feeds[6].positions, Limit: 10}
	s.ReadChanges(context.Background(), append([]*store.ChangesRead{end, unknown, reset}, reads...))
	require.ErrorIs(t, unknown.Err, store.ErrNotRecorded)
	require.Empty(t, unknown.Changes)
	require.NoError(t, end.Err)
	require.False(t, end.Reset)
	require.Empty(t, end.Changes)
	require.NoError(t, reset.Err)
	require.True(t, reset.Reset)
	require.Equal(t, end.Positions, reset.Positions)
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
	require.Equal(t, before.Positions, f.readFrom(nil, 1).Positions)
	f.advance(100)
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
