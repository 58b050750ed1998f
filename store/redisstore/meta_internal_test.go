package redisstore

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/store"
)

// TestAgreedIsBounded: an unused namespace is not remembered for ever. One that is in use is, even while its meta cannot
// be read.
func TestAgreedIsBounded(t *testing.T) {
	keys := keyspace{prefix: "presence:", shards: 1, unit: Milliseconds}
	gone, used := keys.namespace("gone"), keys.namespace("used")
	agree := func(s *Store) {
		for _, ns := range []namespace{gone, used} {
			c := &candidate{namespace: ns}
			s.checkMeta(c, ns.meta().String())
			require.NoError(t, c.err)
			require.False(t, s.agreements.current(ns.name), "its scores may have to be checked")
		}
	}
	inCluster := &Store{client: redis.NewClusterClient(&redis.ClusterOptions{})}
	defer inCluster.client.Close()
	agree(inCluster)
	for range 2 * keepAgreed {
		inCluster.agreements.nextRound()
		require.True(t, inCluster.agreements.prolong(used.name))
	}
	require.False(t, inCluster.agreements.prolong(gone.name))
}

// TestAgreedOutsideACluster: a namespace is on the Redis that has its meta. If the meta cannot be read, the namespace
// cannot be served either.
func TestAgreedOutsideACluster(t *testing.T) {
	ns := keyspace{prefix: "presence:", shards: 1, unit: Milliseconds}.namespace("used")
	alone := &Store{client: redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})}
	defer alone.client.Close()
	alone.agreements.note(ns.name)
	c := &candidate{namespace: ns}
	alone.checkMetas(context.Background(), []*candidate{c})
	require.ErrorIs(t, c.err, store.ErrUnavailable)
	require.False(t, c.hasMeta)
}
