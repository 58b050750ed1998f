// Package testbrowser drives a real browser: Chromium, if it is on this machine. It is for tests only.
//
// A package that uses it calls [End] after its tests.
package testbrowser

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"regexp"
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

// Step is something done in, or waited for by, a browser.
type Step = chromedp.Action[chromedp.Void]

// Browser is a Chromium with one page open.
type Browser struct {
	Ctx context.Context // of chromedp, which keeps the tab in it
	URL string          // of the server

	mu       sync.Mutex
	problems []string
	expected []*expectation
}

// expectation is what the console may show in one test.
type expectation struct {
	pattern *regexp.Regexp
	seen    []string
}

// The tests of a package share two Chromiums, which [End] ends. Each test has its own context: tabs that share
// neither storage nor connections with those of another test. Chromium without windows takes a tenth of the processor
// time that the other one takes for each context. It has no back/forward cache.
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
		chromedp.Flag("host-resolver-rules", "MAP "+ReboundHost+" 127.0.0.1"), chromedp.Flag("no-proxy-server", true),
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

// End ends the browsers that tests have started.
func End() {
	for _, c := range []*chromium{withoutWindows, withWindows} {
		if c.stop != nil {
			c.stop()
		}
	}
}

// Open opens a tab that may talk to one server only, until the test ends. Without Chromium on PATH the test is
// skipped, or fails: see [testenv.Missing]. With the race detector, it is skipped: these tests are about pages and
// scripts, and other ones have clients that race.
func Open(t *testing.T, server string) *Browser {
	t.Helper()
	return withoutWindows.open(t, server)
}

// OpenWithWindows is [Open] in a Chromium with windows, which has a back/forward cache.
func OpenWithWindows(t *testing.T, server string) *Browser {
	t.Helper()
	return withWindows.open(t, server)
}

// Require skips or fails a test for which [Open] would.
func Require(t *testing.T) {
	t.Helper()
	withoutWindows.require(t)
}

// require starts this Chromium, or skips a test that needs it, or fails it.
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

// open is [Open] in this Chromium.
func (c *chromium) open(t *testing.T, server string) *Browser {
	t.Helper()
	ctx, cancel := context.WithTimeout(c.require(t), 3*time.Minute)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx, chromedp.WithNewBrowserContext())
	t.Cleanup(cancel)
	b := &Browser{Ctx: ctx, URL: server}
	require.NoError(t, chromedp.Listen(ctx, b.watch))
	return b
}

// Do takes the steps one after another, each of which waits for what it needs.
func (b *Browser) Do(t *testing.T, steps ...Step) {
	t.Helper()
	for i, step := range steps {
		err := chromedp.Do(b.Ctx, step)
		for err != nil && strings.Contains(err.Error(), networkChanged) {
			err = chromedp.Do(b.Ctx, step)
		}
		if err != nil {
			text, _ := chromedp.Run(b.Ctx, chromedp.Evaluate[string]("document.body.innerText.slice(0, 500)"))
			t.Fatalf("step %d: %v\ncomplaints: %q\nthe page: %s", i, err, b.Seen(), text)
		}
	}
}

// networkChanged is the error of all requests in progress at the moment at which an interface of the machine appears or
// disappears, to 127.0.0.1, too. Tests in other packages start and stop containers.
const networkChanged = "net::ERR_NETWORK_CHANGED"

// loadAgain loads a page again if one of its scripts or styles was lost in that way. Other requests are tried again by
// the pages themselves.
func (b *Browser) loadAgain(e *network.EventLoadingFailed) {
	parts := []network.ResourceType{network.ResourceTypeScript, network.ResourceTypeStylesheet}
	if e.ErrorText == networkChanged && slices.Contains(parts, e.Type) {
		go func() { _, _ = chromedp.Call(b.Ctx, cdppage.Reload, cdppage.ReloadParams{}) }()
	}
}

// watch records what the console shows, and every request to another server. It is called while events are read.
func (b *Browser) watch(event any) {
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
		if err != nil || strings.HasPrefix(u.Scheme, "http") && u.Scheme+"://"+u.Host != b.URL {
			b.addProblem("request to %s", e.Request.URL)
		}
	}
}

func (b *Browser) addProblem(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	problem := fmt.Sprintf(format, args...)
	for _, e := range b.expected {
		if e.pattern.MatchString(problem) {
			e.seen = append(e.seen, problem)
			return
		}
	}
	b.problems = append(b.problems, problem)
}

// Expect keeps problems that match a pattern from now on out of [Browser.Seen]. The function that it returns
// returns those so far.
func (b *Browser) Expect(pattern string) (seen func() []string) {
	e := &expectation{pattern: regexp.MustCompile(pattern)}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expected = append(b.expected, e)
	return func() []string {
		b.mu.Lock()
		defer b.mu.Unlock()
		return slices.Clone(e.seen)
	}
}

// Seen returns the problems of the page so far: what its console shows, and requests to other servers.
func (b *Browser) Seen() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.problems)
}

// NewTab opens another tab in the browser.
func (b *Browser) NewTab(t *testing.T) *Browser {
	t.Helper()
	ctx, cancel := chromedp.NewContext(b.Ctx)
	t.Cleanup(cancel)
	tab := &Browser{Ctx: ctx, URL: b.URL}
	require.NoError(t, chromedp.Listen(ctx, tab.watch))
	return tab
}

// Close closes the tab as its user does.
func (b *Browser) Close(t *testing.T) {
	t.Helper()
	_, err := chromedp.Call(b.Ctx, cdppage.Close, cdp.Empty{})
	require.NoError(t, err)
}

// ReboundHost is a name that the browser resolves to this machine.
const ReboundHost = "rebound.example"
