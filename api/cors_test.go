package api

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	app   = "https://app.example.com"
	local = "http://localhost:3000"
)

// allowing sets the allowed origins.
func allowing(origins ...string) func(*Config) {
	return func(c *Config) { c.CORSOrigins = origins }
}

func TestCORS(t *testing.T) {
	w := newTestServer(t, fileStore(t), allowing(app, local))
	const ping = "/v1/namespaces/chat/users/alice/ping"
	for _, origin := range []string{app, local} {
		asked := w.preflight(ping, origin)
		require.Equal(t, http.StatusNoContent, asked.status)
		require.Equal(t, origin, asked.header.Get("Access-Control-Allow-Origin"))
		require.Equal(t, "GET,HEAD,POST,PUT,PATCH,DELETE", asked.header.Get("Access-Control-Allow-Methods"))
		require.Equal(t, "Accept,Authorization,Content-Type,Idempotency-Key,If-None-Match,Last-Event-ID,Prefer,X-Request-Id",
			asked.header.Get("Access-Control-Allow-Headers"))
		require.Equal(t, "7200", asked.header.Get("Access-Control-Max-Age"))
		require.Empty(t, asked.header.Get("Access-Control-Allow-Credentials"))

		pinged := w.sendTo(http.MethodPost, ping, "", "Origin: "+origin)
		require.Equal(t, http.StatusOK, pinged.status)
		require.Equal(t, origin, pinged.header.Get("Access-Control-Allow-Origin"))
		require.Equal(t, []string{"Origin"}, pinged.header.Values("Vary"))
		for _, name := range []string{
			"Lastseen-Ping-After-Ms", "Preference-Applied", "Retry-After", "RateLimit", "RateLimit-Policy",
			"X-Request-Id", "ETag", "WWW-Authenticate",
		} {
			require.Contains(t, strings.Split(pinged.header.Get("Access-Control-Expose-Headers"), ","), name)
		}
	}
	plain := w.sendTo(http.MethodGet, "/v1/namespaces/chat/users/alice", "")
	require.Equal(t, []string{"Origin"}, plain.header.Values("Vary"),
		"a cache must not give a browser an answer without the headers")
	require.Empty(t, plain.header.Get("Access-Control-Allow-Origin"))
}

// TestCORSRefuses checks that a script of any other origin cannot read a response.
func TestCORSRefuses(t *testing.T) {
	t.Parallel()
	w := newTestServer(t, fileStore(t), allowing(app, local))
	const user = "/v1/namespaces/chat/users/alice"
	for _, origin := range []string{
		"null", "https://evil.example", "http://app.example.com", "https://app.example.com:8443",
		"https://app.example.com.evil.example",
		"https://xapp.example.com", "https://app.example.com/", "HTTPS://APP.EXAMPLE.COM", "*",
		"https://app.example.com,http://localhost:3000",
		"https://app.example.com https://evil.example", "http://localhost:3001", strings.Repeat("x", 5000),
	} {
		requireNoCORS(t, w.preflight(user+"/ping", origin), origin)
		requireNoCORS(t, w.sendTo(http.MethodGet, user, "", "Origin: "+origin), origin)
	}
}

func requireNoCORS(t *testing.T, r testResponse, origin string) {
	t.Helper()
	require.Less(t, r.status, 300, origin)
	for name := range r.header {
		require.NotContains(t, name, "Access-Control-", origin)
	}
	require.Contains(t, r.header.Values("Vary"), "Origin", origin)
}

// TestCORSAnyOrigin checks that a star allows every origin.
func TestCORSAnyOrigin(t *testing.T) {
	w := newTestServer(t, fileStore(t), allowing("*"))
	for _, origin := range []string{app, "https://evil.example", "null"} {
		require.Equal(t, origin, w.preflight("/v1/namespaces/chat/pings",
			origin).header.Get("Access-Control-Allow-Origin"))
		got := w.sendTo(http.MethodGet, "/v1/namespaces/chat", "", "Origin: "+origin)
		require.Equal(t, origin, got.header.Get("Access-Control-Allow-Origin"))
		require.Empty(t, got.header.Get("Access-Control-Allow-Credentials"))
	}
}

// TestCORSOfErrors checks that scripts can read errors, including those that occur before routing.
func TestCORSOfErrors(t *testing.T) {
	w := newTestServer(t, fileStore(t), behindProxy, allowing(app))
	mallory, origin := from("203.0.113.66"), "Origin: "+app
	for _, path := range []string{"//users", "/chat/nothing", "/chat?what=is+this", "/.hidden"} {
		r := w.send(http.MethodGet, path, "", origin)
		require.GreaterOrEqual(t, r.status, 400, path)
		require.Equal(t, app, r.header.Get("Access-Control-Allow-Origin"), path)
		require.Equal(t, http.StatusNoContent, w.preflight("/v1/namespaces"+path, app).status,
			"what is wrong is told after it")
	}
	w.spend(mallory)
	r := w.send(http.MethodGet, "/chat", "", mallory, origin)
	require.Equal(t, http.StatusTooManyRequests, r.status)
	require.Equal(t, app, r.header.Get("Access-Control-Allow-Origin"))
	asked := w.send(http.MethodOptions, "/chat", "", mallory, origin, "Access-Control-Request-Method: GET")
	require.Equal(t, app, asked.header.Get("Access-Control-Allow-Origin"), "nobody is counted by what a browser asks")
}

// TestCORSIsOffByDefault checks that, without CORS, OPTIONS requests get the usual response.
func TestCORSIsOffByDefault(t *testing.T) {
	off, on := newTestServer(t, fileStore(t)), newTestServer(t, fileStore(t), allowing(app))
	asked := off.preflight("/v1/namespaces/chat", app)
	require.Equal(t, http.StatusNoContent, asked.status)
	require.Contains(t, asked.header.Get("Allow"), "GET")
	got := off.sendTo(http.MethodGet, "/v1/namespaces/chat", "", "Origin: "+app)
	for _, r := range []testResponse{asked, got} {
		for name := range r.header {
			require.NotContains(t, name, "Access-Control-")
		}
		require.Empty(t, r.header.Get("Vary"))
	}
	for _, headers := range [][]string{nil, {"Origin: " + app}, {"Access-Control-Request-Method: GET"}} {
		options := on.sendTo(http.MethodOptions, "/v1/namespaces/chat", "", headers...)
		require.Equal(t, off.sendTo(http.MethodOptions, "/v1/namespaces/chat", "").header.Get("Allow"),
			options.header.Get("Allow"))
	}
	require.Equal(t, http.StatusNotFound, on.sendTo(http.MethodOptions, "/v1/nothing", "").status)
}

// TestCORSKeepsVary checks that CORS adds to the Vary header and does not replace it.
func TestCORSKeepsVary(t *testing.T) {
	w := newTestServer(t, fileStore(t), allowing(app))
	r := w.sendTo(http.MethodGet, "/docs/swagger-ui.css", "", "Origin: "+app)
	require.ElementsMatch(t, []string{"Origin", "Accept-Encoding"}, r.header.Values("Vary"))
}

// TestCORSReloads checks that a reload changes the origins.
func TestCORSReloads(t *testing.T) {
	w := newTestServer(t, fileStore(t))
	get := func() string {
		return w.sendTo(http.MethodGet, "/v1/namespaces/chat", "",
			"Origin: "+app).header.Get("Access-Control-Allow-Origin")
	}
	require.Empty(t, get())
	w.reload(allowing(local, app))
	require.Equal(t, app, get())
	w.reload(allowing(local))
	require.Empty(t, get())
}

// preflight sends the request that a browser sends before a script's ping.
func (w *testServer) preflight(path, origin string) testResponse {
	return w.sendTo(http.MethodOptions, path, "", "Origin: "+origin, "Access-Control-Request-Method: POST",
		"Access-Control-Request-Headers: authorization,content-type,prefer")
}
