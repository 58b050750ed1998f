package main

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/store/feed"
)

func TestMetricsOfFeeds(t *testing.T) {
	registry := prometheus.NewRegistry()
	r := newReloadTest(t, "namespaces: {chat: {}}")
	r.metrics = registry
	f := r.newFeeds(7)
	f.watermarks.Observe(time.Second)
	found := values(t, registry)
	for name, want := range map[string]float64{
		"namespaces": 0, "watchers": 0, "watches": 0, "watches_limit": 7, "entries": 0,
		"resets_total": 0, "watchers_behind_total": 0, "flaps_total": 0, "decays_total": 0, "begun_total": 0,
		"detection_lag_seconds": 1,
	} {
		require.Contains(t, found, "lastseen_changes_"+name)
		require.InDelta(t, want, found["lastseen_changes_"+name], 0, name)
	}
	require.Len(t, found, 11)

	registry = prometheus.NewRegistry()
	stats := feed.Stats{Namespaces: 1, Watchers: 2, Watches: 3, Entries: 4, Resets: 5, Behind: 6, Flaps: 7}
	storeMetrics{registry}.feeds(func() feed.Stats { return stats }, f.watermarks, 8)
	for name, want := range map[string]float64{
		"namespaces": 1, "watchers": 2, "watches": 3, "entries": 4,
		"resets_total": 5, "watchers_behind_total": 6, "flaps_total": 7, "watches_limit": 8,
	} {
		require.InDelta(t, want, values(t, registry)["lastseen_changes_"+name], 0, name)
	}
}
