package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testenv"
)

// browserStep is something done in, or waited for by, a browser.
type browserStep = chromedp.Action[chromedp.Void]

// browser is a Chromium with one page open.
type browser struct {
	ctx context.Context
	url string // of the server

	mu       sync.Mutex
	problems []string
}

// All tests share two Chromiums, which TestMain ends. Each test has a context of its own: tabs that share neither
// storage nor connections with those of another test. Chromium without windows takes a tenth of the processor time that
// the other one takes for each context. It has no back/forward cache.
var withoutWindows, withWindows = &chromium{find: findWithoutWindows}, &chromium{find: findWithWindows}

// chromium is started by the first test that asks for it.
type chromium struct {
	find     func() (path string, err error)
	starting sync.Once
	ctx      context.Context
	err      error // why it did not start
	stop     func()
}

func findWithWindows() (path string, err error) { return exec.LookPath("chromium") }

// findWithoutWindows returns the path of the other one if there is none. Debian's program is a script that waits for
// Chromium, which would outlive it.
func findWithoutWindows() (path string, err error) {
	const debian = "/usr/lib/chromium/chromium-headless-shell"
	path, err = exec.LookPath("chromium-headless-shell")
	if err != nil {
		return findWithWindows()
	}
	if _, err := os.Stat(debian); err == nil {
		return debian, nil
	}
	return path, nil
}

func (c *chromium) start() (context.Context, error) {
	c.starting.Do(func() {
		var path string
		if path, c.err = c.find(); c.err == nil {
			c.run(path)
		}
	})
	return c.ctx, c.err
}

func (c *chromium) run(path string) {
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(path),
		chromedp.Flag("host-resolver-rules", "MAP "+reboundHost+" 127.0.0.1"), chromedp.Flag("no-proxy-server", true),
		// A camera that shows a test picture, without asking, and calls on machines without a network. Five pictures a
		// second take less processor time than the usual 20.
		chromedp.Flag("use-fake-device-for-media-stream", "fps=5"), chromedp.Flag("use-fake-ui-for-media-stream", true),
		chromedp.Flag("allow-loopback-in-peer-connection", true))
	if os.Getuid() == 0 { // Chromium's sandbox does not work for root
		options = append(options, chromedp.NoSandbox)
	}
	allocator, release := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, cancel := chromedp.NewContext(allocator)
	c.ctx, c.stop = ctx, func() { cancel(); release() }
	c.err = chromedp.Do(ctx) // no step: it only starts
}

// end ends the Chromium if there is one.
func (c *chromium) end() {
	if c.stop != nil {
		c.stop()
	}
}

// openBrowser opens a tab that may talk to one server only, until the test ends. Without Chromium on PATH the test is
// skipped, or fails: see [testenv.Missing]. With the race detector, it is skipped: these tests are about pages and
// scripts, and other ones have clients that race.
func openBrowser(t *testing.T, server string) *browser {
	t.Helper()
	return withoutWindows.open(t, server)
}

// require starts this Chromium, or skips a test that needs it.
func (c *chromium) require(t *testing.T) context.Context {
	t.Helper()
	testenv.SkipWithRace(t, "pages are not in Go")
	shared, err := c.start()
	if errors.Is(err, exec.ErrNotFound) {
		testenv.Missing(t, "chromium", err)
	}
	require.NoError(t, err, "Chromium does not start")
	return shared
}

// open is openBrowser in this Chromium.
func (c *chromium) open(t *testing.T, server string) *browser {
	t.Helper()
	ctx, cancel := context.WithTimeout(c.require(t), 3*time.Minute)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx, chromedp.WithNewBrowserContext())
	t.Cleanup(cancel)
	b := &browser{ctx: ctx, url: server}
	require.NoError(t, chromedp.Listen(ctx, b.watch))
	return b
}

// do takes the steps one after another, each of which waits for what it needs.
func (b *browser) do(t *testing.T, steps ...browserStep) {
	t.Helper()
	for i, step := range steps {
		err := chromedp.Do(b.ctx, step)
		for err != nil && strings.Contains(err.Error(), networkChanged) {
			err = chromedp.Do(b.ctx, step)
		}
		if err != nil {
			text, _ := chromedp.Run(b.ctx, chromedp.Evaluate[string]("document.body.innerText.slice(0, 500)"))
			t.Fatalf("step %d: %v\ncomplaints: %q\nthe page: %s", i, err, b.seen(), text)
		}
	}
}

// until waits until an expression in JavaScript is true. One that fails is tried again: during a
// navigation the page it was meant for may not be there yet.
func until(expression string) browserStep {
	return func(ctx context.Context, page *chromedp.Target) (chromedp.Void, error) {
		for {
			held, err := chromedp.Evaluate[bool]("Boolean("+expression+")")(ctx, page)
			if err == nil && held {
				return chromedp.Void{}, nil
			}
			select {
			case <-ctx.Done():
				return chromedp.Void{}, fmt.Errorf("until %s: %w", expression, errors.Join(ctx.Err(), err))
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
}

// networkChanged is the error of all requests in progress at the moment at which an interface of the machine appears or
// disappears, to 127.0.0.1, too. Tests in other packages start and stop containers.
const networkChanged = "net::ERR_NETWORK_CHANGED"

// loadAgain loads a page again if one of its scripts or styles was lost in that way. Other requests are tried again by
// the pages themselves.
func (b *browser) loadAgain(e *network.EventLoadingFailed) {
	parts := []network.ResourceType{network.ResourceTypeScript, network.ResourceTypeStylesheet}
	if e.ErrorText == networkChanged && slices.Contains(parts, e.Type) {
		go func() { _, _ = chromedp.Call(b.ctx, cdppage.Reload, cdppage.ReloadParams{}) }()
	}
}

// watch records what the console shows, and every request to another server. It is called while events are read.
func (b *browser) watch(event any) {
	switch e := event.(type) {
	case *log.EventEntryAdded: // violated policies and failed requests, too
		if (e.Entry.Level == "error" || e.Entry.Level == "warning") && !strings.Contains(e.Entry.Text, networkChanged) {
			b.addProblem("%s: %s %s", e.Entry.Source, e.Entry.Text, e.Entry.URL)
		}
	case *runtime.EventConsoleAPICalled:
		if e.Type == "error" || e.Type == "warning" || e.Type == "assert" {
			for _, arg := range e.Args {
				b.addProblem("console: %s %s", arg.Value, arg.Description)
			}
		}
	case *runtime.EventExceptionThrown:
		b.addProblem("exception: %s %+v", e.ExceptionDetails.Text, e.ExceptionDetails.Exception)
	case *network.EventLoadingFailed:
		b.loadAgain(e)
	case *network.EventRequestWillBeSent:
		u, err := url.Parse(e.Request.URL)
		if err != nil || strings.HasPrefix(u.Scheme, "http") && u.Scheme+"://"+u.Host != b.url {
			b.addProblem("request to %s", e.Request.URL)
		}
	}
}

func (b *browser) addProblem(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.problems = append(b.problems, fmt.Sprintf(format, args...))
}

func (b *browser) seen() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.problems)
}

// TestBrowserReportsProblems checks that seen returns the problems of a page that has some of each kind.
func TestBrowserReportsProblems(t *testing.T) {
	t.Parallel()
	const page = `<!doctype html><title>bad</title><link rel="icon" href="data:,"><img src="http://localhost:1/pixel.png">
		<script>inline = 1</script><script src="/bad.js"></script>`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/":
			w.Header().Set("Content-Type", "text/html")
			w.Header().Set("Content-Security-Policy", "script-src 'self'")
			fmt.Fprint(w, page)
		case "/bad.js":
			w.Header().Set("Content-Type", "text/javascript")
			fmt.Fprint(w, `console.warn("a warning"); fetch("/missing").then(() => { done = true }); undefined.x`)
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(server.Close)
	b := openBrowser(t, server.URL)
	b.do(t, chromedp.Navigate(server.URL), until("window.done"))
	seen := strings.Join(b.seen(), "\n")
	for _, complaint := range []string{
		"request to http://localhost:1/pixel.png", "Content Security Policy", "a warning", "/missing", "TypeError",
	} {
		require.Contains(t, seen, complaint)
	}
}

// newTab opens another tab in the browser.
func (b *browser) newTab(t *testing.T) *browser {
	t.Helper()
	ctx, cancel := chromedp.NewContext(b.ctx)
	t.Cleanup(cancel)
	tab := &browser{ctx: ctx, url: b.url}
	require.NoError(t, chromedp.Listen(ctx, tab.watch))
	return tab
}

// close closes the tab as its user does.
func (b *browser) close(t *testing.T) {
	t.Helper()
	_, err := chromedp.Call(b.ctx, cdppage.Close, cdp.Empty{})
	require.NoError(t, err)
}
