package redisstore

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestShardOf holds values computed by another implementation of FNV-1a-64: users must be found where
// earlier versions put them.
func TestShardOf(t *testing.T) {
	for user, want := range map[string][4]int{
		"":      {0, 2, 5, 37},
		"alice": {0, 1, 7, 7},
		"bob":   {0, 2, 4, 20},
		"é":     {0, 2, 1, 1},
		"a/b":   {0, 3, 1, 33},

		strings.Repeat("x", 256): {0, 6, 5, 37},
	} {
		for i, shards := range []int{1, 7, 16, 64} {
			require.Equal(t, want[i], shardOf(user, shards), "%.10q of %d", user, shards)
		}
	}
}

func TestSplit(t *testing.T) {
	n := keyspace{prefix: "p:", shards: 1}.namespace("n")
	chunks := n.split(1100, maxChunk, func(i int) string { return fmt.Sprint(i) })
	require.Len(t, chunks, 3)
	next := 0
	for _, p := range chunks {
		require.Equal(t, "p:n", p.key)
		require.LessOrEqual(t, len(p.index), maxChunk)
		for _, i := range p.index {
			require.Equal(t, next, i)
			next++
		}
	}
	require.Equal(t, 1100, next)
}
