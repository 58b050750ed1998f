package redisstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// TestOutage: without Redis every call fails as unavailable; with it back, all work again by
// themselves.
func TestOutage(t *testing.T) {
	server := redistest.StartProcess(t)
	s := newStore(t, redisstore.Options{URL: server.URL(), Timeout: 250 * time.Millisecond})
	require.Eventually(t, func() bool { return ping(s, "chat", "alice") == nil }, time.Minute, time.Millisecond)
	allFail := func() {
		for name, call := range calls(s, "chat") {
			require.ErrorIs(t, call(), store.ErrUnavailable, name)
		}
		require.ErrorIs(t, ping(s, "new", "alice"), store.ErrUnavailable)
		require.ErrorIs(t, s.Ready(context.Background()), store.ErrUnavailable)
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
}

// TestFrozenWithManyCallers: those who wait in vain for a connection are told the same.
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
	require.NoError(t, client.ConfigSet(ctx, "maxmemory", "0").Err())
	require.NoError(t, ping(s, "chat", "bob"))
}

func TestPassword(t *testing.T) {
	ctx, server := context.Background(), redistest.StartProcess(t)
	client := newClient(t, server.URL())
	require.NoError(t, client.ConfigSet(ctx, "requirepass", "geheim").Err())
	right := newStore(t, redisstore.Options{URL: "redis://:geheim@" + server.Addr + "/2"})
	require.NoError(t, ping(right, "chat", "alice"))
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
	} {
		_, err := redisstore.Open(o)
		require.Error(t, err, o.URL)
		require.NotContains(t, err.Error(), "geheim")
	}
	require.Equal(t, "redis://user:xxxxx@host:1/0", redisstore.Redact("redis://user:geheim@host:1/0"))
	require.NotContains(t, redisstore.Redact("redis://:geheim@host:port"), "geheim")
}
