package limit

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTally: each caller has as many as allowed, and a caller that has nothing takes no memory.
func TestTally(t *testing.T) {
	t.Parallel()
	var tally Tally
	alice, bob := ByUser("issuer", "alice"), ByUser("issuer", "bob")
	require.True(t, tally.Add(alice, 3, 5))
	require.True(t, tally.Add(alice, 2, 5))
	require.False(t, tally.Add(alice, 1, 5))
	require.True(t, tally.Add(bob, 9, 0), "there is no maximum")
	require.True(t, tally.Add(alice, -5, 5))
	require.True(t, tally.Add(bob, -9, 5), "also if there were more before")
	require.Empty(t, tally.counts)
}
