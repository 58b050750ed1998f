package redisstore

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/store"
)

// TestAgreedIsBounded: an unused namespace is not remembered for ever. One that is in use is, even while its meta
// cannot be read.
func TestAgreedIsBounded(t *testing.T) {
	ctx := context.Background()
	used := &candidate{namespace: keyspace{prefix: "presence:", shards: 1, unit: Milliseconds}.namespace("used")}
	nowhere := func(context.Context) ([]redis.ClusterSlot, error) { return nil, errors.New("away") }
	s := &Store{client: redis.NewClusterClient(&redis.ClusterOptions{ClusterSlots: nowhere}), timeout: time.Minute}
	defer s.client.Close()
	s.agreements.confirm("used", bits{})
	s.agreements.confirm("gone", bits{})
	for range 2 * keepAgreed {
		s.agreements.nextRound()
		require.False(t, s.agreements.current("used"))
		s.verify(ctx, []*candidate{used})
		require.NoError(t, used.err)
		require.True(t, s.agreements.current("used"))
	}
	require.True(t, s.agreements.known("used"))
	require.False(t, s.agreements.known("gone"))
}

// TestAgreedOutsideACluster: a namespace is on the Redis that has its meta. If the meta cannot be read, the namespace
// cannot be served either.
func TestAgreedOutsideACluster(t *testing.T) {
	ns := keyspace{prefix: "presence:", shards: 1, unit: Milliseconds}.namespace("used")
	alone := &Store{client: redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})}
	defer alone.client.Close()
	alone.agreements.confirm(ns.name, bits{})
	c := &candidate{namespace: ns}
	alone.checkMetas(context.Background(), []*candidate{c})
	require.ErrorIs(t, c.err, store.ErrUnavailable)
	require.False(t, c.hasMeta)
}
