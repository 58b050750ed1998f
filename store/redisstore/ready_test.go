package redisstore_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// TestReadyLeavesNothing: asking does not write.
func TestReadyLeavesNothing(t *testing.T) {
	ctx, url := context.Background(), redistest.Start(t)
	client := newClient(t, url)
	s := newStore(t, redisstore.Options{URL: url})
	for range 2 {
		require.NoError(t, s.Ready(ctx))
	}
	require.Empty(t, client.Keys(ctx, "*").Val())
}

// TestReadyMeansPingsSucceed: whatever makes Redis refuse a ping makes it not ready, and nothing else
// does.
func TestReadyMeansPingsSucceed(t *testing.T) {
	ctx, server := context.Background(), redistest.StartProcess(t)
	client, admin := server.Client(t), newClient(t, "redis://admin:geheim@"+server.Addr)
	require.NoError(t, client.Do(ctx, "ACL", "SETUSER", "admin", "on", ">geheim", "allkeys", "+@all").Err())
	s := newStore(t, redisstore.Options{URL: server.URL()})
	agrees := func(want error) {
		t.Helper()
		if want == nil {
			require.NoError(t, ping(s, "chat", "alice"))
			require.NoError(t, s.Ready(ctx))
			return
		}
		require.ErrorIs(t, ping(s, "chat", "alice"), want)
		require.ErrorIs(t, s.Ready(ctx), want)
	}
	set := func(name, value string) { require.NoError(t, client.ConfigSet(ctx, name, value).Err()) }
	agrees(nil)

	set("maxmemory", "1")
	agrees(store.ErrFull)
	set("maxmemory", "0")
	agrees(nil)

	require.NoError(t, client.ReplicaOf(ctx, "127.0.0.1", "1").Err())
	agrees(store.ErrUnavailable)
	require.NoError(t, client.ReplicaOf(ctx, "NO", "ONE").Err())
	agrees(nil)

	set("min-replicas-to-write", "1")
	agrees(store.ErrUnavailable)
	set("min-replicas-to-write", "0")
	agrees(nil)

	for rights, want := range map[string]error{
		"-@write": store.ErrUnavailable, "-@scripting": store.ErrUnavailable, "resetkeys": store.ErrUnavailable,
		"-info": nil, "-config": nil,
	} {
		require.NoError(t, admin.Do(ctx, "ACL", "SETUSER", "default", "reset", "on", "nopass", "allkeys", "+@all",
			rights).Err())
		agrees(want)
	}
}

// TestNotReadyWithoutRights is TestReadyMeansPingsSucceed for a server that never knew them.
func TestNotReadyWithoutRights(t *testing.T) {
	ctx, server := context.Background(), redistest.StartProcess(t)
	require.NoError(t, server.Client(t).ConfigSet(ctx, "requirepass", "geheim").Err())
	s := newStore(t, redisstore.Options{URL: server.URL()})
	require.ErrorIs(t, s.Ready(ctx), store.ErrUnavailable)
	require.ErrorContains(t, s.Ready(ctx), "NOAUTH")
}

// TestNotReadyWithoutDisk: Redis refuses to write when it cannot save.
func TestNotReadyWithoutDisk(t *testing.T) {
	ctx, server := context.Background(), redistest.StartProcess(t)
	s, client := newStore(t, redisstore.Options{URL: server.URL()}), server.Client(t)
	require.NoError(t, ping(s, "chat", "alice"))
	require.NoError(t, client.ConfigSet(ctx, "save", "3600 1").Err())
	server.LoseFolder(t)
	require.NoError(t, client.BgSave(ctx).Err())
	require.Eventually(t, func() bool { return ping(s, "chat", "alice") != nil }, longTimeout, time.Millisecond)
	err := s.Ready(ctx)
	require.ErrorIs(t, err, store.ErrUnavailable)
	require.ErrorContains(t, err, "MISCONF")
}

// TestNotReadyWhileLoading: Redis answers, but knows nothing yet.
func TestNotReadyWhileLoading(t *testing.T) {
	t.Parallel()
	ctx, server := context.Background(), redistest.StartProcess(t)
	client := server.Client(t)
	pipe := client.Pipeline()
	for range 20_000 {
		pipe.Incr(ctx, "n")
	}
	_, err := pipe.Exec(ctx)
	require.NoError(t, err)
	server.Stop(t)
	s := newStore(t, redisstore.Options{URL: server.URL(), Timeout: 2 * time.Second})
	server.StartLoading(t, "--key-load-delay", "50") // µs a command; every 1,024th it answers
	loading := 0
	require.Eventually(t, func() bool {
		err := s.Ready(ctx)
		if redis.HasErrorPrefix(err, "LOADING") {
			loading++
		}
		return err == nil
	}, longTimeout, time.Millisecond)
	require.Positive(t, loading, "never seen loading")
}

// TestNotReadyWhenTheClusterIsDown: by default a Cluster that lacks one primary refuses to serve the slots
// of the others, too.
func TestNotReadyWhenTheClusterIsDown(t *testing.T) {
	t.Parallel()
	ctx, c := context.Background(), redistest.StartCluster(t, 0, redistest.QuickToFail)
	s := newStore(t, redisstore.Options{URL: c.URL(), Timeout: 250 * time.Millisecond})
	require.Eventually(t, func() bool { return ping(s, "chat", "alice") == nil }, longTimeout, time.Millisecond)
	for _, primary := range c.Primaries {
		require.NoError(t, primary.Client(t).ConfigSet(ctx, "cluster-require-full-coverage", "yes").Err())
	}
	owner := c.Owner(t, "presence:chat")
	for _, primary := range c.Primaries {
		if primary != owner {
			primary.Stop(t)
			break
		}
	}
	require.Eventually(t, func() bool { // a timeout is not enough
		err := s.Ready(ctx)
		return err != nil && strings.Contains(err.Error(), "CLUSTERDOWN")
	}, longTimeout, time.Millisecond)
	for name, call := range allCalls(s, "chat") {
		require.ErrorIs(t, call(), store.ErrUnavailable, name)
	}
	require.ErrorIs(t, s.Ready(ctx), store.ErrUnavailable)
}
