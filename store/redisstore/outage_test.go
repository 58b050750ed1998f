package redisstore_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// TestOutage: without Redis every call fails as unavailable; with it back, all work again by
// themselves.
func TestOutage(t *testing.T) {
	t.Parallel()
	server := redistest.StartProcess(t)
	s := newStore(t, redisstore.Options{URL: server.URL(), Timeout: time.Second})
	require.Eventually(t, func() bool { return ping(s, "chat", "alice") == nil }, time.Minute, time.Millisecond)
	allFail := func() { // all at once, to wait for one timeout
		all := allCalls(s, "chat")
		all["New"] = func() error { return ping(s, "new", "alice") }
		all["Namespaces"] = func() error { _, err := s.Namespaces(context.Background(), "", 10); return err }
		all["Ready"] = func() error { return s.Ready(context.Background()) }
		var asking sync.WaitGroup
		defer asking.Wait()
		for name, call := range all {
			asking.Go(func() {
				if err := call(); !errors.Is(err, store.ErrUnavailable) {
					t.Errorf("%s: not an outage: %v", name, err)
				}
			})
		}
	}
	recovers := func() {
		require.Eventually(t, func() bool { return ping(s, "chat", "alice") == nil }, time.Minute, time.Millisecond)
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

// TestClockNeedsRedisOnce: the time that all servers share needs a first sample.
func TestClockNeedsRedisOnce(t *testing.T) {
	ctx, server := context.Background(), redistest.StartProcess(t)
	server.Stop(t)
	local := time.UnixMilli(int64(base))
	s := newStore(t, redisstore.Options{
		URL: server.URL(), Timeout: 250 * time.Millisecond,
		Now: func() time.Time { return local },
	})
	_, err := s.Now(ctx)
	require.ErrorIs(t, err, store.ErrUnavailable)
	began := time.Now()
	server.Start(t)
	client := newClient(t, server.URL())
	var now lastseen.Instant
	require.Eventually(t, func() bool { now, err = s.Now(ctx); return err == nil }, time.Minute, time.Millisecond)
	uncertain := time.Since(began) // a reading is by half of its round trip, which was within this
	require.LessOrEqual(t, now, lastseen.InstantOf(client.Time(ctx).Val().Add(uncertain)), "Redis' time, not ours")
	require.Greater(t, now, base+lastseen.Instant((24*time.Hour).Milliseconds()), "Redis' time, not ours")
	server.Stop(t)
	still, err := s.Now(ctx)
	require.NoError(t, err, "the offset is kept")
	require.GreaterOrEqual(t, still, now)
}

// TestReplicaWithoutPrimary: Redis answers, and refuses. Inside a transaction it gives no reason.
func TestReplicaWithoutPrimary(t *testing.T) {
	ctx, server := context.Background(), redistest.StartProcess(t)
	client := newClient(t, server.URL())
	s := newStore(t, redisstore.Options{URL: server.URL()})
	require.NoError(t, ping(s, "chat", "alice"))
	require.NoError(t, client.ConfigSet(ctx, "replica-serve-stale-data", "no").Err())
	require.NoError(t, client.ReplicaOf(ctx, "127.0.0.1", "1").Err())
	// Counting comes first: after a failed write the namespace is checked again, before anything is counted.
	require.ErrorIs(t, calls(s, "chat")["Count"](), store.ErrUnavailable)
	for name, call := range allCalls(s, "chat") {
		require.ErrorIs(t, call(), store.ErrUnavailable, name)
	}
	require.NoError(t, client.ReplicaOf(ctx, "NO", "ONE").Err())
	require.Equal(t, base, lookup(t, s, "alice")[0].At)
}

// TestFrozenWithManyCallers: callers that wait in vain for a connection get the same error.
func TestFrozenWithManyCallers(t *testing.T) {
	server := redistest.StartProcess(t)
	s := newStore(t, redisstore.Options{URL: server.URL(), Timeout: 250 * time.Millisecond, PoolSize: 1})
	require.Eventually(t, func() bool { return ping(s, "chat", "alice") == nil }, time.Minute, time.Millisecond)
	server.Freeze(t)
	defer server.Thaw(t)
	errs := make(chan error, 20)
	for range cap(errs) {
		go func() { errs <- ping(s, "chat", "alice") }()
	}
	for range cap(errs) {
		require.ErrorIs(t, <-errs, store.ErrUnavailable)
	}
}

// TestFullMemory: writes fail as full, reads go on.
func TestFullMemory(t *testing.T) {
	ctx, server := context.Background(), redistest.StartProcess(t)
	client := newClient(t, server.URL())
	s := newStore(t, redisstore.Options{URL: server.URL()})
	require.NoError(t, ping(s, "chat", "alice"))
	require.NoError(t, client.ConfigSet(ctx, "maxmemory", "1").Err())
	require.ErrorIs(t, ping(s, "chat", "bob"), store.ErrFull)
	states, err := s.Lookup(ctx, "chat", []string{"alice", "bob"})
	require.NoError(t, err)
	require.Equal(t, base, states[0].At)
	require.Zero(t, states[1])
	counts, err := s.Count(ctx, "chat", everyone())
	require.NoError(t, err)
	require.Equal(t, []int64{1, 0}, counts)
	require.NoError(t, client.ConfigSet(ctx, "maxmemory", "0").Err())
	require.NoError(t, ping(s, "chat", "bob"))
}

func TestPassword(t *testing.T) {
	ctx, server := context.Background(), redistest.StartProcess(t)
	client := newClient(t, server.URL())
	require.NoError(t, client.ConfigSet(ctx, "requirepass", "geheim").Err())
	right := newStore(t, redisstore.Options{URL: "redis://:geheim@" + server.Addr + "/2"})
	require.NoError(t, ping(right, "chat", "alice"))
	admin := newClient(t, "redis://:geheim@"+server.Addr+"/2")
	require.Equal(t, []string{"alice"}, admin.ZRange(ctx, "presence:chat", 0, -1).Val(), "in the database of the URL")
	require.NoError(t, admin.Do(ctx, "ACL", "SETUSER", "dot", "on", ">ge/heim", "~presence:*", "+@all").Err())
	named := newStore(t, redisstore.Options{URL: "redis://dot:ge%2Fheim@" + server.Addr + "/2"})
	require.Equal(t, base, lookup(t, named, "alice")[0].At)
	for _, wrong := range []string{"redis://:falsch@" + server.Addr, "redis://" + server.Addr} {
		s := newStore(t, redisstore.Options{URL: wrong})
		err := ping(s, "chat", "alice")
		require.ErrorIs(t, err, store.ErrUnavailable)
		require.NotContains(t, err.Error(), "falsch")
	}
}

func TestWrongOptions(t *testing.T) {
	for _, o := range []redisstore.Options{
		{URL: "mysql://:geheim@host"},
		{URL: "redis://:geheim@host:port"},
		{URL: "redis://host/x"},
		{URL: "redis://:geheim@host?no_such_option=1"},
		{URL: "://"},
		{URL: "redis://:geheim@host", Shards: 65},
		{URL: "redis://:geheim@host", Shards: -1},
		{URL: "redis:geheim@host"}, // go-redis would connect to this machine
		{URL: "redis:///:geheim@host"},
		{URL: "redis://:12/geheim@host:6379"}, // characters that have to be escaped in a password
		{URL: "redis://user:123/geheim@host"},
		{URL: "redis://:geheim#geheim@host"},
		{URL: "redis://:geheim?geheim@host"},
		{URL: "redis://:geheim%geheim@host"},
		{URL: "redis://host?password=geheim"},
		{URL: "geheim@host:6379"},
		{URL: ""},
	} {
		_, err := redisstore.Open(o)
		require.Error(t, err, o.URL)
		require.NotContains(t, err.Error(), "geheim", o.URL)
		require.NotContains(t, redisstore.Redact(o.URL), "geheim")
	}
	require.Equal(t, "redis://user:xxxxx@host:1/0", redisstore.Redact("redis://user:geheim@host:1/0"))
	require.Equal(t, "redis://host:6379", redisstore.Redact("redis://host:6379"))
}
