package main

import (
	"context"
	"math"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api"
	"github.com/lastseen/lastseen/cmd/lastseen/internal/config"
	"github.com/lastseen/lastseen/store/calls"
	"github.com/lastseen/lastseen/store/connections"
	"github.com/lastseen/lastseen/store/feed"
	"github.com/lastseen/lastseen/store/jobs"
	"github.com/lastseen/lastseen/store/observe"
)

// maxAutoConnections bounds the number of connections unless it is set: an idle one takes 20 KB.
const maxAutoConnections = 65_536

// maxConnections returns how many connections are allowed: the setting or, if that is 0, a number that depends on how
// many files the process can open, 0 if unknown. It leaves a sixteenth of the files, but at least 128, to the store and
// others, or a half if there are very few.
func maxConnections(setting int, files uint64) int {
	if setting != 0 {
		return setting
	}
	if files == 0 {
		files = math.MaxInt32
	}
	reserve := min(max(files/16, 128), files/2)
	return int(min(files-reserve, maxAutoConnections))
}

// connections registers the metrics of the connections that users hold open.
func (m storeMetrics) connections(r *connections.Registry) {
	m.gauge("connections", "Connections of users that are open.",
		func() float64 { return float64(r.Stats().Open) })
	m.gauge("connections_waiting", "Leaves that wait for their time, or for the store.",
		func() float64 { return float64(r.Stats().Waiting) })
	m.gauge("connections_unwritten", "Connections whose newest heartbeat is not in the store yet.",
		func() float64 { return float64(r.Stats().Unwritten) })
	m.counter("connections_opened_total", "Connections of users that were opened.",
		func() float64 { return float64(r.Stats().Opened) })
	m.counter("connections_goodbyes_total", "Leaves of connections that were recorded.",
		func() float64 { return float64(r.Stats().Leaves) })
	m.counter("connections_lost_total", "Connections whose client disappeared without closing.",
		func() float64 { return float64(r.Stats().Lost) })
	m.counter("connections_forgotten_total", "Connections closed because their user was forgotten, or an operator did.",
		func() float64 { return float64(r.Stats().Forgotten) })
	m.counter("connections_dropped_goodbyes_total", "Leaves of connections that could not be recorded.",
		func() float64 { return float64(r.Stats().Dropped) })
}

// newRegistry returns the registry of the connections that users hold open. It lasts as long as the server: reloads
// change only what its settings return.
func (r *runtimeConfig) newRegistry(maxUser int) *connections.Registry {
	registry := connections.New(connections.Options{
		Store: r.store, MaxUser: maxUser, Logger: r.logger,
		Settings: func(namespace string) connections.Settings { return r.config().Connections(namespace) },
		Left:     r.shared.Telemetry.CountLeft,
	})
	storeMetrics{r.metrics}.connections(registry)
	return registry
}

// webSocketLimits returns the limits of WebSockets in a configuration.
func webSocketLimits(c *config.Config) api.WebSocketLimits {
	return api.WebSocketLimits{
		Max:        maxWebSockets(c.MaxWebsockets, maxConnections(c.MaxConnections, descriptors())),
		PerUser:    c.MaxUserWebsockets,
		PerCaller:  c.MaxKeyWebsockets,
		PerAddress: c.MaxAddressWebsockets,
		Grace:      c.DisconnectGrace,
		Drain:      c.ConnectDrainTime(),
	}
}

// maxWebSockets returns how many of a number of connections can be WebSockets: the setting or, if that is 0, all but a
// 32nd, and at least 64, which are left for other requests; half if there are very few.
func maxWebSockets(setting, connections int) int {
	if setting != 0 {
		return min(setting, connections)
	}
	return connections - min(max(connections/32, 64), connections/2)
}

// endWebSockets waits until no WebSocket is left and, after a time, closes the rest. It returns an error if the server
// fails meanwhile.
func endWebSockets(shared *api.Shared, wait time.Duration, failed <-chan error) error {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	ended := make(chan struct{})
	go func() {
		shared.EndWebSockets(ctx)
		close(ended)
	}()
	select {
	case <-ended:
		return nil
	case err := <-failed:
		cancel()
		<-ended
		return err
	}
}

// newCallManager returns what keeps calls going. It lasts as long as the server: reloads change only what its functions
// return.
func (r *runtimeConfig) newCallManager() *calls.Manager {
	manager := calls.New(r.store, r.logger)
	storeMetrics{r.metrics}.callManager(manager)
	manager.Timeout = func(namespace string) time.Duration { return r.config().Namespace(namespace).Green }
	manager.Active = r.registry.ActiveWithin
	return manager
}

// callManager registers the metrics of calls between users, and has the manager observed.
func (m storeMetrics) callManager(k *calls.Manager) {
	lag := observe.NewLag("lastseen_calls_expiry_lag_seconds",
		"Time by which calls were ended later than their time passed, for the first of those that were ended together.")
	k.Late = func(d time.Duration) { lag.Observe(d.Seconds()) }
	m.MustRegister(lag)
	for _, state := range lastseen.CallStates() {
		m.counter("calls_total", "Calls that came into a state, by a step on this server.",
			func() float64 { return float64(k.Stats().Reached[state]) }, "state", string(state))
	}
	m.gauge("calls", "Ongoing calls, on the server that ends calls; 0 on others.",
		func() float64 { return float64(k.Stats().Ongoing) })
	m.gauge("calls_followed", "Users in a call who are connected to this server.",
		func() float64 { return float64(k.Stats().Followed) })
	m.gauge("calls_unclear", "Calls that wait to be signalled again.",
		func() float64 { return float64(k.Stats().Unknown) })
	m.counter("calls_signals_repeated_total", "Calls that were signalled again.",
		func() float64 { return float64(k.Stats().Signals) })
}

// feeds are what a server runs for changes feeds, for as long as it runs: reloads change only what they ask for.
type feeds struct {
	hub        *feed.Hub
	watermarks *jobs.Watermarks
}

// newFeeds returns the feeds of a server. At most maxWatches users are watched at once.
func (r *runtimeConfig) newFeeds(maxWatches int) feeds {
	settings := func(namespace string) feed.Settings { return r.config().Feed(namespace) }
	recorded := func() []string { return r.config().Recorded() }
	watermarks := jobs.NewWatermarks(r.store, recorded, settings, r.logger)
	hub := feed.New(feed.Options{
		Store: r.store, Settings: settings, MaxWatches: maxWatches, Logger: r.logger,
		Recorded:  watermarks.Add,
		Restarted: func(namespace string) { r.registry.RecordAgain(namespace) },
	})
	storeMetrics{r.metrics}.feeds(hub.Stats, watermarks, maxWatches)
	return feeds{hub, watermarks}
}

// feeds registers the metrics of a hub and of its watermarks, and has these observed.
func (m storeMetrics) feeds(stats func() feed.Stats, watermarks *jobs.Watermarks, maxWatches int) {
	lag := observe.NewLag("lastseen_changes_detection_lag_seconds",
		"How late users who turned yellow or grey were recorded; for each pass, the longest delay.")
	watermarks.Observe = func(d time.Duration) { lag.Observe(d.Seconds()) }
	m.MustRegister(lag)
	m.counter("changes_resets_total", "Resets that clients were sent, because changes were lost to them.",
		func() float64 { return float64(stats().Resets) })
	m.counter("changes_watchers_behind_total", "Resets of clients that follow everyone and were too slow.",
		func() float64 { return float64(stats().Behind) })
	m.counter("changes_flaps_total", "Users whose presence changed for the fifth time within a minute.",
		func() float64 { return float64(stats().Flaps) })
	m.counter("changes_decays_total", "How often a user turned yellow or grey in a feed.",
		func() float64 { return float64(watermarks.Stats().Transitions) })
	m.counter("changes_begun_total", "Feeds that began again.",
		func() float64 { return float64(watermarks.Stats().Begun) })
	m.gauge("changes_namespaces", "Namespaces whose changes feed this server follows.",
		func() float64 { return float64(stats().Namespaces) })
	m.gauge("changes_watchers", "Clients that follow changes.",
		func() float64 { return float64(stats().Watchers) })
	m.gauge("changes_watches", "Users that all clients follow together.",
		func() float64 { return float64(stats().Watches) })
	m.gauge("changes_watches_limit", "max-watches.", func() float64 { return float64(maxWatches) })
	m.gauge("changes_entries", "Changes that are kept in memory.",
		func() float64 { return float64(stats().Entries) })
}
