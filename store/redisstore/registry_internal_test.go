package redisstore

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// TestAgreedIsBounded: a namespace that nobody asks for any more is not remembered for ever, one that is asked for is,
// also while its meta cannot be read. That counts in a Cluster only.
func TestAgreedIsBounded(t *testing.T) {
	keys := keyspace{prefix: "presence:", shards: 1, unit: Milliseconds}
	gone, used := keys.namespace("gone"), keys.namespace("used")
	agree := func(s *Store) {
		for _, ns := range []namespace{gone, used} {
			require.NoError(t, s.agree(ns, ns.meta().String()))
		}
	}
	inCluster := &Store{client: redis.NewClusterClient(&redis.ClusterOptions{})}
	defer inCluster.client.Close()
	agree(inCluster)
	for range 2 * keepAgreed {
		inCluster.checkAgain()
		require.True(t, inCluster.agreedInCluster(used))
	}
	require.False(t, inCluster.agreedInCluster(gone))

	alone := &Store{client: redis.NewClient(&redis.Options{})}
	defer alone.client.Close()
	agree(alone)
	require.False(t, alone.agreedInCluster(used))
}
