package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore/redisclient"
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

// storeOn is a store with a client that does nothing by itself.
func storeOn(client redis.UniversalClient, count int) *Store {
	return &Store{
		client: &redisclient.Client{UniversalClient: client, Timeout: time.Minute},
		keys:   keyspace{prefix: "presence:", shards: count},
	}
}

// onCluster is a store on a Cluster that knows of its slots what the function says, and of nothing else.
func onCluster(t *testing.T, shards int, slots func(context.Context) ([]redis.ClusterSlot, error)) *Store {
	t.Helper()
	client := redis.NewClusterClient(&redis.ClusterOptions{ClusterSlots: slots, ClusterStateReloadInterval: time.Hour})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return storeOn(client, shards)
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
		primary, err := s.client.UniversalClient.(*redis.ClusterClient).MasterForKey(context.Background(),
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

// TestMetaCacheIsBounded: an unused namespace is not remembered for ever. One that is in use is, even while its meta
// cannot be read.
func TestMetaCacheIsBounded(t *testing.T) {
	ctx := context.Background()
	keys := keyspace{prefix: "presence:", shards: 1, unit: Milliseconds}
	used := &resolvedNamespace{namespace: keys.namespace("used")}
	nowhere := func(context.Context) ([]redis.ClusterSlot, error) { return nil, errors.New("away") }
	s := onCluster(t, 1, nowhere)
	s.metaCache.confirm("used")
	s.metaCache.confirm("gone")
	for range 2 * keepUnused {
		s.metaCache.nextRound()
		require.False(t, s.metaCache.current("used"))
		s.verify(ctx, []*resolvedNamespace{used})
		require.NoError(t, used.err)
		require.True(t, s.metaCache.current("used"))
	}
	for name, want := range map[string]bool{"used": true, "gone": false} {
		_, known := s.metaCache.load(name)
		require.Equal(t, want, known, name)
	}
}

// TestMetaCacheOutsideACluster: a namespace is on the Redis that has its meta. If the meta cannot be read, the
// namespace cannot be served either.
func TestMetaCacheOutsideACluster(t *testing.T) {
	ns := keyspace{prefix: "presence:", shards: 1, unit: Milliseconds}.namespace("used")
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
	defer client.Close()
	alone := storeOn(client, 1)
	alone.metaCache.confirm(ns.name)
	c := &resolvedNamespace{namespace: ns}
	alone.checkMetas(context.Background(), []*resolvedNamespace{c})
	require.ErrorIs(t, c.err, store.ErrUnavailable)
	require.False(t, c.hasMeta)
}

// TestMetaCacheExpires: namespaces are checked again after each interval, so that one which was deleted and created
// again by a server with other settings is not read as empty for long.
func TestMetaCacheExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		var a metaCache
		a.confirm("chat")
		go redisclient.Repeat(ctx, sampleEvery, a.expire())
		time.Sleep(sampleEvery - time.Second)
		require.True(t, a.current("chat"))
		time.Sleep(2 * time.Second)
		require.False(t, a.current("chat"))
		time.Sleep(2 * sampleEvery)
		cancel()
		synctest.Wait()
		require.EqualValues(t, 3, a.round.Load())
	})
}
