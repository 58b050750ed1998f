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

	m := newFeedMetrics()
	m.register(prometheus.NewRegistry(), feed.New(feed.Options{}), f.watermarks, 1)
	registry = prometheus.NewRegistry()
	registry.MustRegister(m.resets, m.behind, m.flaps)
	m.Reset()
	m.Reset()
	m.Behind()
	m.Flap()
	require.Equal(t, map[string]float64{
		"lastseen_changes_resets_total": 2, "lastseen_changes_watchers_behind_total": 1, "lastseen_changes_flaps_total": 1,
	}, values(t, registry))
}
