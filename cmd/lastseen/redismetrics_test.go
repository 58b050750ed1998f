package main

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/redisstore/redisclient"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// TestBreakerMetrics checks what an operator sees of a Redis that stops and of a replica that is missing.
func TestBreakerMetrics(t *testing.T) {
	server := redistest.StartProcess(t)
	s, err := redisstore.Open(redisstore.Options{
		URL: server.URL(), Wait: 1, Timeout: 4 * time.Second, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	registry := prometheus.NewRegistry()
	storeMetrics{registry}.breakers(s)
	ping := func() error {
		_, err := s.Ping(context.Background(), "chat", []store.PresenceEvent{{User: "alice", At: 1}})
		return err
	}
	require.ErrorIs(t, ping(), store.ErrUnavailable)
	require.Positive(t, s.Client().WaitFailures())
	server.Stop(t)
	require.Eventually(t, func() bool {
		_ = ping()
		return s.Client().BreakersOpened() == 1 && s.Client().Breakers()[0].State == redisclient.BreakerOpen
	}, time.Minute, time.Millisecond)
	got := values(t, registry)
	require.InDelta(t, 1, got["lastseen_breaker_opened_total"], 0)
	require.Contains(t, got, "lastseen_breaker_state "+server.Addr)
}
