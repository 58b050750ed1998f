package api

import (
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestDrain: a server that drains is alive but not ready, serves requests, and ends their connections.
func TestDrain(t *testing.T) {
	w := newTestServer(t, fileStore(t))
	const ping = "/v1/namespaces/chat/users/alice/ping"
	closes := func(method, path string) bool {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), method, w.url+path, http.NoBody)
		require.NoError(t, err)
		response, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.Equal(t, http.StatusOK, response.StatusCode)
		return response.Close
	}
	require.False(t, closes(http.MethodPost, ping))
	require.False(t, closes(http.MethodGet, "/readyz"))

	w.config.Shared.Drain()
	w.reload(func(*Config) {})
	for range 2 { // each on its own connection
		require.True(t, closes(http.MethodPost, ping))
	}
	require.True(t, closes(http.MethodGet, "/healthz"))
	r := w.sendTo(http.MethodGet, "/readyz", "")
	require.Equal(t, http.StatusServiceUnavailable, r.status)
	require.Equal(t, "shutting_down", r.json(t)["code"])
	require.NotEmpty(t, r.header.Get("Retry-After"))
	require.NotContains(t, w.log.String(), "level=ERROR", "it is no failure")
}

// TestDrainHTTP2: HTTP/2 clients connect again, too.
func TestDrainHTTP2(t *testing.T) {
	w := newTestServer(t, fileStore(t))
	server := httptest.NewUnstartedServer(w)
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	reuses := func() (reused bool) {
		trace := httptrace.ClientTrace{GotConn: func(c httptrace.GotConnInfo) { reused = c.Reused }}
		request, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), &trace), http.MethodGet,
			server.URL+"/healthz", http.NoBody)
		require.NoError(t, err)
		response, err := server.Client().Do(request)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.Equal(t, 2, response.ProtoMajor)
		return reused
	}
	require.False(t, reuses())
	require.True(t, reuses())
	w.config.Shared.Drain()
	require.Eventually(t, func() bool { return !reuses() }, time.Minute, time.Millisecond)
}
