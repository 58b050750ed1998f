package browser

import (
	"bytes"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api"
	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/internal/testserver"
	"github.com/lastseen/lastseen/store"
)

// connected is what [scripted] knows of its server's connections, tokens and store.
type connected struct {
	store.Store
	pages  string // origin of the site
	config api.Config

	mu      sync.Mutex
	api     http.Handler
	issue   func() string // returns a token for a page; nil if pages need none
	sockets []net.Conn
	parts   int // frames of a batch that are sent until the connection is cut after one that is not the last; 0: never
	cuts    int // how often that happened
}

func (c *connected) serve(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	handler := c.api
	c.mu.Unlock()
	handler.ServeHTTP(w, r)
}

// trackedListener remembers the connections that it accepts, since no server knows those that became WebSockets.
type trackedListener struct {
	net.Listener
	c *connected
}

func (l *trackedListener) Accept() (net.Conn, error) {
	socket, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	l.c.sockets = append(l.c.sockets, socket)
	return &cutSocket{Conn: socket, c: l.c}, nil
}

// cutSocket is a connection that a test can cut within a batch of changes.
type cutSocket struct {
	net.Conn
	c *connected
}

// morePart is in each frame of a batch but the last one. Servers do not mask what they send.
var morePart = []byte(`"more":true}`)

// Write sends everything up to the part after which the test cuts the connection. Nothing is lost before it.
func (s *cutSocket) Write(b []byte) (int, error) {
	end, cut := s.c.cutAt(b)
	n, err := s.Conn.Write(b[:end])
	if err == nil && cut {
		_ = s.CloseWrite()
		err = net.ErrClosed
	}
	return n, err
}

// CloseWrite ends what the server sends.
func (s *cutSocket) CloseWrite() error { return s.Conn.(*net.TCPConn).CloseWrite() }

// cutAt returns how much is sent of what is written, and whether the connection ends there.
func (c *connected) cutAt(b []byte) (end int, cut bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.parts > 0 {
		at := bytes.Index(b[end:], morePart)
		if at < 0 {
			break
		}
		end += at + len(morePart)
		if c.parts--; c.parts > 0 {
			continue
		}
		c.cuts++
		if next := bytes.IndexByte(b[end:], 0x81); next >= 0 { // the next text message
			return end + next, true
		}
		return len(b), true
	}
	return len(b), false
}

// cutAfterPart cuts the connection after the nth frame that is followed by another part of its batch.
func (c *connected) cutAfterPart(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.parts = n
}

// untilCut waits until connections were cut within batches so many times.
func (c *connected) untilCut(t *testing.T, n int) {
	t.Helper()
	require.Eventually(t, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.cuts == n
	}, time.Minute, 10*time.Millisecond, "no batch came in parts")
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
	if c.issue == nil {
		return ""
	}
	return c.issue()
}

// devices returns how many devices of a user have not left, and how many have.
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

func (c *connected) untilDevices(t *testing.T, user string, live, gone int) {
	t.Helper()
	require.Eventually(t, func() bool {
		l, g := c.devices(t, user)
		return l == live && g == gone
	}, time.Minute, 10*time.Millisecond, "%s should have %d devices, and %d that are gone", user, live, gone)
}

// issueTokens lets the server require tokens, which pages get, of a user. They are valid for some time.
func (c *connected) issueTokens(t *testing.T, user string, validity time.Duration) {
	t.Helper()
	authenticator, err := auth.New(auth.Config{Tokens: &auth.Tokens{
		Secret: []byte(testserver.Secret), Issuer: "https://id.example.com", Audience: "lastseen",
	}}, auth.Options{})
	require.NoError(t, err)
	c.config.Auth = authenticator
	c.mu.Lock()
	defer c.mu.Unlock()
	c.api = api.New(c.config)
	c.issue = func() string {
		return testserver.UserToken(t, map[string]any{
			"sub": user, "namespaces": "chat", "exp": time.Now().Add(validity).Unix(),
		})
	}
}
