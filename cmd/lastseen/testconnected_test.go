package main

import (
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api"
	"github.com/lastseen/lastseen/api/auth"
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
}

// serve serves a request.
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
	if c.issue == nil {
		return ""
	}
	return c.issue()
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
