package main

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
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
		_, err := s.Ping(context.Background(), "chat", []store.Sighting{{User: "alice", At: 1}})
		return err
	}
	require.ErrorIs(t, ping(), store.ErrUnavailable)
	require.Positive(t, s.Client().WaitFailures())
	server.Stop(t)
	require.Eventually(t, func() bool {
		_ = ping()
		return s.Client().BreakersOpened() == 1 && s.Client().Breakers()[0].State == redisclient.BreakerOpen
	}, time.Minute, time.Millisecond)
	text := `# HELP lastseen_breaker_opened_total How often a circuit breaker opened.
# TYPE lastseen_breaker_opened_total counter
lastseen_breaker_opened_total 1
`
	require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(text), "lastseen_breaker_opened_total"))
	families, err := registry.Gather()
	require.NoError(t, err)
	require.Equal(t, "lastseen_breaker_state", families[1].GetName())
	require.Equal(t, server.Addr, families[1].GetMetric()[0].GetLabel()[0].GetValue())
}
