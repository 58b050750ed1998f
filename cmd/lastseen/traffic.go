package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/clock"
	"github.com/lastseen/lastseen/store/coalesce"
)

// trafficEvery is how often refusals are looked for.
const trafficEvery = time.Minute

// traffic tells the operator, in the log, about the queues in front of Redis, and about the store's clock.
type traffic struct {
	stats  func() coalesce.Stats
	clock  func() clock.Stats
	logger *slog.Logger
	pause  func(context.Context, time.Duration) // returns early when the context ends
}

// newTraffic returns the traffic of a store; of one that has no queues there is none.
func newTraffic(s store.Store, logger *slog.Logger) *traffic {
	t := &traffic{
		stats: func() coalesce.Stats { return coalesce.Stats{} }, clock: func() clock.Stats { return clock.Stats{} },
		logger: logger, pause: sleep,
	}
	if queues, ok := s.(*coalesce.Store); ok {
		t.stats, s = queues.Stats, queues.Store
	}
	if clocked, ok := s.(interface{ ClockStats() clock.Stats }); ok {
		t.clock = clocked.ClockStats
	}
	return t
}

// run warns of calls that were refused because a queue was full, once for all of a minute, until the context
// ends.
func (t *traffic) run(ctx context.Context) {
	var told int64
	for ctx.Err() == nil {
		t.pause(ctx, trafficEvery)
		stats := t.stats()
		if refused := stats.Pings.Refused + stats.Lookups.Refused; refused > told {
			t.logger.Warn("Redis is too slow for what is asked of it: calls were answered 503 overloaded",
				"refused", refused-told, "pings", stats.Pings, "lookups", stats.Lookups)
			told = refused
		}
	}
}

// sum says in the end what there was.
func (t *traffic) sum() {
	if stats := t.stats(); stats != (coalesce.Stats{}) {
		t.logger.Info("what was sent to Redis together", "pings", stats.Pings, "lookups", stats.Lookups)
	}
	if times := t.clock(); times.Steps+times.Ignored > 0 {
		t.logger.Info("how the store's clock behaved", "steps", times.Steps, "ignored", times.Ignored, "offset", times.Offset.String())
	}
}

// sleep returns after d, or when the context ends.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
