package limit

import (
	"io"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestMemory checks that no limit is exceeded, whatever callers take and release, and that a request that fits
// is accepted.
func TestMemory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const total = 24 << 20
		m := NewMemory(total, func(Policy, int64) error { return io.EOF })
		callers := []Key{
			ByAPIKey("a"), ByAPIKey("b"), ByUser("i", "a"), ByUser("i", "b"),
			{Policy: PerAddress},
		}
		holds := make([]Hold, 20)
		for i := range holds {
			holds[i] = Hold{memory: m, key: callers[i%len(callers)], shared: i != 4}
		}
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			h := &holds[rapid.IntRange(0, len(holds)-1).Draw(t, "hold")]
			switch n := rapid.IntRange(1, 4<<20).Draw(t, "bytes"); {
			case rapid.IntRange(0, 3).Draw(t, "what") == 0:
				h.Release()
			default:
				used, shares, keyless := usage(holds)
				fits := used+int64(n) <= total && (h.key.Policy == PerKey || keyless+int64(n) <= total*3/4) &&
					(!h.shared || shares[h.key]+int64(n) <= m.share(h.key.Policy))
				require.Equal(t, fits, h.Grow(n) == nil)
			}
			used, shares, keyless := usage(holds)
			require.Equal(t, used, m.used)
			require.Equal(t, keyless, m.keyless)
			require.Equal(t, shares, m.callers)
		}
		for i := range holds {
			holds[i].Release()
		}
		require.Zero(t, m.used+m.keyless)
		require.Empty(t, m.callers, "it does not grow with callers that come and go")
	})
}

// usage adds up what is held.
func usage(holds []Hold) (used int64, shares map[Key]int64, keyless int64) {
	shares = map[Key]int64{}
	for _, h := range holds {
		used += h.bytes
		if h.shared && h.bytes > 0 {
			shares[h.key] += h.bytes
		}
		if h.key.Policy != PerKey {
			keyless += h.bytes
		}
	}
	return used, shares, keyless
}
