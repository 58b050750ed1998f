package topologies

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/storetest/kit"
	"github.com/lastseen/lastseen/store/storetest/redistest"
	"github.com/lastseen/lastseen/store/storetest/redistest/stores"
)

// TestOutage: without Redis every call fails as unavailable; with it back, all work again by
// themselves.
func TestOutage(t *testing.T) {
	t.Parallel()
	server := redistest.StartProcess(t)
	s := stores.New(t, redisstore.Options{URL: server.URL(), Timeout: time.Second})
	stores.UntilSuccess(t, func() error { return stores.Ping(s, "chat", "alice") })
	allFail := func() {
		all := stores.AllCalls(s, "chat")
		all["New"] = func() error { return stores.Ping(s, "new", "alice") }
		all["Namespaces"] = func() error { _, err := s.Namespaces(context.Background(), "", 10); return err }
		all["Ready"] = func() error { return s.Ready(context.Background()) }
		stores.RequireUnavailable(t, all)
	}
	recovers := func() {
		stores.UntilSuccess(t, func() error { return stores.Ping(s, "chat", "alice") })
	}
	server.Freeze(t)
	allFail()
	server.Thaw(t)
	recovers()
	server.Stop(t)
	allFail()
	server.Start(t)
	recovers()
	require.NoError(t, s.Ready(context.Background()))
}

// TestReplicaWithoutPrimary: Redis answers, and refuses. Inside a transaction it gives no reason.
func TestReplicaWithoutPrimary(t *testing.T) {
	ctx, server := context.Background(), redistest.StartProcess(t)
	client := stores.NewClient(t, server.URL())
	s := stores.New(t, redisstore.Options{URL: server.URL()})
	require.NoError(t, stores.Ping(s, "chat", "alice"))
	require.NoError(t, client.ConfigSet(ctx, "replica-serve-stale-data", "no").Err())
	require.NoError(t, client.ReplicaOf(ctx, "127.0.0.1", "1").Err())
	// Counting comes first: after a failed write the namespace is checked again, before anything is counted.
	require.ErrorIs(t, stores.Calls(s)["Count"](), store.ErrUnavailable)
	for name, call := range stores.AllCalls(s, "chat") {
		require.ErrorIs(t, call(), store.ErrUnavailable, name)
	}
	require.NoError(t, client.ReplicaOf(ctx, "NO", "ONE").Err())
	require.Equal(t, kit.Base, kit.Lookup(t, s, "alice")[0].At)
}

// TestFullMemory: writes fail as full, reads go on, and so do deletions, with which an operator makes room.
func TestFullMemory(t *testing.T) {
	ctx, server := context.Background(), redistest.StartProcess(t)
	client := stores.NewClient(t, server.URL())
	s := stores.New(t, redisstore.Options{URL: server.URL()})
	require.NoError(t, stores.Ping(s, "chat", "alice"))
	require.NoError(t, client.ConfigSet(ctx, "maxmemory", "1").Err())
	require.ErrorIs(t, stores.Ping(s, "chat", "bob"), store.ErrFull)
	states := kit.Lookup(t, s, "alice", "bob")
	require.Equal(t, kit.Base, states[0].At)
	require.Zero(t, states[1])
	require.Equal(t, []int64{1, 0}, kit.Count(t, s, kit.Everyone()...))
	for _, user := range []string{"alice", ""} {
		require.NoError(t, s.CloseConnections(ctx, "chat", user))
	}
	require.NoError(t, s.Forget(ctx, "chat", "alice"))
	require.NoError(t, s.DeleteNamespace(ctx, "chat"))
	require.NoError(t, client.ConfigSet(ctx, "maxmemory", "0").Err())
	require.NoError(t, stores.Ping(s, "chat", "bob"))
}

func TestPassword(t *testing.T) {
	ctx, server := context.Background(), redistest.StartProcess(t)
	client := stores.NewClient(t, server.URL())
	require.NoError(t, client.ConfigSet(ctx, "requirepass", "geheim").Err())
	right := stores.New(t, redisstore.Options{URL: "redis://:geheim@" + server.Addr + "/2"})
	require.NoError(t, stores.Ping(right, "chat", "alice"))
	admin := stores.NewClient(t, "redis://:geheim@"+server.Addr+"/2")
	require.Equal(t, []string{"alice"}, admin.ZRange(ctx, "presence:chat", 0, -1).Val(), "in the database of the URL")
	require.NoError(t, admin.Do(ctx, "ACL", "SETUSER", "dot", "on", ">ge/heim", "~presence:*", "+@all").Err())
	named := stores.New(t, redisstore.Options{URL: "redis://dot:ge%2Fheim@" + server.Addr + "/2"})
	require.Equal(t, kit.Base, kit.Lookup(t, named, "alice")[0].At)
}

// TestReadyLeavesNothing: asking does not write.
func TestReadyLeavesNothing(t *testing.T) {
	ctx, client, s := stores.Start(t)
	for range 2 {
		require.NoError(t, s.Ready(ctx))
	}
	require.Empty(t, client.Keys(ctx, "*").Val())
}

// TestReadyMeansPingsSucceed: whatever makes Redis refuse a ping makes it not ready, and nothing else
// does.
func TestReadyMeansPingsSucceed(t *testing.T) {
	ctx, server := context.Background(), redistest.StartProcess(t)
	client, admin := server.Client(t), stores.NewClient(t, "redis://admin:geheim@"+server.Addr)
	require.NoError(t, client.Do(ctx, "ACL", "SETUSER", "admin", "on", ">geheim", "allkeys", "+@all").Err())
	s := stores.New(t, redisstore.Options{URL: server.URL()})
	agrees := func(want error) {
		t.Helper()
		if want == nil {
			require.NoError(t, stores.Ping(s, "chat", "alice"))
			require.NoError(t, s.Ready(ctx))
			return
		}
		require.ErrorIs(t, stores.Ping(s, "chat", "alice"), want)
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

// TestWrongSettings: what looks like an outage, and only another setting ends, is named with the setting, by Ready, by
// calls, and in the log.
func TestWrongSettings(t *testing.T) {
	t.Parallel()
	ctx, server := context.Background(), redistest.StartProcess(t)
	admin := server.Client(t)
	require.NoError(t, admin.Do(ctx, "ACL", "SETUSER", "default", "on", ">geheim").Err())
	admin = stores.NewClient(t, "redis://:geheim@"+server.Addr)
	require.NoError(t, admin.Do(ctx, "ACL", "SETUSER", "app", "on", ">geheim", "~*", "&*", "+@all", "-time").Err())
	plain, renamed := redistest.Start(t), redistest.StartProcess(t, "--rename-command", "TIME", "")
	watched, encrypted := redistest.StartSentinel(t), freePort(t)
	cert, key := writeCertificate(t)
	redistest.StartProcess(t, "--tls-port", encrypted, "--tls-ca-cert-file", cert, "--tls-cert-file", cert,
		"--tls-key-file", key)
	for _, c := range []struct{ url, cause, setting string }{
		{"redis://:falsch@" + server.Addr, "WRONGPASS", "the user or the password: correct them in --store"},
		{"redis://" + server.Addr, "NOAUTH", "the user or the password: correct them in --store"},
		{"redis://:geheim@" + server.Addr + "/99", "DB index", "correct its number in --store"},
		{"redis://app:geheim@" + server.Addr, "can't run", "docs/redis.md lists those it needs"},
		{renamed.URL(), "Unknown Redis command", "rename-command"},
		{strings.Replace(plain, "redis:", "redis+cluster:", 1), "cluster support", "begin --store with redis://"},
		{strings.Replace(plain, "redis:", "rediss:", 1), "handshake", "begin --store with redis://"},
		{strings.Replace(plain, "redis:", "rediss+cluster:", 1), "handshake", "begin --store with redis://"},
		{"redis://127.0.0.1:" + encrypted, "", "speaks TLS: begin --store with rediss://"},
		{"redis+cluster://127.0.0.1:" + encrypted, "", "speaks TLS: begin --store with rediss://"},
		{strings.Replace(watched.URL(), "master=", "master=not", 1), "redis: nil", "correct master in --store"},
		{strings.Replace(watched.URL(), "redis+", "rediss+", 1), "handshake", "begin --store with redis"},
	} {
		o := redisstore.Options{URL: c.url, Timeout: time.Second, DialTimeout: time.Second / 4}
		s, log := stores.NewLogged(t, o)
		for name, err := range map[string]error{"ready": s.Ready(ctx), "ping": stores.Ping(s, "chat", "alice")} {
			require.ErrorIs(t, err, store.ErrUnavailable, c.url+" "+name)
			require.ErrorContains(t, err, c.cause, name)
			require.ErrorContains(t, err, c.setting, name)
		}
		stores.Eventually(t, func() bool { return log.Count(c.setting) > 0 }, c.url)
		require.NotContains(t, log.String(), "falsch")
	}
}

// TestClosedWithoutReply: a server that closes each connection, and does not speak TLS, is not said to.
func TestClosedWithoutReply(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = conn.Read(make([]byte, 64))
				_ = conn.Close()
			}()
		}
	}()
	s, _ := stores.NewLogged(t, redisstore.Options{URL: "redis://" + listener.Addr().String()})
	err = stores.Ping(s, "chat", "alice")
	require.ErrorContains(t, err, "EOF")
	require.NotContains(t, err.Error(), "TLS")
}

// TestRightTakenAway: a server whose clock is set notices that the script of a ping may no longer read the time.
func TestRightTakenAway(t *testing.T) {
	ctx, url, client := stores.StartRedis(t)
	stores.Restrict(t, client)
	s := stores.New(t, redisstore.Options{URL: stores.AsApp(url)})
	require.NoError(t, s.Ready(ctx))
	require.NoError(t, client.Do(ctx, "ACL", "SETUSER", "app", "-time").Err())
	require.ErrorContains(t, s.Ready(ctx), "lacks a right")
	require.ErrorContains(t, stores.Ping(s, "chat", "alice"), "lacks a right")
}

// TestNotReadyWithoutDisk: Redis refuses to write when it cannot save.
func TestNotReadyWithoutDisk(t *testing.T) {
	ctx, server := context.Background(), redistest.StartProcess(t)
	s, client := stores.New(t, redisstore.Options{URL: server.URL()}), server.Client(t)
	require.NoError(t, stores.Ping(s, "chat", "alice"))
	require.NoError(t, client.ConfigSet(ctx, "save", "3600 1").Err())
	server.LoseFolder(t)
	require.NoError(t, client.BgSave(ctx).Err())
	stores.Eventually(t, func() bool { return stores.Ping(s, "chat", "alice") != nil })
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
	s := stores.New(t, redisstore.Options{URL: server.URL(), Timeout: 2 * time.Second})
	server.StartLoading(t, "--key-load-delay", "50") // µs a command; every 1,024th it answers
	loading := 0
	stores.Eventually(t, func() bool {
		err := s.Ready(ctx)
		if redis.HasErrorPrefix(err, "LOADING") {
			loading++
		}
		return err == nil
	})
	require.Positive(t, loading, "never seen loading")
}

// TestNotReadyWhenTheClusterIsDown: by default a Cluster that lacks one primary refuses to serve the slots
// of the others, too.
func TestNotReadyWhenTheClusterIsDown(t *testing.T) {
	t.Parallel()
	ctx, c := context.Background(), redistest.StartCluster(t, 0, redistest.QuickToFail)
	s := stores.New(t, redisstore.Options{URL: c.URL(), Timeout: 250 * time.Millisecond})
	stores.UntilSuccess(t, func() error { return stores.Ping(s, "chat", "alice") })
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
	stores.Eventually(t, func() bool { // a timeout is not enough
		err := s.Ready(ctx)
		return err != nil && strings.Contains(err.Error(), "CLUSTERDOWN")
	})
	stores.RequireUnavailable(t, stores.AllCalls(s, "chat"))
	require.ErrorIs(t, s.Ready(ctx), store.ErrUnavailable)
}
