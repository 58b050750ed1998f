package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api"
	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/filestore"
	"github.com/lastseen/lastseen/store/storetest"
)

// connected is a site whose pages run the code of docs/connections.md, and the server that they connect to.
type connected struct {
	store.Store
	pages  string // URL of a page; its query names the user
	config api.Config

	mu      sync.Mutex
	api     http.Handler
	issue   func() string // returns a token for a page; nil if pages need none
	issued  int           // tokens
	refuse  bool          // connections get 503
	sockets []net.Conn
	asked   int // requests to connect
}

// connectedScript is what a page adds to the guide's code.
const connectedScript = `<!doctype html><title>page</title><link rel="icon" href="data:,">
<span data-user="alice"></span><span data-user="bob"></span>
<script>
let end, painted = []
const issued = () => fetch("/token").then(response => response.text())
Object.defineProperty(window, "token", { get: issued })
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
	c := &connected{Store: file}
	pages := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/token" {
			_, _ = io.WriteString(w, c.token())
			return
		}
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, html)
	}))
	t.Cleanup(pages.Close)
	c.pages = pages.URL
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
	config := configWithFeeds(t, c.Store, defaultThresholds())
	config.Connections, config.CORSOrigins = runRegistry(t, c.Store, defaultThresholds()), []string{origin}
	config.WebSockets = api.WebSocketLimits{Grace: grace, Drain: 100 * time.Millisecond}
	return config
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

// token returns a token for a page.
func (c *connected) token() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.issued++
	if c.issue == nil {
		return ""
	}
	return c.issue()
}

// tokens returns how many tokens pages have asked for.
func (c *connected) tokens() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.issued
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

// issueTokens lets the server require tokens, which pages get, of a user. They are valid for some time.
func (c *connected) issueTokens(t *testing.T, user string, validity time.Duration) {
	t.Helper()
	secret := []byte(strings.Repeat("s", 32))
	authenticator, err := auth.New(auth.Config{Tokens: &auth.Tokens{
		Secret: secret, Issuer: "https://id.example.com", Audience: "lastseen",
	}}, auth.Options{})
	require.NoError(t, err)
	c.config.Auth = authenticator
	c.mu.Lock()
	defer c.mu.Unlock()
	c.api = api.New(c.config)
	c.issue = func() string {
		return token(t, jwt.SigningMethodHS256, secret, map[string]any{"alg": "HS256"}, claims(map[string]any{
			"sub": user, "namespaces": "chat", "exp": time.Now().Add(validity).Unix(),
		}))
	}
}
