package changes

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

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

// modelReader is a reader of the feed of a model, at some position.
type modelReader struct {
	epoch     int // of the feed that positions are of
	positions []store.Position
	taken     time.Duration              // when positions were taken, in the model's time
	next      map[string]int             // the number of the log's entries of each user that were before positions
	users     map[string]store.Published // what it knows of users
	lossy     bool                       // a reset is right
	// The log does not have what the reader must get next: it can only be checked that an entry continues from what
	// the reader knows, and that it knows what is there in the end.
	inexact bool
}

// maxReaders is the number of readers that a model has. More replace others.
const maxReaders = 8

func (m *changesModel) add(t *rapid.T, r *modelReader) {
	if len(m.readers) < maxReaders {
		m.readers = append(m.readers, r)
		return
	}
	m.readers[rapid.IntRange(0, maxReaders-1).Draw(t, "replaced")] = r
}

// at makes a reader begin at positions that are the end of the feed, without knowing users.
func (m *changesModel) at(positions []store.Position) *modelReader {
	r := &modelReader{
		epoch: m.epoch, positions: positions, taken: m.passed,
		next: map[string]int{}, users: map[string]store.Published{},
	}
	for user, entries := range m.log {
		r.next[user] = len(entries)
	}
	return r
}

// snapshot adds a reader that begins with a snapshot of some users, or of none.
func (m *changesModel) snapshot(t *rapid.T) {
	names := rapid.SliceOfNDistinct(kit.DrawUser, 0, 10, rapid.ID[string]).Draw(t, "users")
	snapshot, err := m.SnapshotChanges(context.Background(), kit.Namespace, names)
	if !m.recorded {
		require.ErrorIs(t, err, store.ErrNotRecorded)
		return
	}
	require.NoError(t, err)
	r := m.at(snapshot.Positions)
	for i, user := range names {
		require.Equal(t, m.published(user), snapshot.Users[i])
		r.users[user] = snapshot.Users[i]
	}
	m.add(t, r)
}

// end adds a reader that begins at the end.
func (m *changesModel) end(t *rapid.T) {
	read := &store.ChangesRead{Namespace: kit.Namespace, Limit: 1}
	m.ReadChanges(context.Background(), []*store.ChangesRead{read})
	if !m.recorded {
		require.ErrorIs(t, read.Err, store.ErrNotRecorded)
		return
	}
	require.NoError(t, read.Err)
	require.False(t, read.Reset)
	require.Empty(t, read.Changes)
	m.add(t, m.at(read.Positions))
}

// fork adds a reader that continues from the position of another one, which reads on. So positions are used again when
// they are old.
func (m *changesModel) fork(t *rapid.T) {
	if len(m.readers) == 0 {
		return
	}
	fork := *rapid.SampledFrom(m.readers).Draw(t, "reader")
	fork.positions = slices.Clone(fork.positions)
	fork.next, fork.users = maps.Clone(fork.next), maps.Clone(fork.users)
	m.add(t, &fork)
}

// read has some of the readers read a page, all in one call.
func (m *changesModel) read(t *rapid.T) {
	var readers []*modelReader
	var reads []*store.ChangesRead
	for _, r := range m.readers {
		if rapid.Bool().Draw(t, "reads") {
			limit := rapid.SampledFrom([]int{1, 2, 5, 100, store.MaxChangesRead}).Draw(t, "limit")
			readers = append(readers, r)
			reads = append(reads, &store.ChangesRead{Namespace: kit.Namespace, After: r.positions, Limit: limit})
		}
	}
	m.ReadChanges(context.Background(), reads)
	for i, r := range readers {
		m.take(t, r, reads[i])
	}
}

func (m *changesModel) readToEnd(t *rapid.T, r *modelReader) {
	for range 10_000 {
		read := &store.ChangesRead{Namespace: kit.Namespace, After: r.positions, Limit: store.MaxChangesRead}
		m.ReadChanges(context.Background(), []*store.ChangesRead{read})
		if m.take(t, r, read); !read.More {
			return
		}
	}
	t.Fatal("the pages do not end")
}

// take checks what a reader got.
func (m *changesModel) take(t *rapid.T, r *modelReader, read *store.ChangesRead) {
	if !m.recorded {
		require.ErrorIs(t, read.Err, store.ErrNotRecorded)
		return
	}
	require.NoError(t, read.Err)
	require.Equal(t, m.watermark, read.Watermark)
	requireConsistent(t, read)
	if read.Reset {
		aged := m.passed-r.taken >= store.ChangesKept
		require.True(t, r.epoch != m.epoch || r.lossy || r.inexact || aged, "a reset without a reason")
		require.Empty(t, read.Changes)
		*r = *m.at(read.Positions)
		return
	}
	require.True(t, r.epoch == m.epoch || r.inexact, "the positions are of a feed that ended")
	for _, c := range read.Changes {
		m.takeEntry(t, r, c)
	}
	if r.positions, r.taken = read.Positions, m.passed; read.More {
		r.taken = 0 // the next entry may be as old as any
		return
	}
	for user, entries := range m.log {
		require.True(t, r.inexact || r.next[user] == len(entries), "%s: entries are missing: %+v", user, entries)
	}
	for user, p := range r.users {
		require.Equal(t, m.published(user).Status, p.Status, user)
		require.True(t, m.unrecorded || m.published(user).Left == p.Left, user)
	}
}

// takeEntry checks that an entry is the next one of its user.
func (m *changesModel) takeEntry(t *rapid.T, r *modelReader, c store.Change) {
	was, watched := r.users[c.User]
	if watched {
		require.Equal(t, was.Status, c.WasStatus, "%+v", c)
		require.True(t, m.unrecorded || was.Left == c.WasLeft, "%+v follows %+v", c, was)
	}
	r.users[c.User] = c.Published
	if !r.inexact {
		n := r.next[c.User]
		require.Less(t, n, len(m.log[c.User]), "%+v is an entry too many", c)
		require.Equal(t, m.log[c.User][n], bare([]store.Change{c})[0])
		r.next[c.User]++
	}
}
