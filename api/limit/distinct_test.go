package limit

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// begun begins uses of names from..to-1, ends them at once, and returns how many were allowed.
func begun(d *Distinct, k Key, from, to int) (n int) {
	for i := from; i < to; i++ {
		if end, ok := d.Begin(k, strconv.Itoa(i)); ok {
			end()
			n++
		}
	}
	return n
}

// TestDistinct checks that a caller uses a limited number of names, and that a name counts once, from its first use
// until a time after the last one.
func TestDistinct(t *testing.T) {
	c := newClock()
	d := NewDistinct(3, time.Minute, 100, c.now)
	alice, bob := ByUser("issuer", "alice"), ByUser("issuer", "bob")
	first, ok := d.Begin(alice, "0")
	require.True(t, ok)
	second, ok := d.Begin(alice, "0")
	require.True(t, ok)
	require.Equal(t, 3, begun(d, alice, 0, 10))
	require.Equal(t, 3, begun(d, alice, 0, 3), "known names")
	require.Equal(t, 3, begun(d, bob, 3, 10), "another caller")

	c.advance(time.Minute - 1)
	require.Zero(t, begun(d, alice, 3, 10))
	require.Equal(t, 1, begun(d, alice, 2, 3), "which counts for a minute again")
	c.advance(1)
	require.Equal(t, 1, begun(d, alice, 3, 10), "in place of the name 1: 0 is in use, and 2 counts again")

	c.advance(time.Hour)
	first()
	require.Equal(t, 2, begun(d, alice, 3, 10), "one use of the name 0 is left")
	second()
	c.advance(time.Minute - 1)
	require.Zero(t, begun(d, alice, 10, 20))
	c.advance(1)
	require.Equal(t, 3, begun(d, alice, 10, 20))
}

// TestDistinctMemoryIsBounded checks that nothing is kept of names that do not count any longer, and that of all
// callers together a limited number count after their use. Those in use are not among them.
func TestDistinctMemoryIsBounded(t *testing.T) {
	c := newClock()
	d := NewDistinct(100, time.Minute, 10, c.now)
	held, ok := d.Begin(address("203.0.113.7"), "0")
	require.True(t, ok)
	for n := range 1000 {
		require.Equal(t, 1, begun(d, ByUser("issuer", strconv.Itoa(n)), 0, 1))
	}
	require.Len(t, d.uses, 11, "callers")
	require.Equal(t, 10, d.ended.Len())
	c.advance(time.Minute)
	held()
	require.Equal(t, 1, begun(d, ByAPIKey("backend"), 0, 1))
	require.Len(t, d.uses, 2)
	c.advance(time.Minute)
	_, ok = d.Begin(ByAPIKey("backend"), "1")
	require.True(t, ok)
	require.Len(t, d.uses, 1)
	require.Zero(t, d.ended.Len())
}
