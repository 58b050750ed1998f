package main

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lastseen/lastseen/store/feed"
	"github.com/lastseen/lastseen/store/jobs"
	"github.com/lastseen/lastseen/store/observe"
)

// feeds are what a server runs for changes feeds, for as long as it runs: reloads change only what they ask for.
type feeds struct {
	hub   *feed.Hub
	sweep *jobs.Sweep
}

// newFeeds returns the feeds of a server. At most maxWatches users are watched at once.
func (r *runtimeConfig) newFeeds(maxWatches int) feeds {
	settings := func(namespace string) feed.Settings { return r.config().Feed(namespace) }
	recorded := func() []string { return r.config().Recorded() }
	sweep := jobs.NewSweep(r.store, recorded, settings, r.logger)
	metrics := newFeedMetrics()
	hub := feed.New(feed.Options{
		Store: r.store, Settings: settings, MaxWatches: maxWatches, Logger: r.logger,
		Recorded: sweep.Add, Observe: metrics,
		Restarted: func(namespace string) { r.registry.RecordAgain(namespace) },
	})
	metrics.register(r.metrics, hub, sweep, maxWatches)
	return feeds{hub, sweep}
}

// feedMetrics counts what happens in a hub. It implements [feed.Observer].
type feedMetrics struct{ resets, behind, flaps prometheus.Counter }

func newFeedMetrics() *feedMetrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "lastseen_changes_" + name, Help: help})
	}
	return &feedMetrics{
		resets: counter("resets_total", "Resets that clients were sent, because changes were lost to them."),
		behind: counter("watchers_behind_total", "Resets of clients that follow everyone and were too slow."),
		flaps:  counter("flaps_total", "Users whose presence changed for the fifth time within a minute."),
	}
}

// Reset implements [feed.Observer].
func (m *feedMetrics) Reset() { m.resets.Inc() }

// Behind implements [feed.Observer].
func (m *feedMetrics) Behind() { m.behind.Inc() }

// Flap implements [feed.Observer].
func (m *feedMetrics) Flap() { m.flaps.Inc() }

// register registers the metrics of a hub and of sweeps, and has the sweeps observed.
func (m *feedMetrics) register(registerer prometheus.Registerer, hub *feed.Hub, sweep *jobs.Sweep, maxWatches int) {
	lag := observe.NewLag("lastseen_changes_detection_lag_seconds",
		"Time from the instant of a decay to its record, for the decay of a sweep that waited longest.")
	sweep.Observe = func(d time.Duration) { lag.Observe(d.Seconds()) }
	registerer.MustRegister(m.resets, m.behind, m.flaps, lag)
	gauges := storeMetrics{registerer}
	gauges.counter("changes_decays_total", "Decays that sweeps recorded.",
		func() float64 { return float64(sweep.Stats().Decays) })
	gauges.counter("changes_begun_total", "Feeds that sweeps began again.",
		func() float64 { return float64(sweep.Stats().Begun) })
	gauges.gauge("changes_namespaces", "Namespaces whose changes feed this server follows.",
		func() float64 { return float64(hub.Stats().Namespaces) })
	gauges.gauge("changes_watchers", "Clients that follow changes.",
		func() float64 { return float64(hub.Stats().Watchers) })
	gauges.gauge("changes_watches", "Users that all clients follow together.",
		func() float64 { return float64(hub.Stats().Watches) })
	gauges.gauge("changes_watches_limit", "max-watches.", func() float64 { return float64(maxWatches) })
	gauges.gauge("changes_entries", "Changes that are kept in memory.",
		func() float64 { return float64(hub.Stats().Entries) })
}
