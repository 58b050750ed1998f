package auth

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestTokenCacheIsBounded checks the memory of cached tokens, which the issuer controls and not the operator.
func TestTokenCacheIsBounded(t *testing.T) {
	const limit, issued = 2 << 20, 1000 // a smaller cache, since making tokens takes long
	require.EqualValues(t, 16<<20, newAuthenticator(t, Config{Tokens: tokens()}).tokens.cache.limit)
	wide := make([]string, MaxClaimed)
	for i := range wide {
		wide[i] = fmt.Sprintf("%s-%02d", strings.Repeat("n", 40), i)
	}
	for name, namespaces := range map[string]any{
		"many namespaces":      wide,
		"some namespaces":      wide[:20],
		"a name between space": strings.Repeat(" ", 5500) + "chat",
		"long users":           nil,
	} {
		t.Run(name, func(t *testing.T) {
			a := newAuthenticator(t, Config{Tokens: tokens()})
			a.tokens.cache = newTokenCache(limit)
			before := heap()
			for i := range issued {
				user := fmt.Sprintf("%0200d", i)
				a.accepts(t, validToken(t, map[string]any{"sub": user, "namespaces": namespaces}))
			}
			used := heap() - before
			require.Less(t, used, int64(limit*3/2), "%d KiB", used>>10)
			require.LessOrEqual(t, used, a.tokens.cache.used*5/4+1<<19, "it is counted for what it is")
			require.LessOrEqual(t, a.tokens.cache.used, int64(limit))
			runtime.KeepAlive(a)
		})
	}
}

// TestLargeTokensAreNotCached checks that a large token does not evict hundreds of others.
func TestLargeTokensAreNotCached(t *testing.T) {
	a := newAuthenticator(t, Config{Tokens: tokens()})
	names := make([]string, MaxClaimed)
	for i := range names {
		names[i] = fmt.Sprintf("%s-%02d", strings.Repeat("n", 40), i)
	}
	for range 2 {
		a.accepts(t, validToken(t, map[string]any{"namespaces": names}))
	}
	require.Zero(t, a.tokens.cache.tokens.Len())
	a.accepts(t, validToken(t, nil))
	require.Equal(t, 1, a.tokens.cache.tokens.Len())
}
