package main

import (
	"log/slog"

	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/clock"
	"github.com/lastseen/lastseen/store/coalesce"
)

// logTraffic logs, when the server stops, how calls to Redis were batched and how the store's clock behaved.
func logTraffic(s store.Store, logger *slog.Logger) {
	if batched, ok := store.As[*coalesce.Store](s); ok {
		if stats := batched.Stats(); stats != (coalesce.Stats{}) {
			logger.Info("batches sent to Redis", "pings", stats.Pings, "lookups", stats.Lookups)
		}
	}
	clocked, ok := store.As[interface{ ClockStats() clock.Stats }](s)
	if !ok {
		return
	}
	if stats := clocked.ClockStats(); stats.Steps+stats.Ignored > 0 {
		logger.Info("the store's clock was set while the server ran",
			"steps", stats.Steps, "ignored", stats.Ignored, "offset", stats.Offset.String())
	}
}
