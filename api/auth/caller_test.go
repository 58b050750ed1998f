package auth

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestSeekReadable goes through names as a page of namespaces does. It finds exactly those that a caller may read,
// however many others there are.
func TestSeekReadable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringMatching(`[ab-][ab.-]{0,2}`)
		patterns := rapid.SliceOfN(rapid.Map(rapid.StringMatching(`[ab-][ab.-]{0,2}\*?|\*`),
			func(s string) Pattern { return Pattern(s) }), 0, 4).Draw(t, "patterns")
		names := rapid.MapOf(name, rapid.Just(true)).Draw(t, "names")
		caller := &Caller{Kind: ByKey, scopes: []Scope{Read}, namespaces: patterns}
		found, asked := map[string]bool{}, 0
		for after, more := caller.SeekReadable(""); more; asked++ {
			next := ""
			for n := range names {
				if n > after && (next == "" || n < next) {
					next = n
				}
			}
			if next == "" {
				break
			}
			if caller.Can(Read, next) {
				require.False(t, found[next], "%s is found twice", next)
				found[next] = true
			}
			after, more = caller.SeekReadable(next)
		}
		want := map[string]bool{}
		for n := range names {
			if caller.Can(Read, n) {
				want[n] = true
			}
		}
		require.Equal(t, want, found)
		require.LessOrEqual(t, asked, len(want)+len(patterns)+1, "names of others are skipped")
	})
}
