package filestore

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// followRing reads a ring from an entry on. Each entry must have its number as the user.
func followRing(t require.TestingT, r *ring, from uint64) (next uint64) {
	next = from
	for number, e := range r.from(from) {
		if number != next || string(e.user) != strconv.FormatUint(number, 10) {
			require.Fail(t, "not in order", "%s is number %d, after %d", e.user, number, next)
		}
		next++
	}
	return next
}

// TestRingModel compares a ring with the times of its entries.
func TestRingModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r ring
		var times []time.Duration
		now := time.Duration(0)
		for range rapid.IntRange(0, 40).Draw(t, "rounds") {
			now += time.Duration(rapid.IntRange(0, 200).Draw(t, "seconds")) * time.Second
			for range rapid.IntRange(0, 700).Draw(t, "entries") {
				r.append(strconv.Itoa(len(times)), event{}, detailed{}, now)
				times = append(times, now)
			}
			r.drop(now)
			require.EqualValues(t, len(times), r.next)
			if r.first > 0 {
				require.Greater(t, now-times[r.first-1], store.ChangesKept)
			}
			if r.first < r.next {
				require.LessOrEqual(t, now-times[r.first], store.ChangesKept+segmentSpan)
			}
			from := r.first + uint64(rapid.IntRange(0, int(r.next-r.first)).Draw(t, "from"))
			require.Equal(t, r.next, followRing(t, &r, from))
		}
	})
}

// TestRingIsBounded however many changes there are. The entries before the oldest one that is kept cannot be read.
func TestRingIsBounded(t *testing.T) {
	f := &feed{}
	f.begin(minutes, base)
	p := store.Published{State: lastseen.State{At: base}, Status: lastseen.Green}
	for n := range uint64(store.MaxChanges + 3*segmentLen/2) {
		f.append("alice", p, p, base, 0)
		if f.next != n+1 || f.next-f.first > store.MaxChanges {
			require.Fail(t, "too many", "%d to %d", f.first, f.next)
		}
	}
	require.GreaterOrEqual(t, f.next-f.first, uint64(store.MaxChanges-segmentLen))
	for number, reset := range map[uint64]bool{f.first - 1: true, f.first: false, f.next: false, f.next + 1: true} {
		r := &store.ChangesRead{After: []store.Place{f.place(number)}, Limit: 1}
		f.read(r)
		require.Equal(t, reset, r.Reset)
		require.Equal(t, number == f.first, len(r.Changes) == 1)
	}
	f.drop(store.ChangesKept + 1)
	require.Empty(t, f.segments)
	require.Equal(t, f.next, f.first)
}

// TestLooks: each published presence has a look of its own.
func TestLooks(t *testing.T) {
	var seen []look
	for _, status := range lastseen.Statuses() {
		for _, left := range []bool{false, true} {
			l := lookOf(store.Published{Status: status, State: lastseen.State{Left: left}})
			require.Equal(t, status, l.status())
			require.Equal(t, left, l.left())
			require.False(t, slices.Contains(seen, l))
			seen = append(seen, l)
		}
	}
}

// TestRingOfLongestUsers: their places in a segment fit into what an entry has room for.
func TestRingOfLongestUsers(t *testing.T) {
	var r ring
	long := strings.Repeat("x", lastseen.MaxUserLen)
	for range 3 * segmentLen {
		r.append(long, event{}, detailed{}, 0)
	}
	n := 0
	for _, e := range r.from(0) {
		require.Equal(t, long, string(e.user))
		n++
	}
	require.Equal(t, 3*segmentLen, n)
}
