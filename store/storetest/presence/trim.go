package presence

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/kit"
)

// The instants of these tests are minutes apart, so that the duration of a test does not matter: Trim goes by the
// store's own clock, which the tests cannot set.

func testTrim(t *testing.T, s store.Store) {
	start := kit.Now(t, s)
	for i, at := range []lastseen.Instant{
		1, start - 50*kit.Minute, start - 40*kit.Minute, start - 20*kit.Minute, start,
	} {
		kit.Ping(t, s, fmt.Sprintf("here%d", i), at)
		kit.Leave(t, s, fmt.Sprintf("left%d", i), at)
	}
	age := func(d, apart time.Duration) (store.TrimResult, error) {
		return s.Trim(context.Background(), kit.Namespace,
			store.TrimQuery{Age: d, Now: kit.Now(t, s).Add(apart), All: true})
	}
	for _, d := range []time.Duration{100 * 365 * 24 * time.Hour, 1<<63 - 1} {
		result, err := age(d, 0)
		require.NoError(t, err)
		require.Zero(t, result, "no user was seen before 1970")
	}
	for _, want := range []int{6, 0} {
		result, err := age(30*time.Minute, 0)
		require.NoError(t, err)
		require.Equal(t, store.TrimResult{Deleted: want}, result)
		require.Equal(t, []string{"left4", "here4", "left3", "here3"}, kit.Remaining(t, s))
	}
	require.Zero(t, kit.Trim(t, s, "unused", start, true))
	result, err := age(10*time.Minute, store.MaxClockDrift/2)
	require.NoError(t, err)
	require.Equal(t, store.TrimResult{Deleted: 2}, result, "reckoned by the store's own clock")

	require.Equal(t, store.TrimResult{Deleted: 2}, kit.Trim(t, s, kit.Namespace, start+10*kit.Minute, true))
	require.Equal(t, []store.NamespaceInfo{{Name: kit.Namespace}}, kit.Namespaces(t, s, 10),
		"an empty namespace still exists")
}

func testTrimAtMost(t *testing.T, s store.Store) {
	names := kit.Crowd(t, s, 2*store.MaxTrim+500)
	kit.Write(s.Leave).In(t, kit.Namespace, kit.Base+1, names[:store.MaxTrim]...)
	kit.Ping(t, s, "stays", kit.Now(t, s))
	trimmed, calls := 0, 0
	for {
		result := kit.Trim(t, s, kit.Namespace, kit.Base+kit.Minute, true)
		require.LessOrEqual(t, result.Deleted, store.MaxTrim)
		require.False(t, result.Held)
		if result.Deleted == 0 {
			break
		}
		trimmed, calls = trimmed+result.Deleted, calls+1
	}
	require.Equal(t, len(names), trimmed)
	require.Equal(t, 3, calls, "a call deletes as many as it may")
	require.Equal(t, []string{"stays"}, kit.Remaining(t, s))
}

// testTrimClockMoved: when the store's clock is not where the caller expects it, no user is deleted.
func testTrimClockMoved(t *testing.T, s store.Store) {
	kit.Ping(t, s, "alice", kit.Base)
	kit.Leave(t, s, "bob", kit.Base)
	kit.Ping(t, s, "carol", kit.Now(t, s))
	for _, apart := range []time.Duration{store.MaxClockDrift, time.Hour, 20 * 365 * 24 * time.Hour} {
		for _, apart := range []time.Duration{apart + time.Second, -apart - time.Second} {
			for _, all := range []bool{false, true} {
				q := store.TrimQuery{Age: time.Minute, Now: kit.Now(t, s).Add(apart), All: all}
				result, err := s.Trim(context.Background(), kit.Namespace, q)
				require.ErrorIs(t, err, store.ErrClockMoved, "%s", apart)
				require.Zero(t, result)
			}
		}
	}
	_, err := s.Trim(context.Background(), kit.Namespace, store.TrimQuery{Age: time.Minute, All: true})
	require.ErrorIs(t, err, store.ErrClockMoved, "without an expectation nothing is deleted")
	require.Equal(t, []string{"carol", "bob", "alice"}, kit.Remaining(t, s))
}

// testTrimHeld: without All, no user is deleted where none would be left.
func testTrimHeld(t *testing.T, s store.Store) {
	const n = 300
	names := kit.Crowd(t, s, n)
	for _, user := range names[:n/2] {
		kit.Leave(t, s, user, kit.Base)
	}
	require.Equal(t, store.TrimResult{Held: true}, kit.Trim(t, s, kit.Namespace, kit.Base+kit.Minute, false))
	require.Len(t, kit.Remaining(t, s), n)

	fresh := make([]string, n/2)
	for i := range fresh {
		fresh[i] = fmt.Sprint("fresh", i)
	}
	for _, w := range kit.Writes(s) { // users who left count, too
		w.In(t, kit.Namespace, kit.Now(t, s), fresh...)
		require.Equal(t, store.TrimResult{Deleted: n}, kit.Trim(t, s, kit.Namespace, kit.Base+kit.Minute, false))
		require.Len(t, kit.Remaining(t, s), n/2)
		kit.Forget(t, s, fresh...)
		kit.Crowd(t, s, n)
	}
	require.Equal(t, store.TrimResult{Held: true}, kit.Trim(t, s, kit.Namespace, kit.Base+kit.Minute, false))
	require.Equal(t, store.TrimResult{Deleted: n}, kit.Trim(t, s, kit.Namespace, kit.Base+kit.Minute, true))
	require.Empty(t, kit.Remaining(t, s))
	require.Zero(t, kit.Trim(t, s, kit.Namespace, kit.Base+kit.Minute, false), "an empty namespace holds nothing back")
}

// testAhead: a time further ahead than MaxAhead is replaced by that of the store's own clock.
func testAhead(t *testing.T, s store.Store) {
	const year = 365 * 24 * time.Hour
	for i, ahead := range []time.Duration{store.MaxAhead + 2*time.Second, time.Hour, 20 * year, 0} {
		before := kit.Now(t, s)
		at := before.Add(ahead)
		if ahead == 0 {
			at = lastseen.MaxInstant
		}
		present, gone := fmt.Sprint("here", i), fmt.Sprint("left", i)
		states := []lastseen.State{kit.Ping(t, s, present, at), kit.Leave(t, s, gone, at)}
		for _, state := range states {
			require.InDelta(t, int64(before), int64(state.At), float64(store.MaxAhead/time.Millisecond)-1, "%s ahead",
				ahead)
		}
		require.False(t, states[0].Left)
		require.True(t, states[1].Left)
		require.Equal(t, states, kit.Lookup(t, s, present, gone), "the states returned are those stored")
	}
	at := kit.Now(t, s).Add(store.MaxAhead - time.Second)
	require.Equal(t, kit.Here(at), kit.Ping(t, s, "near", at))
	require.Equal(t, kit.Left(at), kit.Leave(t, s, "gone", at))
	require.Equal(t, kit.Here(at), kit.Ping(t, s, "near", lastseen.MaxInstant), "what is stored is later")
	require.Equal(t, kit.Left(at), kit.Leave(t, s, "gone", lastseen.MaxInstant), "what is stored is later")
	require.Equal(t, kit.Here(at), kit.Leave(t, s, "near", lastseen.MaxInstant), "what is stored is later")
	testAheadInBatch(t, s)
}

// testAheadInBatch: a time too far ahead changes nothing for the others in its batch.
func testAheadInBatch(t *testing.T, s store.Store) {
	before := kit.Now(t, s)
	batch := []store.PresenceEvent{
		{User: "old", At: kit.Base},
		{User: "far", At: lastseen.MaxInstant},
		{User: "new", At: before},
		{User: "far", At: kit.Base + 1},
	}
	for _, w := range kit.Writes(s) {
		states := w.Send(t, kit.Namespace, batch)
		require.Equal(t, []lastseen.Instant{kit.Base, before}, []lastseen.Instant{states[0].At, states[2].At})
		require.InDelta(t, int64(before), int64(states[1].At), float64(store.MaxAhead/time.Millisecond)-1)
		require.Equal(t, states[1], states[3])
		require.Equal(t, states, kit.Lookup(t, s, "old", "far", "new", "far"))
	}
}
