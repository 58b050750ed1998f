// Package changes has the conformance tests of changes feeds.
package changes

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/kit"
)

// Run tests that stores keep the contract of changes feeds. Run includes it. Each subtest opens a store of its
// own. The model compares each entry that readers get after any writes, advances, trims and deletions.
func Run(t *testing.T, open kit.Open) {
	t.Helper()
	kit.RunEach(t, open, kit.Cases{
		{"Write", testChangesOfWrites},
		{"Write/Batch", testChangesOfBatch},
		{"Write/Ahead", testChangesOfWritesAhead},
		{"Write/UserIDs", testChangesOfUserIDs},
		{"Devices/Batch", testChangesOfDeviceBatch},
		{"Contacts", testChangesOfContacts},
		{"Forget/Pinged", testChangesOfForgetAndPing},
		{"Trim/Everyone", testChangesOfTrimmedNamespace},
		{"Trim/AfterDelete", testTrimWithoutFeed},
		{"Advance/Again", testAdvanceAgain},
		{"Advance/Begun", testAdvanceYellowBefore},
		{"Advance/Many", testAdvanceMany},
		{"Advance/OneInstant", testAdvanceOneInstant},
		{"Advance/TooManyInOneInstant", testAdvanceTooManyInOneInstant},
		{"Advance/Ahead", testAdvanceAhead},
		{"Advance/OtherThresholds", testAdvanceOtherThresholds},
		{"Advance/LongThresholds", testAdvanceLongThresholds},
		{"Advance/Namespaces", testAdvanceNamespaces},
		{"Advance/Together", testAdvanceTogether},
		{"Positions/OfEntries", testPositionsOfEntries},
		{"Positions/Invalid", testPositionsInvalid},
		{"Positions/Altered", testPositionsAltered},
		{"Positions/OtherNamespace", testPositionsOfOtherNamespace},
		{"Read/Namespaces", testReadNamespaces},
		{"Snapshot", testSnapshot},
		{"Snapshot/Large", testSnapshotLarge},
		{"NotRecorded", testNotRecorded},
		{"RemoveEmpty", testRemoveEmptyAndFeed},
		{"Concurrent", testChangesConcurrent},
	})
	t.Run("Model", func(t *testing.T) {
		testChangesModel(t, func(t testing.TB) kit.Breakable { return kit.Breakable{Store: open(t)} })
	})
}

// Normal are the thresholds of most tests. A watermark may be ahead of the store's clock by half of the first, but by
// not more than MaxAhead.
var Normal = lastseen.Thresholds{Green: 30 * time.Second, Yellow: 5 * time.Minute}

// The tests cannot set the store's clock, and do not wait for it. They advance up to maxPlayed after the start of a
// feed, which is playAhead ahead of the clock; together that is less than MaxAhead. What changes in that time was last
// seen one threshold earlier.
const (
	playAhead = 500 // ms, longer than it takes to begin a feed in all shards
	maxPlayed = 2000
)

// feed reads the changes of a namespace and moves its watermark.
type feed struct {
	t         *testing.T
	s         store.Store
	namespace string
	thresholds
	start     lastseen.Instant // the watermark when the feed had begun, the same in all shards
	positions []store.Position // read up to here
}

type thresholds = lastseen.Thresholds

// Begin has changes recorded and returns their feed, at its end.
func Begin(t *testing.T, s store.Store) *feed { return beginWith(t, s, kit.Namespace, Normal) }

func beginWith(t *testing.T, s store.Store, namespace string, th thresholds) *feed {
	f := &feed{t: t, s: s, namespace: namespace, thresholds: th}
	recordChanges(t, s, namespace, th)
	f.start = kit.Now(t, s) + playAhead
	f.advance(0)
	f.positions = f.readFrom(nil, store.MaxChangesRead).Positions
	return f
}

// recordChanges has the changes of a namespace recorded, which it creates.
func recordChanges(t require.TestingT, s store.Store, namespace string, th thresholds) {
	require.NoError(t, s.Register(context.Background(), []string{namespace}))
	require.NoError(t, s.RecordChanges(context.Background(), namespace, th))
}

// yellowAt returns the time of a user who turns yellow so many milliseconds after the start, greyAt that of
// one who then turns grey.
func (f *feed) yellowAt(after lastseen.Instant) lastseen.Instant {
	return f.start.Add(-f.Green) + after
}

func (f *feed) greyAt(after lastseen.Instant) lastseen.Instant {
	return f.start.Add(-f.Yellow) + after
}

func (f *feed) ping(user string, at lastseen.Instant) {
	kit.Write(f.s.Ping).In(f.t, f.namespace, at, user)
}

func (f *feed) leave(user string, at lastseen.Instant) {
	kit.Write(f.s.Leave).In(f.t, f.namespace, at, user)
}

// advanceOnce calls AdvanceChanges once, up to so many milliseconds after the start.
func (f *feed) advanceOnce(after lastseen.Instant) store.ChangesAdvance {
	advance := &store.ChangesAdvance{Namespace: f.namespace, Thresholds: f.thresholds, Now: f.start + after}
	f.s.AdvanceChanges(context.Background(), []*store.ChangesAdvance{advance})
	require.NoError(f.t, advance.Err)
	require.GreaterOrEqual(f.t, advance.Lag, time.Duration(0))
	if advance.Transitions == 0 {
		require.Zero(f.t, advance.Lag)
	}
	return *advance
}

// advance moves the watermark, with as many calls as that takes, and returns the number of transitions.
func (f *feed) advance(after lastseen.Instant) (transitions int) {
	for more := true; more; {
		advance := f.advanceOnce(after)
		require.False(f.t, advance.Begun)
		require.False(f.t, advance.Elsewhere)
		if more = advance.More; !more {
			require.Equal(f.t, f.start+after, advance.Watermark)
		}
		transitions += advance.Transitions
	}
	return transitions
}

// try reads after some positions, which may be a reset.
func (f *feed) try(after []store.Position, limit int) store.ChangesRead {
	given := slices.Clone(after)
	read := &store.ChangesRead{Namespace: f.namespace, After: after, Limit: limit}
	f.s.ReadChanges(context.Background(), []*store.ChangesRead{read})
	require.NoError(f.t, read.Err)
	require.Equal(f.t, given, after, "the positions passed in were changed")
	require.NotEmpty(f.t, read.Positions)
	if read.Reset {
		require.Empty(f.t, read.Changes)
		require.False(f.t, read.More)
	}
	requireConsistent(f.t, read)
	return *read
}

// readFrom reads one page after some positions.
func (f *feed) readFrom(after []store.Position, limit int) store.ChangesRead {
	read := f.try(after, limit)
	require.False(f.t, read.Reset)
	return read
}

// all reads all pages after some positions, and returns the entries and the positions at the end.
func (f *feed) all(after []store.Position, limit int) (entries []store.Change, end []store.Position) {
	for n := 0; ; n++ {
		read := f.readFrom(after, limit)
		entries, after = append(entries, read.Changes...), read.Positions
		if !read.More {
			return entries, after
		}
		require.Less(f.t, n, 1_000_000, "the pages do not end")
	}
}

// Read returns the entries since the last call, without what depends on the store.
func (f *feed) Read() (entries []store.Change) {
	entries, f.positions = f.all(f.positions, store.MaxChangesRead)
	return bare(entries)
}

func (f *feed) requireReset(after []store.Position, why string) []store.Position {
	read := f.try(after, 10)
	require.True(f.t, read.Reset, why)
	return read.Positions
}

func (f *feed) snapshot(users ...string) store.Snapshot {
	snapshot, err := f.s.SnapshotChanges(context.Background(), f.namespace, users)
	require.NoError(f.t, err)
	require.Len(f.t, snapshot.Users, len(users))
	require.Len(f.t, snapshot.Positions, len(f.positions))
	return snapshot
}

// published returns the published presence of one user.
func (f *feed) published(user string) store.Published { return f.snapshot(user).Users[0] }

// requireConsistent checks what holds for every page: a user is in one shard, a shard has at most Limit entries, and
// More means that one of them has that many.
func requireConsistent(t require.TestingT, read *store.ChangesRead) {
	shards, sizes, most := map[string]int{}, map[int]int{}, 0
	for _, c := range read.Changes {
		require.True(t, c.Shard >= 0 && c.Shard < len(read.Positions), "shard %d", c.Shard)
		if shard, seen := shards[c.User]; seen {
			require.Equal(t, shard, c.Shard, "%q is in two shards", c.User)
		}
		shards[c.User] = c.Shard
		sizes[c.Shard]++
		most = max(most, sizes[c.Shard])
		requireEntry(t, c)
	}
	require.LessOrEqual(t, most, read.Limit)
	require.Equal(t, most == read.Limit, read.More)
}

// requireEntry checks what holds for every entry.
func requireEntry(t require.TestingT, c store.Change) {
	for _, d := range []store.Details{c.Details, c.Was} {
		shown := d.Availability.Availability
		require.NotEqual(t, lastseen.Invisible, shown, "others see that a user is invisible: %+v", c)
	}
	if c.Contacts {
		bare := store.Change{User: c.User, Contacts: true, Recorded: c.Recorded, Shard: c.Shard, Position: c.Position}
		require.Equal(t, bare, c)
		return
	}
	if c.Forgotten() {
		unknown := store.Published{Status: lastseen.Grey, Details: store.Details{Availability: c.Availability}}
		require.Equal(t, unknown, c.Published, "a user without a state can say something")
		return
	}
	was := store.Published{State: lastseen.State{Left: c.WasLeft}, Status: c.WasStatus, Details: c.Was}
	require.False(t, c.Same(was), "nothing changed: %+v", c)
}

// bare removes what depends on the store from entries.
func bare(entries []store.Change) []store.Change {
	for i := range entries {
		entries[i].Recorded, entries[i].Shard, entries[i].Position = 0, 0, ""
	}
	return entries
}

// byUser returns the bare entries of each user.
func byUser(entries []store.Change) map[string][]store.Change {
	users := map[string][]store.Change{}
	for _, c := range bare(slices.Clone(entries)) {
		users[c.User] = append(users[c.User], c)
	}
	return users
}

// The published presences of users who are there, or who left.
func isHere(at lastseen.Instant, status lastseen.Status) store.Published {
	return store.Published{State: kit.Here(at), Status: status}
}

func hasLeft(at lastseen.Instant) store.Published {
	return store.Published{State: kit.Left(at), Status: lastseen.Grey}
}

// neverSeen is the published presence of users without a state.
func neverSeen() store.Published { return store.Published{Status: lastseen.Grey} }

// entry is the entry of a change from one presence to another.
func entry(user string, was, is store.Published) store.Change {
	return store.Change{User: user, Published: is, WasStatus: was.Status, WasLeft: was.Left, Was: was.Details}
}

// Methods returns the methods of a store that concern changes feeds.
func Methods(s store.Store, ns string) map[string]kit.Method {
	alice := []string{"alice"}
	return map[string]kit.Method{
		"RecordChanges": func(ctx context.Context) error { return s.RecordChanges(ctx, ns, Normal) },
		"ReadChanges": func(ctx context.Context) error {
			read := &store.ChangesRead{Namespace: ns, Limit: 1}
			s.ReadChanges(ctx, []*store.ChangesRead{read})
			return read.Err
		},
		"SnapshotChanges": func(ctx context.Context) error { return kit.ErrorOf(s.SnapshotChanges(ctx, ns, alice)) },
		"AdvanceChanges": func(ctx context.Context) error {
			advance := &store.ChangesAdvance{Namespace: ns, Thresholds: Normal, Now: kit.Base}
			s.AdvanceChanges(ctx, []*store.ChangesAdvance{advance})
			return advance.Err
		},
	}
}

// RequireNotRecorded checks that the methods of feeds say that no changes are recorded.
func RequireNotRecorded(t require.TestingT, s store.Store) {
	for name, call := range Methods(s, kit.Namespace) {
		if name != "RecordChanges" {
			require.ErrorIs(t, call(context.Background()), store.ErrNotRecorded, name)
		}
	}
}
