package main

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/feed"
	"github.com/lastseen/lastseen/store/filestore"
	"github.com/lastseen/lastseen/store/jobs"
	"github.com/lastseen/lastseen/store/storetest"
)

// connected is a site whose pages run the code of docs/connections.md, and the server that they connect to.
type connected struct {
	store.Store
	pages  string // URL of a page; its query names the user
	config api.Config

	mu      sync.Mutex
	api     http.Handler
	refuse  bool // connections get 503
	sockets []net.Conn
	asked   int // requests to connect
}

// connectedScript is what a page adds to the guide's code.
const connectedScript = `<!doctype html><title>page</title><link rel="icon" href="data:,">
<span data-user="alice"></span><span data-user="bob"></span>
<script>
let token, end, painted = []
%s
const me = new URLSearchParams(location.search).get("user")
console.warn = (...args) => { end = args.join(" ") }
%s
new MutationObserver(() => painted.push(%s)).observe(document.body, {attributes: true, subtree: true})
</script>`

// newConnected serves pages that run the guide's code.
func newConnected(t *testing.T, grace time.Duration) *connected {
	t.Helper()
	file, err := filestore.Open(filestore.Options{Path: storetest.DataFile(t), Sync: time.Second})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, file.Close()) })
	var html string
	pages := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, html)
	}))
	t.Cleanup(pages.Close)
	c := &connected{Store: file, pages: pages.URL}
	c.config = c.apiConfig(t, pages.URL, grace)
	c.api = api.New(c.config)
	server := httptest.NewUnstartedServer(http.HandlerFunc(c.serve))
	server.Listener = &trackedListener{server.Listener, c}
	server.Start()
	t.Cleanup(func() {
		c.cut()
		server.Close()
	})
	const example = "wss://presence.example.com"
	code := guideCode(t, "connections.md")
	require.Contains(t, code, example)
	require.Contains(t, code, "user: 'alice'")
	code = strings.ReplaceAll(code, example, strings.Replace(server.URL, "http", "ws", 1))
	html = fmt.Sprintf(connectedScript, pageClock, strings.ReplaceAll(code, "user: 'alice'", "user: me"), dots)
	return c
}

// apiConfig returns the configuration of the API, with feeds and connections that are kept until the test ends.
func (c *connected) apiConfig(t *testing.T, origin string, grace time.Duration) api.Config {
	t.Helper()
	thresholds := lastseen.Thresholds{Green: time.Minute, Yellow: 5 * time.Minute}
	logger := slog.New(slog.DiscardHandler)
	settings := func(string) feed.Settings { return feed.Settings{Thresholds: thresholds, Mode: feed.Auto} }
	sweep := jobs.NewSweep(c.Store, func() []string { return nil }, settings, logger)
	hub := feed.New(feed.Options{
		Store: c.Store, Settings: settings, Recorded: sweep.Add, Random: func() float64 { return 0 }, Logger: logger,
	})
	t.Cleanup(feeds{hub, sweep}.start(t.Context()))
	return api.Config{
		Store: c.Store, Feeds: hub, Connections: runRegistry(t, c.Store), CORSOrigins: []string{origin},
		WebSockets: api.WebSocketLimits{Grace: grace, Drain: 100 * time.Millisecond},
		Settings:   api.Settings{Thresholds: thresholds, PingInterval: 30 * time.Second, Shards: 1, Changes: feed.Auto},
	}
}

// serve serves a request unless connections are refused.
func (c *connected) serve(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	handler, refuse := c.api, c.refuse
	c.asked++
	c.mu.Unlock()
	if refuse {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	handler.ServeHTTP(w, r)
}

// trackedListener remembers the connections that it accepts, since no server knows those that became WebSockets.
type trackedListener struct {
	net.Listener
	c *connected
}

func (l *trackedListener) Accept() (net.Conn, error) {
	socket, err := l.Listener.Accept()
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	if err == nil {
		l.c.sockets = append(l.c.sockets, socket)
	}
	return socket, err
}

// cut ends all connections.
func (c *connected) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, socket := range c.sockets {
		_ = socket.Close()
	}
	c.sockets = nil
}

func (c *connected) setRefuse(refuse bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refuse = refuse
}

func (c *connected) requests() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asked
}

// pinged records that a user is here.
func (c *connected) pinged(t *testing.T, user string) {
	t.Helper()
	now, err := c.Now(t.Context())
	require.NoError(t, err)
	_, err = c.Ping(t.Context(), "chat", []store.Sighting{{User: user, At: now}})
	require.NoError(t, err)
}

// devices returns how many devices of a user have not said goodbye, and how many have.
func (c *connected) devices(t *testing.T, user string) (live, gone int) {
	t.Helper()
	devices, err := c.ReadDevices(t.Context(), "chat", user)
	require.NoError(t, err)
	for _, record := range devices.Records {
		if record.Gone {
			gone++
		} else {
			live++
		}
	}
	return live, gone
}

// untilDevices waits until a user has some devices.
func (c *connected) untilDevices(t *testing.T, user string, live, gone int) {
	t.Helper()
	require.Eventually(t, func() bool {
		l, g := c.devices(t, user)
		return l == live && g == gone
	}, time.Minute, 10*time.Millisecond, "%s should have %d devices, and %d that are gone", user, live, gone)
}

// open opens the page of a user in a tab.
func (c *connected) open(t *testing.T, b *browser, user string) {
	t.Helper()
	b.do(t, chromedp.Navigate(c.pages+"?user="+user))
}

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
