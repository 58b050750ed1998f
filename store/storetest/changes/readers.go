package changes

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/kit"
)

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
