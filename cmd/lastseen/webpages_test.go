package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/connections"
	"github.com/lastseen/lastseen/store/filestore"
	"github.com/lastseen/lastseen/store/storetest"
)

// guideScripts returns the code of a guide, such as docs/web-pages.md, for a server at a URL.
func guideScripts(t *testing.T, name, server string) string {
	t.Helper()
	const example = "https://presence.example.com"
	all := guideCode(t, name)
	require.Contains(t, all, example)
	return strings.ReplaceAll(all, example, server)
}

// guideCode returns the code of a guide as written.
func guideCode(t *testing.T, name string) string {
	t.Helper()
	guide, err := os.ReadFile("../../docs/" + name)
	require.NoError(t, err)
	var all strings.Builder
	for _, block := range regexp.MustCompile("(?s)```js\n(.*?)```").FindAllStringSubmatch(string(guide), -1) {
		all.WriteString(block[1])
	}
	return all.String()
}

// site is a site whose pages run the guide's code, and the server that they call, both in this process.
type site struct {
	*clockedStore
	url string // of a page; its query is left to the page

	mu      sync.Mutex
	lookups []string // status of each answer
}

// clockedStore is a store whose clock the test sets: the page's clock has to follow it.
type clockedStore struct {
	store.Store
	mu   sync.Mutex
	now  lastseen.Instant
	down bool // lookups fail, as when Redis is away
}

func (c *clockedStore) Lookup(ctx context.Context, namespace string, users []string) ([]lastseen.State, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.down {
		return nil, store.ErrUnavailable
	}
	return c.Store.Lookup(ctx, namespace, users)
}

func (c *clockedStore) setDown(down bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down = down
}

func (c *clockedStore) clock() lastseen.Instant {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clockedStore) Now(context.Context) (lastseen.Instant, error) { return c.clock(), nil }

func (c *clockedStore) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now += lastseen.Instant(d.Milliseconds())
}

// pageClock replaces the page's clocks by ones that the test moves. The clock of the user's computer is an hour wrong.
const pageClock = `
let passed = 0, wrong = 3_600_000
const [now, wall] = [performance.now.bind(performance), Date.now]
performance.now = () => now() + passed
Date.now = () => wall() + passed + wrong
`

// pageRequests counts what the page sends at the moment that it does.
const pageRequests = `
let fetches = 0
const send = fetch
window.fetch = (...args) => (fetches++, send(...args))
`

// newSite serves a page that runs the guide's code and then a script.
func newSite(t *testing.T, script string) *site {
	t.Helper()
	file, err := filestore.Open(filestore.Options{Path: storetest.DataFile(t), Sync: time.Second})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, file.Close()) })
	// A day ago, since stores record nothing that is ahead of their own clock.
	s := &site{clockedStore: &clockedStore{
		Store: file,
		now:   lastseen.Instant(time.Now().Add(-24 * time.Hour).UnixMilli()),
	}}
	var html string
	pages := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, html)
	}))
	t.Cleanup(pages.Close)
	server := httptest.NewServer(s.observe(api.New(api.Config{
		Store: s.clockedStore, CORSOrigins: []string{pages.URL}, Connections: runRegistry(t, s.clockedStore, defaultThresholds()),
		Settings: api.Settings{
			Thresholds:   lastseen.Thresholds{Green: time.Minute, Yellow: 5 * time.Minute},
			PingInterval: 30 * time.Second, Shards: 1,
		},
	})))
	t.Cleanup(server.Close)
	html = `<!doctype html><title>page</title><link rel="icon" href="data:,">
		<span data-user="alice"></span><span data-user="bob"></span><span data-user="carol"></span>
		<span data-user="zoe, z"></span>
		<script>const token = "x"` + pageClock + pageRequests + guideScripts(t, "web-pages.md", server.URL) + script + `</script>`
	s.url = pages.URL
	return s
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

// observe notes lookups.
func (s *site) observe(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		recorder := &statusWriter{ResponseWriter: w}
		next.ServeHTTP(recorder, r)
		if strings.HasSuffix(r.URL.Path, "/lookup") && r.Method == http.MethodGet {
			s.mu.Lock()
			s.lookups = append(s.lookups, http.StatusText(recorder.status))
			s.mu.Unlock()
		}
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

func (s *site) seen() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string{}, s.lookups...)
}

// pinged records that a user was here some time ago.
func (s *site) pinged(t *testing.T, user string, ago time.Duration) {
	t.Helper()
	_, err := s.Ping(t.Context(), "chat", []store.Sighting{{
		User: user,
		At:   s.clock() - lastseen.Instant(ago.Milliseconds()),
	}})
	require.NoError(t, err)
}

// dots is the dots of the page.
const dots = `[...document.querySelectorAll("[data-user]")].map(e => e.className).join(" ")`

// pass lets time pass, on the server and in the page; the page notices by itself.
func (s *site) pass(d time.Duration) browserStep {
	return func(ctx context.Context, target *chromedp.Target) (chromedp.Void, error) {
		s.advance(d)
		_, err := chromedp.Evaluate[int](fmt.Sprintf("passed += %d", d.Milliseconds()))(ctx, target)
		return chromedp.Void{}, err
	}
}

// show sets whether the page is visible. Headless tabs are always, so the browser's answer is replaced.
func show(state string) browserStep {
	return until(fmt.Sprintf(`(Object.defineProperty(document, "visibilityState", {value: %q, configurable: true}),
		document.dispatchEvent(new Event("visibilitychange")))`, state))
}

func untilDots(want string) browserStep { return until(dots + fmt.Sprintf(" == %q", want)) }

// TestWebPagesAgeDots runs the guide's code: dots age by themselves between two polls, by the server's clock.
func TestWebPagesAgeDots(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	s.pinged(t, "alice", 50*time.Second)
	s.pinged(t, "bob", 290*time.Second)
	s.pinged(t, "carol", 0)
	_, err := s.Leave(t.Context(), "chat", []store.Sighting{{User: "carol", At: s.clock()}})
	require.NoError(t, err)
	b := openBrowser(t, s.url)
	b.do(t, chromedp.Navigate(s.url), untilDots("green yellow grey grey"),
		s.pass(9*time.Second), untilDots("green yellow grey grey"),
		s.pass(2*time.Second), untilDots("yellow grey grey grey"))
	require.Equal(t, []string{"OK"}, s.seen(), "without another request")
}

// TestWebPagesClocks: neither a clock that is set nor a computer that sleeps, when performance.now() may stand still,
// makes an old response look new or stops the polls.
func TestWebPagesClocks(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	s.pinged(t, "alice", 0)
	b := openBrowser(t, s.url)
	asked := func(times int) {
		require.Eventually(t, func() bool { return len(s.seen()) == times }, time.Minute, 10*time.Millisecond)
	}
	b.do(t, chromedp.Navigate(s.url), untilDots("green grey grey grey"))
	s.advance(time.Hour)
	b.do(t, until("wrong += 3_600_000")) // asleep
	asked(2)
	b.do(t, untilDots("grey grey grey grey"))
	s.pinged(t, "alice", 0)
	b.do(t, until("wrong -= 7_200_000"), s.pass(37*time.Second)) // set back
	asked(3)
	b.do(t, untilDots("green grey grey grey"))
}

// TestWebPagesPoll: the page asks again when a poll is due, keeps what it has after a 304, and ages it on.
func TestWebPagesPoll(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	s.pinged(t, "alice", 0)
	b := openBrowser(t, s.url)
	// 1.2 intervals and more
	b.do(t, chromedp.Navigate(s.url), untilDots("green grey grey grey"), s.pass(37*time.Second))
	require.Eventually(t, func() bool { return len(s.seen()) == 2 }, time.Minute, 10*time.Millisecond)
	require.Equal(t, []string{"OK", "Not Modified"}, s.seen())
	b.do(t, s.pass(23*time.Second), untilDots("yellow grey grey grey"))
	s.pinged(t, "alice", 0)
	s.pinged(t, "zoe, z", 0)
	b.do(t, s.pass(14*time.Second), untilDots("green grey grey green"))
	require.Equal(t, []string{"OK", "Not Modified", "OK"}, s.seen())

	b.do(t, show("hidden"), s.pass(10*time.Minute), show("hidden"))
	require.Equal(t, 3, evaluate[int](t, b, "fetches"), "a hidden page does not ask")
	s.pinged(t, "bob", 0)
	b.do(t, until(`(document.addEventListener("visibilitychange", () => { atOnce = `+dots+` }), true)`),
		show("visible"),
		untilDots("grey green grey grey"))
	require.Equal(t, "unknown unknown unknown unknown", evaluate[string](t, b, "atOnce"), "until the response is there")
	b.do(t, until("(stop(), true)"), s.pass(time.Hour), show("visible"))
	require.Equal(t, 4, evaluate[int](t, b, "fetches"), "stopped")
}

// TestWebPagesUnknown: without answers dots become unknown, never grey, and Retry-After is heeded.
func TestWebPagesUnknown(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	s.pinged(t, "alice", 0)
	b := openBrowser(t, s.url)
	s.setDown(true)
	b.do(t, chromedp.Navigate(s.url), untilDots("unknown unknown unknown unknown"))
	require.Eventually(t, func() bool { return len(s.seen()) == 1 }, time.Minute, 10*time.Millisecond)
	s.setDown(false)
	b.do(t, s.pass(37*time.Second), untilDots("green grey grey grey"))
	s.setDown(true)
	b.do(t, until("painted = [], new MutationObserver(() => painted.push("+dots+")).observe(document.body, {attributes: true, subtree: true}), true"),
		s.pass(37*time.Second), untilDots("yellow grey grey grey"), s.pass(37*time.Second), untilDots("unknown unknown unknown unknown"))
	require.NotContains(t, evaluate[string](t, b, "painted.join()"), "grey grey grey grey")
}

// TestWebPagesPing: the guide's code pings, and again when the response said so.
func TestWebPagesPing(t *testing.T) {
	t.Parallel()
	s := newSite(t, `keepPinging({ url, user: "alice", device: newDevice(), headers })`)
	b := openBrowser(t, s.url)
	b.do(t, chromedp.Navigate(s.url), until("true"))
	require.Eventually(t, func() bool {
		states, err := s.Lookup(t.Context(), "chat", []string{"alice"})
		return err == nil && states[0].At > 0
	}, time.Minute, 10*time.Millisecond)
}
