package main

import (
	"context"
	"sync"

	"github.com/lastseen/lastseen/store/feed"
	"github.com/lastseen/lastseen/store/jobs"
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
	if r.metrics != nil {
		metrics.register(r.metrics, hub, sweep, maxWatches)
	}
	return feeds{hub, sweep}
}

// start follows and sweeps feeds until stop is called, also while a server that was told to stop finishes requests: the
// clients that still follow get what they are owed. Stop waits for the end.
func (f feeds) start(ctx context.Context) (stop func()) {
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var work sync.WaitGroup
	work.Go(func() { f.hub.Run(running) })
	work.Go(func() { f.sweep.Run(running) })
	return func() {
		cancel()
		work.Wait()
	}
}
