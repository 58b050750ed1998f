package limit

import (
	"net/netip"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// clock is a time that a test sets.
type clock struct{ at time.Time }

func (c *clock) now() time.Time              { return c.at }
func (c *clock) advance(d time.Duration)     { c.at = c.at.Add(d) }
func newClock() *clock                       { return &clock{time.Unix(1_795_176_000, 0)} }
func newBuckets(size int) (*Buckets, *clock) { c := newClock(); return New(size, c.now), c }
func address(text string) Key                { return ByAddress(netip.MustParseAddr(text)) }
func taken(b *Buckets, c Key, l Limits) (n int) { // until nothing is left
	for {
		if _, ok := b.AllowN(c, l, 1); !ok {
			return n
		}
		n++
	}
}

// TestRefill checks that a bucket holds the requests of 5 seconds and refills one by one.
func TestRefill(t *testing.T) {
	b, clock := newBuckets(10)
	alice, limits := ByUser("issuer", "alice"), Limits{User: 20}
	require.Equal(t, 100, taken(b, alice, limits))
	refusal, _ := b.AllowN(alice, limits, 1)
	require.Equal(t, Exceeded{PerSecond: 20, Wait: 50 * time.Millisecond}, refusal)

	clock.advance(49 * time.Millisecond)
	refusal, ok := b.AllowN(alice, limits, 1)
	require.False(t, ok)
	require.InDelta(t, time.Millisecond, refusal.Wait, 1000, "a refused request takes nothing")
	clock.advance(refusal.Wait)
	require.Equal(t, 1, taken(b, alice, limits), "as soon as was said")

	clock.advance(Window)
	require.Equal(t, 100, taken(b, alice, limits))
	clock.advance(24 * time.Hour)
	require.Equal(t, 100, taken(b, alice, limits), "it does not overflow")
}

// TestCallersAreSeparate checks that callers with the same name but of another kind have their own limits.
func TestCallersAreSeparate(t *testing.T) {
	b, _ := newBuckets(100)
	limits := Limits{Caller: 2, User: 1}
	for _, c := range []Key{
		ByUser("issuer", "alice"), ByUser("issuer", "bob"), ByUser("other", "alice"), ByUser("issueralice", ""),
	} {
		require.Equal(t, 5, taken(b, c, limits), c)
	}
	for _, c := range []Key{
		ByAPIKey("alice"), ByAPIKey("203.0.113.7"), address("203.0.113.7"), address("203.0.113.8"),
		ByAddress(netip.Addr{}),
	} {
		require.Equal(t, 10, taken(b, c, limits), c)
	}
}

// TestAddresses checks which addresses are one caller.
func TestAddresses(t *testing.T) {
	one := address("2001:db8:1:2::1")
	require.Equal(t, one, address("2001:db8:1:2:ffff:ffff:ffff:ffff"))
	require.Equal(t, one, address("2001:db8:1:2::1%eth0"))
	require.NotEqual(t, one, address("2001:db8:1:3::1"))
	require.Equal(t, address("203.0.113.7"), address("::ffff:203.0.113.7"), "IPv4, as a socket for both calls it")
	require.NotEqual(t, address("203.0.113.7"), address("::ffff:203.0.113.8"))
}

// TestReload checks that new limits apply from the next request on, also to existing buckets.
func TestReload(t *testing.T) {
	b, clock := newBuckets(10)
	backend := ByAPIKey("backend")
	require.Equal(t, 50, taken(b, backend, Limits{Caller: 10}))
	clock.advance(Window)
	require.Equal(t, 10, taken(b, backend, Limits{Caller: 2}), "tightened")
	clock.advance(time.Second)
	require.Equal(t, 2, taken(b, backend, Limits{Caller: 2}))

	clock.advance(time.Second)
	require.Equal(t, 2, taken(b, backend, Limits{Caller: 100}), "loosened: what is in the bucket stays")
	clock.advance(time.Second)
	require.Equal(t, 100, taken(b, backend, Limits{Caller: 100}))

	for range 1000 {
		_, ok := b.AllowN(backend, Limits{User: 1}, 1)
		require.True(t, ok, "off")
	}
	require.Zero(t, taken(b, backend, Limits{Caller: 100}), "and on again")
}

// TestMemoryIsBounded checks that the number of buckets is limited, whatever the number of callers and the length of
// their names.
func TestMemoryIsBounded(t *testing.T) {
	b, _ := newBuckets(DefaultSize)
	limits := Limits{User: 1}
	regular := ByUser("issuer", "regular")
	taken(b, regular, limits)
	before := heap()
	long := strings.Repeat("x", 200)
	for n := range 5 * DefaultSize {
		_, ok := b.AllowN(ByUser("issuer", long+strconv.Itoa(n)), limits, 1)
		require.True(t, ok)
		if n%(DefaultSize/2) == 0 {
			require.Zero(t, taken(b, regular, limits), "who keeps asking is kept in mind")
		}
	}
	require.Equal(t, DefaultSize, b.kept.Len())
	require.Less(t, heap()-before, int64(20<<20))
	runtime.KeepAlive(b)
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestConcurrently checks that concurrent requests of a caller get its limit and no more, also if the caller is new.
func TestConcurrently(t *testing.T) {
	b, _ := newBuckets(1000)
	const callers, goroutines = 100, 8
	var allowed atomic.Int64
	var all sync.WaitGroup
	for range goroutines {
		all.Go(func() {
			for n := range callers * 5 {
				if _, ok := b.AllowN(ByAPIKey(strconv.Itoa(n%callers)), Limits{Caller: 1}, 1); ok {
					allowed.Add(1)
				}
			}
		})
	}
	all.Wait()
	require.EqualValues(t, callers*5, allowed.Load())
}

// TestAllowN checks that many requests at once take at most half of a full bucket, and all or nothing.
func TestAllowN(t *testing.T) {
	b, clock := newBuckets(10)
	alice, limits := ByUser("issuer", "alice"), Limits{User: 20}
	for range 2 {
		_, ok := b.AllowN(alice, limits, 1_000_000)
		require.True(t, ok)
	}
	refusal, ok := b.AllowN(alice, limits, 10)
	require.False(t, ok)
	require.Equal(t, Exceeded{PerSecond: 20, Wait: 500 * time.Millisecond}, refusal)
	clock.advance(refusal.Wait)
	_, ok = b.AllowN(alice, limits, 11)
	require.False(t, ok)
	_, ok = b.AllowN(alice, limits, 10)
	require.True(t, ok, "the refused requests took nothing")
	_, ok = b.AllowN(alice, Limits{}, 1_000_000)
	require.True(t, ok)
}
