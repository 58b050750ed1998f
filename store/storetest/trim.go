package storetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// The instants of these tests are minutes apart, so that the duration of a test does not matter: Trim goes by the
// store's own clock, which the tests cannot set.

const minute = lastseen.Instant(60_000)

// now returns the time by the store's clock.
func now(t require.TestingT, s store.Store) lastseen.Instant {
	at, err := s.Now(context.Background())
	require.NoError(t, err)
	return at
}

// trim deletes, once, users of a namespace last seen before a cutoff. No user's time may be close to the cutoff.
func trim(t require.TestingT, s store.Store, namespace string, cutoff lastseen.Instant, all bool) store.TrimResult {
	at := now(t, s)
	age := time.Duration(at-cutoff) * time.Millisecond
	result, err := s.Trim(context.Background(), namespace, store.TrimQuery{Age: age, Now: at, All: all})
	require.NoError(t, err)
	return result
}

// remaining returns all users of the namespace ns.
func remaining(t require.TestingT, s store.Store) []string {
	return users(list(t, s, store.ListQuery{Ranges: everyone(), Limit: 10_000}))
}

func testTrim(t *testing.T, s store.Store) {
	start := now(t, s)
	for i, at := range []lastseen.Instant{1, start - 50*minute, start - 40*minute, start - 20*minute, start} {
		ping(t, s, fmt.Sprintf("here%d", i), at)
		leave(t, s, fmt.Sprintf("left%d", i), at)
	}
	age := func(d, apart time.Duration) (store.TrimResult, error) {
		return s.Trim(context.Background(), ns, store.TrimQuery{Age: d, Now: now(t, s).Add(apart), All: true})
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
		require.Equal(t, []string{"left4", "here4", "left3", "here3"}, remaining(t, s))
	}
	require.Zero(t, trim(t, s, "unused", start, true))
	result, err := age(10*time.Minute, store.MaxClockDrift/2)
	require.NoError(t, err)
	require.Equal(t, store.TrimResult{Deleted: 2}, result, "reckoned by the store's own clock")

	require.Equal(t, store.TrimResult{Deleted: 2}, trim(t, s, ns, start+10*minute, true))
	require.Equal(t, []store.NamespaceInfo{{Name: ns}}, namespaces(t, s, 10), "an empty namespace still exists")
}

func testTrimAtMost(t *testing.T, s store.Store) {
	names := crowd(t, s, 2*store.MaxTrim+500)
	write(s.Leave).in(t, ns, base+1, names[:store.MaxTrim]...)
	ping(t, s, "stays", now(t, s))
	trimmed, calls := 0, 0
	for {
		result := trim(t, s, ns, base+minute, true)
		require.LessOrEqual(t, result.Deleted, store.MaxTrim)
		require.False(t, result.Held)
		if result.Deleted == 0 {
			break
		}
		trimmed, calls = trimmed+result.Deleted, calls+1
	}
	require.Equal(t, len(names), trimmed)
	require.Equal(t, 3, calls, "a call deletes as many as it may")
	require.Equal(t, []string{"stays"}, remaining(t, s))
}

// testTrimClockMoved: when the store's clock is not where the caller expects it, no user is deleted.
func testTrimClockMoved(t *testing.T, s store.Store) {
	ping(t, s, "alice", base)
	leave(t, s, "bob", base)
	ping(t, s, "carol", now(t, s))
	for _, apart := range []time.Duration{store.MaxClockDrift, time.Hour, 20 * 365 * 24 * time.Hour} {
		for _, apart := range []time.Duration{apart + time.Second, -apart - time.Second} {
			for _, all := range []bool{false, true} {
				q := store.TrimQuery{Age: time.Minute, Now: now(t, s).Add(apart), All: all}
				result, err := s.Trim(context.Background(), ns, q)
				require.ErrorIs(t, err, store.ErrClockMoved, "%s", apart)
				require.Zero(t, result)
			}
		}
	}
	_, err := s.Trim(context.Background(), ns, store.TrimQuery{Age: time.Minute, All: true})
	require.ErrorIs(t, err, store.ErrClockMoved, "without an expectation nothing is deleted")
	require.Equal(t, []string{"carol", "bob", "alice"}, remaining(t, s))
}

// testTrimHeld: without All, no user is deleted where none would be left.
func testTrimHeld(t *testing.T, s store.Store) {
	const n = 300
	names := crowd(t, s, n)
	for _, user := range names[:n/2] {
		leave(t, s, user, base)
	}
	require.Equal(t, store.TrimResult{Held: true}, trim(t, s, ns, base+minute, false))
	require.Len(t, remaining(t, s), n)

	fresh := make([]string, n/2)
	for i := range fresh {
		fresh[i] = fmt.Sprint("fresh", i)
	}
	for _, w := range writes(s) { // users who left count, too
		w.in(t, ns, now(t, s), fresh...)
		require.Equal(t, store.TrimResult{Deleted: n}, trim(t, s, ns, base+minute, false))
		require.Len(t, remaining(t, s), n/2)
		forget(t, s, fresh...)
		crowd(t, s, n)
	}
	require.Equal(t, store.TrimResult{Held: true}, trim(t, s, ns, base+minute, false))
	require.Equal(t, store.TrimResult{Deleted: n}, trim(t, s, ns, base+minute, true))
	require.Empty(t, remaining(t, s))
	require.Zero(t, trim(t, s, ns, base+minute, false), "an empty namespace holds nothing back")
}

// testAhead: a time further ahead than MaxAhead is replaced by that of the store's own clock.
func testAhead(t *testing.T, s store.Store) {
	const year = 365 * 24 * time.Hour
	for i, ahead := range []time.Duration{store.MaxAhead + 2*time.Second, time.Hour, 20 * year, 0} {
		before := now(t, s)
		at := before.Add(ahead)
		if ahead == 0 {
			at = lastseen.MaxInstant
		}
		present, gone := fmt.Sprint("here", i), fmt.Sprint("left", i)
		states := []lastseen.State{ping(t, s, present, at), leave(t, s, gone, at)}
		for _, state := range states {
			require.InDelta(t, int64(before), int64(state.At), float64(store.MaxAhead/time.Millisecond)-1, "%s ahead",
				ahead)
		}
		require.False(t, states[0].Left)
		require.True(t, states[1].Left)
		require.Equal(t, states, lookup(t, s, present, gone), "the states returned are those stored")
	}
	at := now(t, s).Add(store.MaxAhead - time.Second)
	require.Equal(t, here(at), ping(t, s, "near", at))
	require.Equal(t, left(at), leave(t, s, "gone", at))
	require.Equal(t, here(at), ping(t, s, "near", lastseen.MaxInstant), "what is stored is later")
	require.Equal(t, left(at), leave(t, s, "gone", lastseen.MaxInstant), "what is stored is later")
	require.Equal(t, here(at), leave(t, s, "near", lastseen.MaxInstant), "what is stored is later")
	testAheadInBatch(t, s)
}

// testAheadInBatch: a time too far ahead changes nothing for the others in its batch.
func testAheadInBatch(t *testing.T, s store.Store) {
	before := now(t, s)
	batch := []store.Sighting{
		{User: "old", At: base},
		{User: "far", At: lastseen.MaxInstant},
		{User: "new", At: before},
		{User: "far", At: base + 1},
	}
	for _, w := range writes(s) {
		states := w.send(t, ns, batch)
		require.Equal(t, []lastseen.Instant{base, before}, []lastseen.Instant{states[0].At, states[2].At})
		require.InDelta(t, int64(before), int64(states[1].At), float64(store.MaxAhead/time.Millisecond)-1)
		require.Equal(t, states[1], states[3])
		require.Equal(t, states, lookup(t, s, "old", "far", "new", "far"))
	}
}
