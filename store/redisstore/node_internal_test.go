package redisstore

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// onCluster is a store on a Cluster that knows of its slots what the function says, and of nothing else.
func onCluster(t *testing.T, shards int, slots func(context.Context) ([]redis.ClusterSlot, error)) *Store {
	t.Helper()
	client := redis.NewClusterClient(&redis.ClusterOptions{ClusterSlots: slots, ClusterStateReloadInterval: time.Hour})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return &Store{client: client, keys: keyspace{prefix: "presence:", shards: shards}, timeout: time.Minute}
}

// TestNodeOfShard: it is the primary's address, and found once per shard, not once per user: a bulk request has
// thousands of users.
func TestNodeOfShard(t *testing.T) {
	s := onCluster(t, 4, func(context.Context) ([]redis.ClusterSlot, error) {
		return []redis.ClusterSlot{
			{Start: 0, End: 8191, Nodes: []redis.ClusterNode{{Addr: "127.0.0.1:1"}}},
			{Start: 8192, End: 16383, Nodes: []redis.ClusterNode{{Addr: "127.0.0.1:2"}}},
		}, nil
	})
	of, seen := s.NodeOf("chat"), map[string]int{}
	for i := range 100 {
		user := fmt.Sprint("u", i)
		primary, err := s.client.(*redis.ClusterClient).MasterForKey(context.Background(),
			s.keys.namespace("chat").of(user))
		require.NoError(t, err)
		require.Equal(t, primary.Options().Addr, of(user))
		seen[of(user)]++
	}
	require.Len(t, seen, 2)
	user := "alice"
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() { of(user) }), 1.0,
		"the hash of the user; no context, no key")
}

// TestNodeOfAnUnknownCluster: while the slots are unknown, a call asks once, not once per user.
func TestNodeOfAnUnknownCluster(t *testing.T) {
	asked := 0
	s := onCluster(t, 64, func(context.Context) ([]redis.ClusterSlot, error) {
		asked++
		return nil, errors.New("away")
	})
	of := s.NodeOf("chat")
	for i := range 1000 {
		require.Empty(t, of(fmt.Sprint("u", i)))
	}
	require.Equal(t, 1, asked)
}
