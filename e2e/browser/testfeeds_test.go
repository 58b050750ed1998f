package browser

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/connections"
	"github.com/lastseen/lastseen/store/feed"
	"github.com/lastseen/lastseen/store/jobs"
)

// show sets whether the page is visible. Headless tabs are always, so the browser's answer is replaced.
func show(state string) step {
	return until(fmt.Sprintf(`(Object.defineProperty(document, "visibilityState", {value: %q, configurable: true}),
		document.dispatchEvent(new Event("visibilitychange")))`, state))
}

// background runs functions until the test ends.
func background(t *testing.T, all ...func(context.Context)) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, run := range all {
		running.Go(func() { run(ctx) })
	}
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
}

// configWithFeeds returns a configuration of the API on a store, with feeds that run until the test ends.
func configWithFeeds(t *testing.T, s store.Store, thresholds lastseen.Thresholds) api.Config {
	t.Helper()
	logger := slog.New(slog.DiscardHandler)
	settings := func(string) feed.Settings { return feed.Settings{Thresholds: thresholds, Mode: feed.Auto} }
	watermarks := jobs.NewWatermarks(s, func() []string { return nil }, settings, logger)
	hub := feed.New(feed.Options{
		Store: s, Settings: settings, Recorded: watermarks.Add, Random: func() float64 { return 0 }, Logger: logger,
	})
	background(t, hub.Run, watermarks.Run)
	return api.Config{
		Store: s, Feeds: hub,
		Settings: api.Settings{
			Thresholds: thresholds, PingInterval: thresholds.Green / 2, Shards: 1, Changes: feed.Auto,
		},
	}
}

// runRegistry runs a registry of the connections to a store until the test ends.
func runRegistry(t *testing.T, s store.Store, thresholds lastseen.Thresholds) *connections.Registry {
	t.Helper()
	registry := connections.New(connections.Options{
		Store: s, Logger: slog.New(slog.DiscardHandler),
		Settings: func(string) connections.Settings {
			return connections.Settings{Thresholds: thresholds, PingInterval: thresholds.Green / 2}
		},
	})
	background(t, registry.Run)
	return registry
}
