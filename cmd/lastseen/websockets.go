package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/lastseen/lastseen/api"
	"github.com/lastseen/lastseen/cmd/lastseen/internal/config"
	"github.com/lastseen/lastseen/store/connections"
)

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
