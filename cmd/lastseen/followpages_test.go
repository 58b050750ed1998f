package main

import (
	"fmt"
	"io"
	"log/slog"
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

// followed is a page that runs the code of docs/changes.md, and the server whose changes it follows.
type followed struct {
	store.Store
	api    http.Handler
	server *httptest.Server
	url    string // of the page

	mu       sync.Mutex
	fault    fault
	token    string // that requests need; any if empty
	requests []string
}

// fault is what is wrong with a server.
type fault int

const (
	healthy  fault = iota
	silent         // requests get the header of a stream, and then nothing
	failing        // requests get 503
	damaging       // cursors in queries arrive damaged
)

// newFollowed serves a page that runs the guide's code and then a script.
func newFollowed(t *testing.T, script string) *followed {
	t.Helper()
	file, err := filestore.Open(filestore.Options{Path: storetest.DataFile(t), Sync: time.Second})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, file.Close()) })
	var html string
	pages := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, html)
	}))
	t.Cleanup(pages.Close)
	f := &followed{Store: file, url: pages.URL}
	f.follow(t, pages.URL)
	f.server = httptest.NewServer(http.HandlerFunc(f.serve))
	t.Cleanup(func() {
		f.server.CloseClientConnections()
		f.server.Close()
	})
	html = `<!doctype html><title>page</title><link rel="icon" href="data:,">
		<span data-user="alice"></span><span data-user="bob"></span><span data-user="zoe, z"></span>
		<script>let token = "x"` + pageClock + guideScripts(t, "changes.md", f.server.URL) + script + `</script>`
	return f
}

// follow makes the API, with feeds that run until the test ends.
func (f *followed) follow(t *testing.T, origin string) {
	t.Helper()
	config := configWithFeeds(t, f.Store, defaultThresholds())
	config.CORSOrigins = []string{origin}
	f.api = api.New(config)
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
		Settings: api.Settings{Thresholds: thresholds, PingInterval: thresholds.Green / 2, Shards: 1, Changes: feed.Auto},
	}
}

// serve serves a request unless there is a fault.
func (f *followed) serve(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	f.mu.Lock()
	fault, refused := f.fault, f.token != "" && r.Header.Get("Authorization") != "Bearer "+f.token
	if r.Method != http.MethodOptions {
		f.requests = append(f.requests, r.URL.Path+" "+string(body))
	}
	f.mu.Unlock()
	switch {
	case r.Method == http.MethodOptions: // a preflight
	case refused:
		w.Header().Set("Access-Control-Allow-Origin", "*")
		w.WriteHeader(http.StatusUnauthorized)
		return
	case fault == failing:
		w.Header().Set("Access-Control-Allow-Origin", "*")
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	case fault == silent:
		w.Header().Set("Access-Control-Allow-Origin", "*")
		w.Header().Set("Content-Type", "text/event-stream")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		return
	}
	if fault == damaging {
		r.URL.RawQuery = strings.Replace(r.URL.RawQuery, "cursor=", "cursor=x", 1)
	}
	r.Body = io.NopCloser(strings.NewReader(string(body)))
	f.api.ServeHTTP(w, r)
}

// interrupt ends all connections, and lets the next requests see a fault.
func (f *followed) interrupt(next fault) {
	f.mu.Lock()
	f.fault = next
	f.mu.Unlock()
	f.server.CloseClientConnections()
}

func (f *followed) seen() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string{}, f.requests...)
}

// pinged records that a user was here some time ago.
func (f *followed) pinged(t *testing.T, user string, ago time.Duration) {
	t.Helper()
	now, err := f.Now(t.Context())
	require.NoError(t, err)
	_, err = f.Ping(t.Context(), "chat", []store.Sighting{{User: user, At: now.Add(-ago)}})
	require.NoError(t, err)
}

// left records that a user left.
func (f *followed) left(t *testing.T, user string) {
	t.Helper()
	now, err := f.Now(t.Context())
	require.NoError(t, err)
	_, err = f.Leave(t.Context(), "chat", []store.Sighting{{User: user, At: now}})
	require.NoError(t, err)
}

// painted has the page record what it shows, from now on.
const painted = `(painted = [], new MutationObserver(() => painted.push(` + dots + `)).observe(
	document.body, {attributes: true, subtree: true}), true)`

// TestFollowingUsers runs the guide's code: dots change with pings, leaves and time.
func TestFollowingUsers(t *testing.T) {
	t.Parallel()
	f := newFollowed(t, "")
	f.pinged(t, "alice", 0)
	f.pinged(t, "bob", 57*time.Second)
	b := openBrowser(t, f.url)
	b.do(t, chromedp.Navigate(f.url), untilDots("green yellow grey")) // by a sweep, at the latest
	f.pinged(t, "zoe, z", 0)
	b.do(t, untilDots("green yellow green"))
	f.left(t, "alice")
	b.do(t, untilDots("grey yellow green"))
	require.Len(t, f.seen(), 1, "one request")
}

// TestFollowingContinues: a page whose connection breaks has missed nothing, and shows what it knows meanwhile.
func TestFollowingContinues(t *testing.T) {
	t.Parallel()
	f := newFollowed(t, "")
	f.pinged(t, "alice", 0)
	b := openBrowser(t, f.url)
	b.do(t, chromedp.Navigate(f.url), untilDots("green grey grey"), until(painted))
	f.interrupt(failing)
	require.Eventually(t, func() bool { return len(f.seen()) >= 3 }, time.Minute, 10*time.Millisecond)
	f.left(t, "alice")
	f.pinged(t, "bob", 0)
	f.interrupt(healthy)
	b.do(t, untilDots("grey green grey"))
	require.NotContains(t, evaluate[string](t, b, "painted.join()"), "unknown")
	all := f.seen()
	require.NotContains(t, all[0], `"cursor"`)
	require.Contains(t, all[len(all)-1], `"cursor"`)
}

// TestFollowingSilence: without events, statuses become unknown, never grey, and known again with the next connection,
// although nothing has changed.
func TestFollowingSilence(t *testing.T) {
	t.Parallel()
	f := newFollowed(t, "")
	f.pinged(t, "alice", 0)
	b := openBrowser(t, f.url)
	b.do(t, chromedp.Navigate(f.url), untilDots("green grey grey"), until(painted))
	f.interrupt(silent)
	require.Eventually(t, func() bool { return len(f.seen()) >= 2 }, time.Minute, 10*time.Millisecond)
	b.do(t, until("(passed += 31_000, true)"), untilDots("unknown unknown unknown"))
	require.NotContains(t, evaluate[string](t, b, "painted.join()"), "grey grey grey")
	f.interrupt(healthy)
	b.do(t, untilDots("green grey grey"))
	b.do(t, until("(stop(), true)"))
}

// TestFollowingWithNewToken: after a 401, the page connects again with its newest token.
func TestFollowingWithNewToken(t *testing.T) {
	t.Parallel()
	f := newFollowed(t, "")
	f.token = "y"
	f.pinged(t, "alice", 0)
	b := openBrowser(t, f.url)
	b.do(t, chromedp.Navigate(f.url), untilDots("unknown unknown unknown"))
	require.Eventually(t, func() bool { return len(f.seen()) >= 2 }, time.Minute, 10*time.Millisecond)
	b.do(t, until("(token = 'y', true)"), untilDots("green grey grey"))
}

// TestFollowingAnonymously runs the guide's code for EventSource.
func TestFollowingAnonymously(t *testing.T) {
	t.Parallel()
	f := newFollowed(t, `
		stop()
		const anonymous = {}
		const show = (user, status) => { anonymous[user] = status }
		const close = followAnonymously({ url, users: ["alice", "bob"], show })`)
	f.pinged(t, "alice", 0)
	b := openBrowser(t, f.url)
	shows := func(alice, bob string) browserStep {
		return until(fmt.Sprintf("anonymous.alice == %q && anonymous.bob == %q", alice, bob))
	}
	b.do(t, chromedp.Navigate(f.url), shows("green", "grey"))
	f.interrupt(healthy)
	f.pinged(t, "bob", 0)
	b.do(t, shows("green", "green"))
	f.interrupt(failing) // after which the browser gives up
	b.do(t, until("(passed += 31_000, true)"), shows("unknown", "unknown"))
	f.left(t, "bob")
	f.interrupt(healthy)
	b.do(t, until("(passed += 31_000, true)"), shows("green", "grey"), until("(close(), true)"))
}

// TestFollowingEveryone runs the guide's code for everyone: a list and then changes; after a reset a list again.
func TestFollowingEveryone(t *testing.T) {
	t.Parallel()
	f := newFollowed(t, `
		stop()
		const everyone = new Map(), end = new AbortController()
		let lists = 0
		const show = (presences, all) => {
			if (all) { lists++; everyone.clear() }
			presences.forEach(({ user, status }) => everyone.set(user, status))
		}
		followEveryone({ url, show, signal: end.signal })
		const online = () => [...everyone].map(entry => entry.join(" ")).sort().join(", ")`)
	f.pinged(t, "alice", 0)
	f.pinged(t, "bob", time.Hour)
	b := openBrowser(t, f.url)
	shows := func(want string) browserStep { return until(fmt.Sprintf("online() == %q", want)) }
	b.do(t, chromedp.Navigate(f.url), shows("alice green"))
	f.pinged(t, "carol", 0)
	b.do(t, shows("alice green, carol green"))
	f.left(t, "alice")
	b.do(t, shows("alice grey, carol green"))
	require.Equal(t, 1, evaluate[int](t, b, "lists"))
	require.NoError(t, f.DeleteNamespace(t.Context(), "chat"))
	b.do(t, until("lists == 2"))
	f.pinged(t, "dave", 0)
	b.do(t, shows("dave green"))
	f.interrupt(damaging)
	b.do(t, until("lists > 2"))
	f.interrupt(healthy)
	f.pinged(t, "eve", 0)
	b.do(t, shows("dave green, eve green"), until("(end.abort(), true)"))
}
