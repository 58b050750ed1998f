package main

import (
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api"
	"github.com/lastseen/lastseen/cmd/lastseen/internal/config"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/jobs"
	"github.com/lastseen/lastseen/store/storetest"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// values returns what a registry exports: the values of counters and gauges, and the number of what histograms
// observed, by name and labels.
func values(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	require.NoError(t, err)
	all := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			name := family.GetName()
			for _, label := range m.GetLabel() {
				name += " " + label.GetValue()
			}
			all[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return all
}

// measuredStore opens the store at an address as serve does, with pings of two users and a lookup.
func measuredStore(t *testing.T, at string, registerer prometheus.Registerer) store.Store {
	t.Helper()
	c := &config.Config{}
	c.Store, c.Sync, c.RedisTimeout, c.RedisDialTimeout = at, time.Hour, time.Minute, time.Minute
	s, _, err := openStore(t.Context(), c, slog.New(slog.DiscardHandler), registerer, nil, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	now, err := s.Now(t.Context())
	require.NoError(t, err)
	_, err = s.Ping(t.Context(), "chat", []store.PresenceEvent{{User: "alice", At: now}, {User: "bob", At: now}})
	require.NoError(t, err)
	_, _, err = s.Describe(t.Context(), "chat", []string{"alice"})
	require.NoError(t, err)
	return s
}

func TestMetricsOfAFile(t *testing.T) {
	registry := prometheus.NewRegistry()
	s := measuredStore(t, storetest.DataFile(t), registry)
	require.NoError(t, s.Forget(t.Context(), "chat", "bob")) // returns after a flush
	found := values(t, registry)
	require.Positive(t, found["lastseen_file_flush_duration_seconds"])
	require.Positive(t, found["lastseen_file_size_bytes"])
	require.Positive(t, found["lastseen_file_live_bytes"])
	require.InDelta(t, time.Now().Unix(), found["lastseen_file_last_flush_timestamp_seconds"], 600)
	for name, want := range map[string]float64{
		"lastseen_file_users": 1, "lastseen_file_dirty_users": 0, "lastseen_file_flush_failures_total": 0,
		"lastseen_file_compactions_total": 0, "lastseen_clock_steps_total": 0,
		"lastseen_clock_readings_ignored_total":            0,
		"lastseen_store_call_duration_seconds ping ok":     1,
		"lastseen_store_call_duration_seconds lookup ok":   1,
		"lastseen_store_call_duration_seconds forget ok":   1,
		"lastseen_store_call_duration_seconds list ok":     0,
		"lastseen_store_call_duration_seconds register ok": 0,
	} {
		require.Contains(t, found, name)
		require.InDelta(t, want, found[name], 0, name)
	}
	require.NotContains(t, found, "lastseen_batch_members ping", "there is no queue in front of a file")
}

func TestMetricsOfRedis(t *testing.T) {
	registry := prometheus.NewRegistry()
	measuredStore(t, redistest.Start(t), registry)
	found := values(t, registry)
	for name, want := range map[string]float64{
		"lastseen_batch_members ping": 1, "lastseen_batch_members lookup": 1,
		"lastseen_queue_wait_seconds ping": 1, "lastseen_queue_members ping": 0, "lastseen_queue_members lookup": 0,
		"lastseen_queue_refused_total ping": 0, "lastseen_queue_refused_total lookup": 0,
		"lastseen_batch_members device": 0, "lastseen_queue_members device": 0, "lastseen_queue_refused_total device": 0,
		"lastseen_clock_steps_total": 0, "lastseen_store_call_duration_seconds ping ok": 1,
	} {
		require.Contains(t, found, name)
		require.InDelta(t, want, found[name], 0, name)
	}
	require.Contains(t, found, "lastseen_clock_offset_seconds")
	require.Positive(t, found["lastseen_redis_connections active"]+found["lastseen_redis_connections idle"])
	require.NotContains(t, found, "lastseen_file_users")
}

// TestMetricsOfRetention: a server that does not run it does not export when it last ran.
func TestMetricsOfRetention(t *testing.T) {
	registry := prometheus.NewRegistry()
	job := jobs.NewRetention(nil, jobs.RetentionRules{}, slog.New(slog.DiscardHandler))
	storeMetrics{registry}.retention(job)
	require.Equal(t, map[string]float64{
		"lastseen_retention_deleted_total": 0, "lastseen_retention_contacts_deleted_total": 0,
	}, values(t, registry))
}

// TestMeasuredStoreHasBackups: the admin listener finds the file behind what measures it.
func TestMeasuredStoreHasBackups(t *testing.T) {
	s := measuredStore(t, storetest.DataFile(t), prometheus.NewRegistry())
	running := &runtimeConfig{dependencies: dependencies{store: s, shared: &api.Shared{}}}
	require.NotNil(t, running.backup())
}
