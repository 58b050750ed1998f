package browser

import (
	"context"
	"fmt"
	"io"
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
	"github.com/lastseen/lastseen/internal/testbrowser"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/filestore"
	"github.com/lastseen/lastseen/store/storetest"
)

// scripted is a site whose pages use lastseen.js under a strict Content-Security-Policy, and the server of another
// origin that serves it. The server is part of the test, not the program: tests move the clock of its store, have the
// store fail, respond in place of the API, and cut connections.
type scripted struct {
	*connected // pages is the origin of the site
	faults     *faultyStore
	server     *httptest.Server
	url        string // of the server, or of another one that pages use instead

	scriptMu sync.Mutex
	html     []string // of the pages, by number
	scripts  []string // their modules
	answer   func(http.ResponseWriter, *http.Request) bool
	log      []string // requests to the server: method, URI and body
}

// scriptOptions are what sites differ in. The zero value has feeds, the default thresholds and a long grace.
type scriptOptions struct {
	thresholds lastseen.Thresholds
	grace      time.Duration
	// now is the time of the store's clock, if the test moves that: see [scripted.pass]. There are no feeds then.
	now lastseen.Instant
}

// aDayAgo is a time for clocks that tests move: stores record nothing that is ahead of their own clock.
func aDayAgo() lastseen.Instant { return lastseen.Instant(time.Now().Add(-24 * time.Hour).UnixMilli()) }

// defaultThresholds are those of a server without configuration.
func defaultThresholds() lastseen.Thresholds {
	return lastseen.Thresholds{Green: time.Minute, Yellow: 5 * time.Minute}
}

// seconds returns short thresholds.
func seconds(green, yellow time.Duration) lastseen.Thresholds {
	return lastseen.Thresholds{Green: green * time.Second, Yellow: yellow * time.Second}
}

// faultyStore is a store that can fail, and whose clock a test can move.
type faultyStore struct {
	store.Store
	mu   sync.Mutex
	down bool
	now  lastseen.Instant // 0 for the clock of the store
}

func (f *faultyStore) setDown(down bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.down = down
}

// failed returns an error while the store is down.
func (f *faultyStore) failed() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down {
		return store.ErrUnavailable
	}
	return nil
}

func (f *faultyStore) Now(ctx context.Context) (lastseen.Instant, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.now != 0 {
		return f.now, nil
	}
	return f.Store.Now(ctx)
}

func (f *faultyStore) Describe(
	ctx context.Context, namespace string, users []string,
) ([]lastseen.State, map[string]store.Details, error) {
	if err := f.failed(); err != nil {
		return nil, nil, err
	}
	return f.Store.Describe(ctx, namespace, users)
}

func (f *faultyStore) Ping(ctx context.Context, ns string, batch []store.PresenceEvent) ([]lastseen.State, error) {
	if err := f.failed(); err != nil {
		return nil, err
	}
	return f.Store.Ping(ctx, ns, batch)
}

func (f *faultyStore) SnapshotChanges(ctx context.Context, namespace string, users []string) (store.Snapshot, error) {
	if err := f.failed(); err != nil {
		return store.Snapshot{}, err
	}
	return f.Store.SnapshotChanges(ctx, namespace, users)
}

func (f *faultyStore) ReadChanges(ctx context.Context, reads []*store.ChangesRead) {
	err := f.failed()
	for _, read := range reads {
		read.Err = err
	}
	if err == nil {
		f.Store.ReadChanges(ctx, reads)
	}
}

func (f *faultyStore) AdvanceChanges(ctx context.Context, advances []*store.ChangesAdvance) {
	err := f.failed()
	for _, advance := range advances {
		advance.Err = err
	}
	if err == nil {
		f.Store.AdvanceChanges(ctx, advances)
	}
}

// newScripted starts a site and the server that it uses. The test runs in parallel with others.
func newScripted(t *testing.T, o scriptOptions) *scripted {
	t.Helper()
	t.Parallel()
	file, err := filestore.Open(filestore.Options{Path: storetest.DataFile(t), Sync: time.Second})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, file.Close()) })
	s := &scripted{faults: &faultyStore{Store: file, now: o.now}}
	s.connected = &connected{Store: s.faults}
	pages := httptest.NewServer(http.HandlerFunc(s.servePage))
	t.Cleanup(pages.Close)
	s.pages = pages.URL
	s.config = s.scriptConfig(t, o)
	s.config.Shared = api.NewShared(s.config)
	s.api = api.New(s.config)
	background(t, s.config.Shared.Listen)
	s.server = httptest.NewUnstartedServer(http.HandlerFunc(s.serve))
	s.server.Listener = &trackedListener{s.server.Listener, s.connected}
	s.server.Start()
	s.url = s.server.URL
	t.Cleanup(func() {
		s.cut()
		s.server.Close()
	})
	return s
}

// scriptConfig returns the configuration of the API.
func (s *scripted) scriptConfig(t *testing.T, o scriptOptions) api.Config {
	t.Helper()
	if o.thresholds == (lastseen.Thresholds{}) {
		o.thresholds = defaultThresholds()
	}
	if o.grace == 0 {
		o.grace = time.Minute
	}
	config := api.Config{Store: s.Store, Settings: api.Settings{
		Thresholds: o.thresholds, PingInterval: o.thresholds.Green / 2, Shards: 1,
	}}
	if o.now == 0 {
		config = configWithFeeds(t, s.Store, o.thresholds)
	}
	config.Connections, config.CORSOrigins = runRegistry(t, s.Store, o.thresholds), []string{s.pages}
	config.WebSockets = api.WebSocketLimits{Grace: o.grace, Drain: 100 * time.Millisecond}
	return config
}

// serve notes a request, and answers it unless the test does.
func (s *scripted) serve(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(strings.NewReader(string(body)))
	s.scriptMu.Lock()
	answer := s.answer
	if r.Method != http.MethodOptions { // a preflight
		s.log = append(s.log, r.Method+" "+r.URL.RequestURI()+" "+string(body))
	}
	s.scriptMu.Unlock()
	if answer != nil && answer(w, r) {
		return
	}
	s.connected.serve(w, r)
}

// setAnswer lets the test answer requests before the API does. Answer returns whether it answered; nil ends that.
func (s *scripted) setAnswer(answer func(http.ResponseWriter, *http.Request) bool) {
	s.scriptMu.Lock()
	defer s.scriptMu.Unlock()
	s.answer = answer
}

// refuseSockets answers each upgrade to a WebSocket with a status, as a proxy that knows none does.
func (s *scripted) refuseSockets(status int) {
	s.setAnswer(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("Upgrade") == "" {
			return false
		}
		w.WriteHeader(status)
		return true
	})
}

// called returns the requests so far whose method and URI begin with a text, such as "POST /v1/namespaces/chat/lookup".
func (s *scripted) called(prefix string) (all []string) {
	s.scriptMu.Lock()
	defer s.scriptMu.Unlock()
	for _, request := range s.log {
		if strings.HasPrefix(request, prefix) {
			all = append(all, request)
		}
	}
	return all
}

func (s *scripted) connects() int { return len(s.called("GET /v1/namespaces/chat/connect")) }

// pageScript is what a page's module has before the test's code. It records what show is called with.
const pageScript = `import { connect, Socket } from "%[1]s/lastseen.js"
const url = "%[1]s", namespace = "chat", statuses = {}, presences = {}
const token = () => fetch("/token").then(response => response.text()).then(text => text || undefined)
const show = presence => {
	presences[presence.user] = presence
	statuses[presence.user] = presence.status
	painted.push(presence.user + " " + presence.status)
}
Object.assign(window, { connect, Socket, url, namespace, statuses, presences, token, show, painted: [] })
%[2]s
;window.loaded = true`

// servePage serves page /1 with its module /1.js, and so on, the clock of pages and tokens.
func (s *scripted) servePage(w http.ResponseWriter, r *http.Request) {
	s.scriptMu.Lock()
	defer s.scriptMu.Unlock()
	header := w.Header()
	var number int
	switch {
	case r.URL.Path == "/token":
		_, _ = io.WriteString(w, s.token())
	case r.URL.Path == "/clock.js":
		header.Set("Content-Type", "text/javascript")
		_, _ = io.WriteString(w, testbrowser.PageClock)
	case scans(r.URL.Path, "/%d.js", &number) && number < len(s.scripts):
		header.Set("Content-Type", "text/javascript")
		_, _ = fmt.Fprintf(w, pageScript, s.url, s.scripts[number])
	case scans(r.URL.Path, "/%d", &number) && number < len(s.html):
		header.Set("Content-Type", "text/html")
		header.Set("Content-Security-Policy", s.policy())
		_, _ = fmt.Fprintf(w, `<!doctype html><html lang="en"><title>page</title><link rel="icon" href="data:,">
			<script src="/clock.js"></script><script type="module" src="/%d.js"></script>%s`, number, s.html[number])
	default:
		http.NotFound(w, r)
	}
}

// policy returns a Content-Security-Policy that allows what lastseen.js needs.
func (s *scripted) policy() string {
	return fmt.Sprintf("default-src 'none'; script-src 'self' %[1]s; connect-src 'self' %[1]s %[2]s; img-src data:",
		s.url, strings.Replace(s.url, "http", "ws", 1))
}

// scans reports whether a text has a format, and reads the number in it.
func scans(text, format string, number *int) bool {
	n, err := fmt.Sscanf(text, format, number)
	return n == 1 && err == nil && fmt.Sprintf(format, *number) == text
}

// addPage returns the URL of a new page with a body and a module, which has connect, Socket, url, namespace, token and
// show. What show was called with is in statuses, presences and painted. The test moves the page's clock by passed and
// wrong.
func (s *scripted) addPage(html, script string) string {
	s.scriptMu.Lock()
	defer s.scriptMu.Unlock()
	s.html, s.scripts = append(s.html, html), append(s.scripts, script)
	return fmt.Sprintf("%s/%d", s.pages, len(s.html)-1)
}

// load opens a new page in a tab, and waits until its module has run. See [scripted.addPage].
func (s *scripted) load(t *testing.T, b *browser, html, script string) {
	t.Helper()
	b.Do(t, chromedp.Navigate(s.addPage(html, script)), until("window.loaded"))
}

// open is load in a new browser.
func (s *scripted) open(t *testing.T, html, script string) *browser {
	t.Helper()
	b := testbrowser.Open(t, s.pages)
	s.load(t, b, html, script)
	return b
}

// complaints returns the problems of a page, except requests to the server.
func (s *scripted) complaints(b *browser) (all []string) {
	for _, problem := range b.Seen() {
		if !strings.HasPrefix(problem, "request to "+s.url+"/") {
			all = append(all, problem)
		}
	}
	return all
}

// pass lets time pass, on the server, whose clock the test moves, and in the page.
func (s *scripted) pass(d time.Duration) step {
	return func(ctx context.Context, target *chromedp.Target) (chromedp.Void, error) {
		s.faults.mu.Lock()
		s.faults.now += lastseen.Instant(d.Milliseconds())
		s.faults.mu.Unlock()
		_, err := chromedp.Evaluate[int](fmt.Sprintf("passed += %d", d.Milliseconds()))(ctx, target)
		return chromedp.Void{}, err
	}
}

// pingedAgo records that a user was here some time ago.
func (s *scripted) pingedAgo(t *testing.T, user string, ago time.Duration) {
	t.Helper()
	now, err := s.Now(t.Context())
	require.NoError(t, err)
	_, err = s.Ping(t.Context(), "chat", []store.PresenceEvent{{User: user, At: now.Add(-ago)}})
	require.NoError(t, err)
}

func (s *scripted) leaves(t *testing.T, user string) {
	t.Helper()
	now, err := s.Now(t.Context())
	require.NoError(t, err)
	_, err = s.Leave(t.Context(), "chat", []store.PresenceEvent{{User: user, At: now}})
	require.NoError(t, err)
}

func shows(user, status string) step {
	return until(fmt.Sprintf("statuses[%q] == %q", user, status))
}

// clock returns the time of the store's clock, if the test moves that.
func (f *faultyStore) clock() lastseen.Instant {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.now
}
