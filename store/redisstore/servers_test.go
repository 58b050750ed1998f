package redisstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/redisstore/redisclient"
	"github.com/lastseen/lastseen/store/storetest/redistest"
	"github.com/lastseen/lastseen/store/storetest/redistest/stores"
)

// TestTooOld: every call says why it fails, from the first one on, and so does the log.
func TestTooOld(t *testing.T) {
	ctx := context.Background()
	info := "# Server\r\nredis_version:6.0.16\r\nredis_mode:standalone\r\n"
	s, log := stores.NewLogged(t, redisstore.Options{URL: redistest.StartImpostor(t, info)})
	for range 2 {
		for name, call := range stores.AllCalls(s, "chat") {
			require.ErrorIs(t, call(), redisclient.ErrTooOld, name)
			require.ErrorIs(t, call(), store.ErrUnavailable, name)
			require.ErrorContains(t, call(), "6.0.16", name)
		}
	}
	require.ErrorIs(t, s.Ready(ctx), redisclient.ErrTooOld)
	require.ErrorIs(t, s.Register(ctx, []string{"chat"}), redisclient.ErrTooOld)
	_, err := s.Now(ctx)
	require.ErrorIs(t, err, redisclient.ErrTooOld)
	_, err = s.Lease(ctx, "job", time.Hour)
	require.ErrorIs(t, err, redisclient.ErrTooOld)
	require.Equal(t, 1, log.Count("too old: every call is refused"), "once")
}

// TestOtherServers: compatible servers report the version of Redis that they are compatible with. One that does not is
// trusted, and that is logged.
func TestOtherServers(t *testing.T) {
	for info, unknown := range map[string]int{
		"redis_version:6.2.0\r\n":                            0,
		"redis_version:10.0.1\r\n":                           0,
		"redis_version:7.2.4\r\nvalkey_version:8.0.1\r\n":    0,
		"redis_version:6.3.4\r\nexecutable:keydb-server\r\n": 0,
		"redis_version:unstable\r\n":                         1,
		"":                                                   1,
	} {
		s, log := stores.NewLogged(t, redisstore.Options{URL: redistest.StartImpostor(t, info)})
		_, _, err := s.Describe(context.Background(), "chat", []string{"alice"})
		require.NotErrorIs(t, err, redisclient.ErrTooOld, info)
		require.Equal(t, unknown, log.Count("cannot be read: allow INFO"), info)
	}
}

// TestEvictionIsLogged: a policy that drops whole namespaces is, and one that spares keys without an end
// is not: ours have none.
func TestEvictionIsLogged(t *testing.T) {
	ctx, server := context.Background(), redistest.StartProcess(t)
	for policy, warnings := range map[string]int{
		"noeviction": 0, "volatile-lru": 0, "volatile-ttl": 0, "allkeys-lru": 1, "allkeys-random": 1,
	} {
		require.NoError(t, server.Client(t).ConfigSet(ctx, "maxmemory-policy", policy).Err())
		s, log := stores.NewLogged(t, redisstore.Options{URL: server.URL()})
		for range 3 {
			require.NoError(t, stores.Ping(s, "chat", "alice"))
		}
		require.Equal(t, warnings, log.Count("drops whole namespaces"), policy)
		require.Equal(t, warnings, log.Count("maxmemory-policy="+policy))
	}
}

// TestEvictionOfOnePrimary: each primary of a Cluster is looked at.
func TestEvictionOfOnePrimary(t *testing.T) {
	t.Parallel()
	ctx, c := context.Background(), redistest.StartCluster(t, 0)
	require.NoError(t, c.Primaries[2].Client(t).ConfigSet(ctx, "maxmemory-policy", "allkeys-lfu").Err())
	s, log := stores.NewLogged(t, redisstore.Options{URL: c.URL()})
	require.NoError(t, stores.Ping(s, "chat", "alice"))
	stores.Eventually(t, func() bool { return log.Count("drops whole namespaces") == 1 })
	require.Equal(t, 1, log.Count("server="+c.Primaries[2].Addr))
}

// TestRefusalIsLogged: a Redis that takes no writes is noticed without any, once.
func TestRefusalIsLogged(t *testing.T) {
	ctx, server := context.Background(), redistest.StartProcess(t)
	s, log := stores.NewLogged(t, redisstore.Options{URL: server.URL()})
	for times := range 2 {
		require.NoError(t, server.Client(t).ConfigSet(ctx, "maxmemory", "1").Err())
		for range 3 {
			s.Monitor(ctx)
		}
		require.Equal(t, times+1, log.Count("takes no writes"))
		require.Equal(t, times+1, log.Count("OOM"))
		require.NoError(t, server.Client(t).ConfigSet(ctx, "maxmemory", "0").Err())
		s.Monitor(ctx)
	}
}

// TestCancelledCheckIsNotLogged: a check that ends with its context, as when the store closes, finds nothing out about
// the server.
func TestCancelledCheckIsNotLogged(t *testing.T) {
	ctx, server := context.Background(), redistest.StartProcess(t)
	s, log := stores.NewLogged(t, redisstore.Options{URL: server.URL()})
	require.NoError(t, stores.Ping(s, "chat", "alice"))
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	require.ErrorIs(t, s.Client().TryWriting(cancelled)[0], context.Canceled)
	require.Zero(t, log.Count("takes no writes"))

	require.NoError(t, server.Client(t).ConfigSet(ctx, "maxmemory", "1").Err())
	require.ErrorIs(t, s.Client().TryWriting(ctx)[0], store.ErrFull)
	require.ErrorIs(t, s.Client().TryWriting(cancelled)[0], context.Canceled)
	require.ErrorIs(t, s.Client().TryWriting(ctx)[0], store.ErrFull)
	require.Equal(t, 1, log.Count("takes no writes"), "the refusal that was logged is remembered")
}

// TestWrongMode checks that the log names the right scheme when redis:// leads to a Cluster or a Sentinel.
func TestWrongMode(t *testing.T) {
	t.Parallel()
	s, log := stores.NewLogged(t, redisstore.Options{URL: redistest.StartCluster(t, 0).Primaries[0].URL()})
	var errs []error
	for _, namespace := range []string{"a", "b", "c", "d", "e", "f"} {
		errs = append(errs, stores.Ping(s, namespace, "alice"))
	}
	for _, err := range errs {
		require.ErrorIs(t, err, store.ErrUnavailable, "registry and meta are on different nodes")
	}
	require.Equal(t, 1, log.Count("the store URL has to begin with redis+cluster://"))

	watched := redistest.StartSentinel(t)
	s, log = stores.NewLogged(t, redisstore.Options{URL: watched.Sentinels[0].URL()})
	require.ErrorIs(t, stores.Ping(s, "chat", "alice"), store.ErrUnavailable)
	require.Equal(t, 1, log.Count("redis+sentinel://"))
}

// TestValkeyMode checks Valkey, whose INFO has another name for the mode. The texts are the beginning of its reply.
func TestValkeyMode(t *testing.T) {
	for mode, hints := range map[string]int{"standalone": 0, "cluster": 1, "sentinel": 1} {
		info := "# Server\r\nredis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.1.1\r\n" +
			"valkey_release_stage:ga\r\nredis_git_sha1:00000000\r\nredis_git_dirty:0\r\nredis_build_id:5beb99de11516a6b\r\n" +
			"server_mode:" + mode + "\r\n"
		s, log := stores.NewLogged(t, redisstore.Options{URL: redistest.StartImpostor(t, info)})
		_, _, _ = s.Describe(context.Background(), "chat", []string{"alice"})
		require.Equal(t, hints, log.Count("redis+"+mode+"://"), mode)
		require.Zero(t, log.Count("cannot be read"))
	}
}

// TestDemotedPrimary: a Redis that became a replica is logged once and not ready, even if it goes on taking writes,
// until it is promoted.
func TestDemotedPrimary(t *testing.T) {
	ctx, server := context.Background(), redistest.StartProcess(t)
	client := server.Client(t)
	s, log := stores.NewLogged(t, redisstore.Options{URL: server.URL()})
	require.NoError(t, s.Ready(ctx))
	for times, readOnly := range []string{"yes", "no"} {
		require.NoError(t, client.ConfigSet(ctx, "replica-read-only", readOnly).Err())
		require.NoError(t, client.ReplicaOf(ctx, "127.0.0.1", "1").Err())
		for range 3 {
			s.Monitor(ctx)
			require.ErrorIs(t, s.Ready(ctx), store.ErrUnavailable, "replica-read-only %s", readOnly)
		}
		require.Equal(t, times+1, log.Count("this Redis is a replica"))
		require.NoError(t, client.ReplicaOf(ctx, "NO", "ONE").Err())
		require.NoError(t, s.Ready(ctx))
		require.NoError(t, stores.Ping(s, "chat", "alice"))
	}
}

// TestOwnKeysOfAnotherType: without its own keys the store serves nothing, so it is not ready, and the log
// names the key.
func TestOwnKeysOfAnotherType(t *testing.T) {
	ctx, url, client := stores.StartRedis(t)
	s, log := stores.NewLogged(t, redisstore.Options{URL: url})
	require.NoError(t, stores.Ping(s, "chat", "alice"))
	for _, key := range []string{"presence::meta", "presence::namespaces"} {
		require.NoError(t, client.Rename(ctx, key, "aside").Err())
		require.NoError(t, client.Set(ctx, key, "a string", 0).Err())
		for range 3 {
			err := s.Ready(ctx)
			require.ErrorIs(t, err, store.ErrUnavailable)
			require.ErrorContains(t, err, "the key "+key)
			s.Monitor(ctx)
		}
		require.Equal(t, 1, log.Count("the key "+key))
		require.NoError(t, client.Rename(ctx, "aside", key).Err())
		require.NoError(t, s.Ready(ctx))
	}
}
