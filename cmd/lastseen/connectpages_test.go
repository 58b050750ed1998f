package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api"
)

// TestConnectionsPageTabs runs the guide's code: a user with two tabs is online until the last one is closed.
func TestConnectionsPageTabs(t *testing.T) {
	t.Parallel()
	c := newConnected(t, 100*time.Millisecond)
	bob := openBrowser(t, c.pages)
	c.open(t, bob, "bob")
	bob.do(t, untilDots("grey green"))
	first, second := bob.newTab(t), bob.newTab(t)
	c.open(t, first, "alice")
	bob.do(t, untilDots("green green"))
	c.open(t, second, "alice")
	c.untilDevices(t, "alice", 2, 0)
	bob.do(t, until("(painted = [], true)"))
	first.close(t)
	c.untilDevices(t, "alice", 1, 1)
	second.close(t)
	bob.do(t, untilDots("grey green"))
	require.Equal(t, "grey green", evaluate[string](t, bob, "painted.join()"), "one change, with the last tab")
}

// TestConnectionsPageReload: a page that is loaded again within the grace leaves its user green.
func TestConnectionsPageReload(t *testing.T) {
	t.Parallel()
	c := newConnected(t, 2*time.Second)
	bob := openBrowser(t, c.pages)
	c.open(t, bob, "bob")
	alice := bob.newTab(t)
	c.open(t, alice, "alice")
	bob.do(t, untilDots("green green"), until("(painted = [], true)"))
	c.open(t, alice, "alice")
	c.untilDevices(t, "alice", 1, 1)
	require.Empty(t, evaluate[string](t, bob, "painted.join()"))
}

// TestConnectionsPageContinues: a page whose connection breaks has missed nothing, and shows what it knows meanwhile.
func TestConnectionsPageContinues(t *testing.T) {
	t.Parallel()
	c := newConnected(t, time.Minute)
	b := openBrowser(t, c.pages)
	c.open(t, b, "bob")
	b.do(t, untilDots("grey green"))
	c.setRefuse(true)
	c.cut()
	before := c.requests()
	require.Eventually(t, func() bool { return c.requests() >= before+2 }, time.Minute, 10*time.Millisecond)
	c.pinged(t, "alice")
	c.setRefuse(false)
	b.do(t, untilDots("green green"))
	require.NotContains(t, evaluate[string](t, b, "painted.slice(2).join()"), "unknown")
}

// TestConnectionsPageSilence: without frames, statuses become unknown, never grey, and known again with the next
// connection, although nothing has changed.
func TestConnectionsPageSilence(t *testing.T) {
	t.Parallel()
	c := newConnected(t, time.Minute)
	c.pinged(t, "alice")
	b := openBrowser(t, c.pages)
	c.open(t, b, "bob")
	b.do(t, untilDots("green green"))
	c.setRefuse(true)
	b.do(t, until("(painted = [], passed += 61_000, true)"), untilDots("unknown unknown"))
	require.NotContains(t, evaluate[string](t, b, "painted.join()"), "grey")
	c.setRefuse(false)
	b.do(t, untilDots("green green"))
}

// TestConnectionsPageRefused: a page that must not connect again does not, and shows nothing that it does not know.
func TestConnectionsPageRefused(t *testing.T) {
	t.Parallel()
	c := newConnected(t, time.Minute)
	b := openBrowser(t, c.pages)
	c.open(t, b, "bob")
	b.do(t, untilDots("grey green"))
	requests := c.requests()
	require.NoError(t, c.CloseConnections(t.Context(), "chat", "bob"))
	b.do(t, until(`end?.startsWith("4410 ")`), untilDots("unknown unknown"))
	require.Equal(t, requests, c.requests())
}

// TestConnectionsPageLeave: a user who signs out is gone at once, before the grace.
func TestConnectionsPageLeave(t *testing.T) {
	t.Parallel()
	c := newConnected(t, time.Minute)
	b := openBrowser(t, c.pages)
	c.open(t, b, "bob")
	b.do(t, untilDots("grey green"), until("(leave(), true)"), untilDots("unknown unknown"))
	c.untilDevices(t, "bob", 0, 1)
}

// TestConnectionsPageMoves: when a server stops, the page opens a connection to another one before it closes its own.
// Its user stays green, and no goodbye is recorded.
func TestConnectionsPageMoves(t *testing.T) {
	t.Parallel()
	c := newConnected(t, 100*time.Millisecond)
	b := openBrowser(t, c.pages)
	stopping := api.NewShared(c.config)
	c.config.Shared = stopping
	c.api = api.New(c.config)
	c.open(t, b, "bob")
	b.do(t, untilDots("grey green"), until("(painted = [], true)"))
	next := c.config
	next.Shared = api.NewShared(c.config)
	c.mu.Lock()
	c.api = api.New(next)
	c.mu.Unlock()
	stopping.Drain()
	require.Eventually(t, func() bool { return stopping.WebSockets() == 0 }, time.Minute, 10*time.Millisecond)
	require.Equal(t, 1, next.Shared.WebSockets())
	c.pinged(t, "alice")
	b.do(t, untilDots("green green"))
	require.Equal(t, "green green", evaluate[string](t, b, "painted.join()"))
	live, gone := c.devices(t, "bob")
	require.Equal(t, []int{2, 0}, []int{live, gone}, "the old connection decays")
}

// TestConnectionsPageRenewsToken: the page sends new tokens before its token expires, mostly on the same connection: on
// a slow machine one can come too late.
func TestConnectionsPageRenewsToken(t *testing.T) {
	t.Parallel()
	c := newConnected(t, time.Minute)
	c.issueTokens(t, "bob", 6*time.Second)
	b := openBrowser(t, c.pages)
	c.open(t, b, "bob")
	b.do(t, untilDots("grey green"))
	require.Eventually(t, func() bool { return c.tokens() > c.requests()+2 }, time.Minute, 10*time.Millisecond)
}

// TestConnectionsPageWithoutToken: a page whose tokens are not valid tries a new one once.
func TestConnectionsPageWithoutToken(t *testing.T) {
	t.Parallel()
	c := newConnected(t, time.Minute)
	c.issueTokens(t, "bob", -time.Minute)
	b := openBrowser(t, c.pages)
	c.open(t, b, "bob")
	b.do(t, until(`end?.startsWith("4401 unauthenticated")`), untilDots("unknown unknown"))
	require.Equal(t, 2, c.requests())
}
