package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"testing"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/connections"
	"github.com/lastseen/lastseen/store/feed"
	"github.com/lastseen/lastseen/store/jobs"
)

// pageClock replaces the page's clocks by ones that the test moves. The clock of the user's computer is an hour wrong.
const pageClock = `
let passed = 0, wrong = 3_600_000
const [now, wall] = [performance.now.bind(performance), Date.now]
performance.now = () => now() + passed
Date.now = () => wall() + passed + wrong
`

// show sets whether the page is visible. Headless tabs are always, so the browser's answer is replaced.
func show(state string) browserStep {
	return until(fmt.Sprintf(`(Object.defineProperty(document, "visibilityState", {value: %q, configurable: true}),
		document.dispatchEvent(new Event("visibilitychange")))`, state))
}

// configWithFeeds returns a configuration of the API on a store, with feeds that run until the test ends.
func configWithFeeds(t *testing.T, s store.Store, thresholds lastseen.Thresholds) api.Config {
	t.Helper()
	logger := slog.New(slog.DiscardHandler)
	settings := func(string) feed.Settings { return feed.Settings{Thresholds: thresholds, Mode: feed.Auto} }
	sweep := jobs.NewSweep(s, func() []string { return nil }, settings, logger)
	hub := feed.New(feed.Options{
		Store: s, Settings: settings, Recorded: sweep.Add, Random: func() float64 { return 0 }, Logger: logger,
	})
	t.Cleanup(feeds{hub, sweep}.start(t.Context()))
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
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		registry.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return registry
}

// runSignals passes signals on to connections until the test ends.
func runSignals(t *testing.T, shared *api.Shared) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		shared.Listen(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
}

// statusWriter remembers the status of an answer.
type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}
