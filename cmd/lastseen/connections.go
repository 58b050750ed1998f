package main

import (
	"context"
	"log/slog"
	"math"
	"time"

	"github.com/lastseen/lastseen/api"
	"github.com/lastseen/lastseen/cmd/lastseen/internal/config"
	"github.com/lastseen/lastseen/store/connections"
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
	m.gauge("connections_unwritten", "Connections whose newest heartbeat the store did not take yet.",
		func() float64 { return float64(r.Stats().Unwritten) })
	m.counter("connections_opened_total", "Connections of users that were opened.",
		func() float64 { return float64(r.Stats().Opened) })
	m.counter("connections_goodbyes_total", "Leaves of connections that were recorded.",
		func() float64 { return float64(r.Stats().Leaves) })
	m.counter("connections_lost_total", "Connections that ended in silence.",
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

// warnFewConnections warns if there cannot be as many WebSockets as set, because the process cannot open as many files.
func warnFewConnections(c *config.Config, connections int, logger *slog.Logger) {
	if c.MaxWebsockets > connections {
		logger.Warn("max-websockets is more than the number of connections: raise the limit of open files",
			"max_websockets", c.MaxWebsockets, "connections", connections)
	}
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
