// Package apitest has the servers of the tests of package api. Its package kit has what needs no server.
package apitest

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api"
	"github.com/lastseen/lastseen/api/apitest/kit"
	"github.com/lastseen/lastseen/api/limit"
	"github.com/lastseen/lastseen/api/live/webhooks"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/store"
)

// Server is a running server on a real store.
type Server struct {
	T     *testing.T
	URL   string
	Store *kit.ClockStore
	Log   *kit.Log
	*kit.Contract
	Config  api.Config
	Handler atomic.Pointer[http.Handler]
}

// ServeHTTP serves a request with the current handler; see [http.Handler].
func (w *Server) ServeHTTP(response http.ResponseWriter, request *http.Request) {
	(*w.Handler.Load()).ServeHTTP(response, request)
}

// Reload replaces the handler by one with a changed configuration. What handlers share is kept.
func (w *Server) Reload(change func(*api.Config)) {
	change(&w.Config)
	handler := api.New(w.Config)
	w.Handler.Store(&handler)
}

// NewServer serves a store over HTTP without authentication. The changes apply to its configuration.
func NewServer(t *testing.T, s store.Store, changes ...func(*api.Config)) *Server {
	t.Helper()
	w := &Server{T: t, Store: kit.NewClockStore(s), Log: &kit.Log{}, Contract: kit.NewContract(t)}
	w.Config = api.Config{
		Store: w.Store, Settings: Settings(), Version: api.Version{Version: "v0.0.0-test", Go: "go"},
		Logger: slog.New(slog.NewTextHandler(w.Log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Random: func() float64 { return 0.5 }, Now: kit.ClockFrom(kit.Now), Webhooks: newWebhooks(w.Store),
	}
	w.Config.Settings.Shards, w.Config.Settings.ShowCalls = 1, true
	for _, change := range changes {
		change(&w.Config)
	}
	if w.Config.Feeds == nil {
		w.Config.Feeds = NewFeeds(t, s, w.Config.Settings, 0)
	}
	w.Reload(func(c *api.Config) {
		if c.Shared == nil {
			c.Shared = api.NewShared(*c)
		}
	})
	server := httptest.NewServer(w.Check(w))
	t.Cleanup(server.Close)
	w.URL = server.URL
	return w
}

// newWebhooks returns a webhook, app, whose receiver accepts everything. Nothing is delivered to it but test events.
func newWebhooks(s store.Store) *webhooks.Manager {
	app := []*webhooks.Webhook{{Name: "app", Entry: "1", URL: &url.URL{Scheme: "http", Host: "receiver"}}}
	return webhooks.New(webhooks.Options{
		Store: s, Webhooks: func() []*webhooks.Webhook { return app },
		Transport: func(*webhooks.Webhook) http.RoundTripper { return accepting{} },
	})
}

// accepting is a transport whose requests are all accepted.
type accepting struct{}

// RoundTrip implements [http.RoundTripper].
func (accepting) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusNoContent, Body: http.NoBody}, nil
}

// Send sends a request below /v1/namespaces; headers are "Name: value".
func (w *Server) Send(method, path, body string, headers ...string) kit.Response {
	w.T.Helper()
	return w.SendTo(method, "/v1/namespaces"+path, body, headers...)
}

// SendTo sends a request; headers are "Name: value".
func (w *Server) SendTo(method, path, body string, headers ...string) kit.Response {
	w.T.Helper()
	r, err := w.trySend(method, path, body, headers...)
	require.NoError(w.T, err)
	return r
}

func (w *Server) trySend(method, path, body string, headers ...string) (kit.Response, error) {
	request, err := http.NewRequestWithContext(context.Background(), method, w.URL+path, strings.NewReader(body))
	if err != nil {
		return kit.Response{}, err
	}
	kit.AddHeaders(request.Header, headers)
	response, err := http.DefaultClient.Do(request) //nolint:bodyclose // TryResponseOf does it
	if err != nil {
		return kit.Response{}, err
	}
	return kit.TryResponseOf(response)
}

// Later sends a request below /v1/namespaces on another goroutine, and returns where its response comes. An error is
// the body.
func (w *Server) Later(method, path, body string, headers ...string) <-chan kit.Response {
	responded := make(chan kit.Response, 1)
	go func() {
		r, err := w.trySend(method, "/v1/namespaces"+path, body, headers...)
		if err != nil {
			r.Body = err.Error()
		}
		responded <- r
	}()
	return responded
}

// Get sends a request below /v1/namespaces that must succeed, and returns the body of the response.
func (w *Server) Get(path string, headers ...string) map[string]any {
	w.T.Helper()
	return w.Send("GET", path, "", headers...).Is(w.T, http.StatusOK).JSON(w.T)
}

// Post is [get] with the method POST and a body.
func (w *Server) Post(path, body string, headers ...string) map[string]any {
	w.T.Helper()
	return w.Send("POST", path, body, headers...).Is(w.T, http.StatusOK).JSON(w.T)
}

// Write sends a request that changes something and has a response without a body.
func (w *Server) Write(method, path, body string) {
	w.T.Helper()
	r := w.Send(method, path, body).Is(w.T, http.StatusNoContent)
	require.Empty(w.T, r.Body)
	require.Equal(w.T, "no-store", r.Header.Get("Cache-Control"))
}

// Say sets alice's availability, and returns the response.
func (w *Server) Say(body string) map[string]any {
	w.T.Helper()
	return w.Send("PUT", kit.AliceAvailability, body).Is(w.T, http.StatusOK).JSON(w.T)
}

// Fails sends a request that has to fail with a code, and returns the problem.
func (w *Server) Fails(want problem.Code, method, path, body string, headers ...string) map[string]any {
	w.T.Helper()
	r := w.Send(method, path, body, headers...)
	what := fmt.Sprintf("%s %s %.80s: %s", method, path, body, r.Body)
	require.Equal(w.T, want.Type().Status, r.Status, what)
	require.Equal(w.T, "application/problem+json", r.Header.Get("Content-Type"), what)
	p := r.JSON(w.T)
	require.Equal(w.T, string(want), p["code"], what)
	require.Equal(w.T, "/docs/errors#"+string(want), p["type"], what)
	require.EqualValues(w.T, r.Status, p["status"], what)
	require.NotEmpty(w.T, p["detail"], what)
	require.Equal(w.T, r.Header.Get("X-Request-Id"), p["request_id"], what)
	return p
}

// Total returns the number of users in a namespace.
func (w *Server) Total(namespace string) int {
	w.T.Helper()
	return int(w.Get("/" + namespace + "/counts")["total"].(float64))
}

// Spend sends requests until the caller has used up its limit.
func (w *Server) Spend(headers ...string) {
	w.T.Helper()
	for range limit.Burst(1) {
		w.Send("GET", "/chat", "", headers...).Is(w.T, http.StatusOK)
	}
}
