package api

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api/problem"
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
	t.Parallel()
	w := newTestServer(t, fileStore(t), allowing(app, local))
	const user, ping = "/v1/namespaces/chat/users/alice", "/v1/namespaces/chat/users/alice/ping"
	for _, origin := range []string{app, local} {
		asked := w.preflight(ping, origin).is(t, http.StatusNoContent)
		for name, want := range map[string]string{
			"Allow-Origin": origin, "Allow-Methods": "GET,HEAD,POST,PUT,PATCH,DELETE", "Max-Age": "7200", "Allow-Credentials": "",
			"Allow-Headers": "Accept,Authorization,baggage,Content-Type,Idempotency-Key,If-None-Match,Last-Event-ID,Prefer," +
				"traceparent,tracestate,X-Request-Id",
		} {
			require.Equal(t, want, asked.header.Get("Access-Control-"+name))
		}
		pinged := w.sendTo("POST", ping, "", "Origin: "+origin).is(t, http.StatusOK)
		require.Equal(t, origin, pinged.header.Get("Access-Control-Allow-Origin"))
		require.Equal(t, []string{"Origin"}, pinged.header.Values("Vary"))
		require.Subset(t, strings.Split(pinged.header.Get("Access-Control-Expose-Headers"), ","), []string{
			"Lastseen-Ping-After-Ms", "Preference-Applied", "Retry-After", "RateLimit", "RateLimit-Policy",
			"X-Request-Id", "ETag", "WWW-Authenticate",
		})
	}
	plain := w.sendTo("GET", user, "")
	require.Equal(t, []string{"Origin"}, plain.header.Values("Vary"), "or a cache would give a browser a response without the headers")
	require.Empty(t, plain.header.Get("Access-Control-Allow-Origin"))
	style := w.sendTo("GET", "/docs/swagger-ui.css", "", "Origin: "+app)
	require.ElementsMatch(t, []string{"Origin", "Accept-Encoding"}, style.header.Values("Vary"))
	for _, origin := range []string{
		"null", "https://evil.example", "http://app.example.com", "https://app.example.com:8443",
		"https://app.example.com.evil.example", "https://xapp.example.com", "https://app.example.com/",
		"HTTPS://APP.EXAMPLE.COM", "*", "https://app.example.com,http://localhost:3000",
		"https://app.example.com https://evil.example", "http://localhost:3001", strings.Repeat("x", 5000),
	} {
		requireNoCORS(t, w.preflight(ping, origin), origin)
		requireNoCORS(t, w.sendTo("GET", user, "", "Origin: "+origin), origin)
	}
	w.reload(allowing("*"))
	for _, origin := range []string{app, "https://evil.example", "null"} {
		require.Equal(t, origin, w.preflight("/v1/namespaces/chat/pings",
			origin).header.Get("Access-Control-Allow-Origin"))
		got := w.sendTo("GET", "/v1/namespaces/chat", "", "Origin: "+origin)
		require.Equal(t, origin, got.header.Get("Access-Control-Allow-Origin"))
		require.Empty(t, got.header.Get("Access-Control-Allow-Credentials"))
	}
}

// TestCORSIsOffByDefault checks that, without CORS, OPTIONS requests get the usual response.
func TestCORSIsOffByDefault(t *testing.T) {
	w := newTestServer(t, fileStore(t))
	asked := w.preflight("/v1/namespaces/chat", app).is(t, http.StatusNoContent)
	allowed := asked.header.Get("Allow")
	require.Contains(t, allowed, "GET")
	for _, r := range []testResponse{asked, w.sendTo("GET", "/v1/namespaces/chat", "", "Origin: "+app)} {
		for name := range r.header {
			require.NotContains(t, name, "Access-Control-")
		}
		require.Empty(t, r.header.Get("Vary"))
	}
	w.reload(allowing(app))
	for _, headers := range [][]string{nil, {"Origin: " + app}, {"Access-Control-Request-Method: GET"}} {
		require.Equal(t, allowed, w.sendTo("OPTIONS", "/v1/namespaces/chat", "", headers...).header.Get("Allow"))
	}
	w.sendTo("OPTIONS", "/v1/nothing", "").is(t, http.StatusNotFound)
}

func requireNoCORS(t *testing.T, r testResponse, origin string) {
	t.Helper()
	require.Less(t, r.status, 300, origin)
	for name := range r.header {
		require.NotContains(t, name, "Access-Control-", origin)
	}
	require.Contains(t, r.header.Values("Vary"), "Origin", origin)
}

// TestCORSOfErrors checks that scripts can read errors, including those that occur before routing.
func TestCORSOfErrors(t *testing.T) {
	w := newTestServer(t, fileStore(t), behindProxy, allowing(app))
	mallory, origin := from("203.0.113.66"), "Origin: "+app
	for _, path := range []string{"//users", "/chat/nothing", "/chat?what=is+this", "/.hidden"} {
		r := w.send("GET", path, "", origin)
		require.GreaterOrEqual(t, r.status, 400, path)
		require.Equal(t, app, r.header.Get("Access-Control-Allow-Origin"), path)
		w.preflight("/v1/namespaces"+path, app).is(t, http.StatusNoContent, "what is wrong is told after it")
	}
	w.spend(mallory)
	r := w.send("GET", "/chat", "", mallory, origin).is(t, http.StatusTooManyRequests)
	require.Equal(t, app, r.header.Get("Access-Control-Allow-Origin"))
	asked := w.send("OPTIONS", "/chat", "", mallory, origin, "Access-Control-Request-Method: GET")
	require.Equal(t, app, asked.header.Get("Access-Control-Allow-Origin"), "nobody is counted by what a browser asks")
}

// preflight sends the request that a browser sends before a script's ping.
func (w *testServer) preflight(path, origin string) testResponse {
	return w.sendTo("OPTIONS", path, "", "Origin: "+origin, "Access-Control-Request-Method: POST",
		"Access-Control-Request-Headers: authorization,content-type,prefer")
}

// TestCORSPatterns checks that a star stands for one or more labels before a domain, or for any port of this
// machine, and for nothing else that an attacker could write.
func TestCORSPatterns(t *testing.T) {
	t.Parallel()
	w := newTestServer(t, fileStore(t), allowing("https://*.example.com", "https://*.example.org:8443",
		"http://localhost:*", "http://[::1]:*"))
	const user = "/v1/namespaces/chat/users/alice"
	for _, origin := range []string{
		"https://app.example.com", "https://a.b.example.com", "https://xn--caf-dma.example.com",
		"https://a-1.example.com", "https://a.example.org:8443", "http://localhost:3000", "http://localhost:1",
		"http://localhost:65535", "http://localhost", "http://[::1]:5173",
	} {
		require.Equal(t, origin, w.preflight(user+"/ping", origin).header.Get("Access-Control-Allow-Origin"), origin)
		got := w.sendTo("GET", user, "", "Origin: "+origin)
		require.Equal(t, origin, got.header.Get("Access-Control-Allow-Origin"), origin)
		require.Equal(t, []string{"Origin"}, got.header.Values("Vary"), origin)
	}
	for _, origin := range []string{
		"https://example.com", "http://app.example.com", "https://app.example.com:8443", "https://appexample.com",
		"https://evil.example/.example.com", "https://evil.example#.example.com", "https://evil.example?.example.com",
		"https://evil.example:443.example.com", "https://evil@app.example.com", "https://.example.com",
		"https://a..example.com", "https://-.example.com", "https://A.example.com",
		"https://app.example.com.evil.example", "https://app.example.com.", "https://a\\.example.com",
		"https://a%2e.example.com", "https://*.example.com", "https://a .example.com", "https://a\tb.example.com",
		"https://é.example.com", "https://a.example.org", "https://a.example.org:84430", "https://localhost:3000",
		"http://localhost:", "http://localhost:0", "http://localhost:80", "http://localhost:08080",
		"http://localhost:65536", "http://localhost:99999999999999999999", "http://localhost:+1",
		"http://localhost:3000/", "http://localhost:3000.evil.example", "http://localhost.evil.example:3000",
		"http://evil.localhost:3000", "http://localhost:*", "http://[::1]:x", "http://[::2]:3000", "null",
	} {
		requireNoCORS(t, w.preflight(user+"/ping", origin), origin)
		requireNoCORS(t, w.sendTo("GET", user, "", "Origin: "+origin), origin)
	}
}

// crossSite returns the headers that browsers send with requests of pages of other sites.
func crossSite(origin string) []string {
	return []string{"Origin: " + origin, "Sec-Fetch-Site: cross-site"}
}

// TestCrossOriginWrites checks that a page of another origin cannot write to a server without authentication, even
// without reading the response, unless CORS allows its origin. Other clients are not affected.
func TestCrossOriginWrites(t *testing.T) {
	w := newTestServer(t, fileStore(t), allowing(app, "https://*.example.org"))
	const evil = "https://evil.example"
	own := "http://" + strings.TrimPrefix(w.url, "http://")
	for _, c := range []struct {
		name    string
		headers []string
		want    int
	}{
		{"curl -d", []string{"Content-Type: application/x-www-form-urlencoded"}, 200},
		{"an old library", nil, 200},
		{"the pages of this server", []string{"Origin: " + own, "Sec-Fetch-Site: same-origin"}, 200},
		{"the same in an old browser", []string{"Origin: " + own}, 200},
		{"typed by the user", []string{"Sec-Fetch-Site: none"}, 200},
		{"an allowed origin", crossSite(app), 200},
		{"one that fits a pattern", crossSite("https://a.example.org"), 200},
		{"a form or a beacon of another site", append(crossSite(evil), "Content-Type: text/plain"), 403},
		{"another port of this machine", []string{"Origin: http://localhost:1", "Sec-Fetch-Site: same-site"}, 403},
		{"a sandboxed frame", crossSite("null"), 403},
		{"without an origin", []string{"Sec-Fetch-Site: cross-site"}, 403},
		{"an old browser", []string{"Origin: " + evil}, 403},
		{"a page that names another origin, too", append(crossSite(evil), "Origin: "+app), 403},
	} {
		r := w.send("POST", "/chat/pings", `{"pings":[{"user":"eve"}]}`, c.headers...)
		require.Equal(t, c.want, r.status, "%s: %s", c.name, r.body)
		w.send("GET", "/chat", "", c.headers...).is(t, http.StatusOK, c.name, ": reading is up to CORS")
		if c.want == http.StatusForbidden {
			refusal := w.fails(problem.Forbidden, "POST", "/chat/users/alice/ping", "", c.headers...)
			require.Contains(t, refusal["detail"], "--cors-origins", c.name)
			w.fails(problem.Forbidden, "DELETE", "/chat?confirm=chat", "", c.headers...)
		}
	}
}

// TestCrossOriginWritesWithCredentials checks that only the credentials decide if there are any: a browser does not
// add them by itself.
func TestCrossOriginWritesWithCredentials(t *testing.T) {
	w, headers := newGuardedServer(t)
	for name, want := range map[string]int{"ping": 204, "alice": 200, "nobody": 401} {
		h := crossSite("https://evil.example")
		if headers[name] != "" {
			h = append(h, "Authorization: "+headers[name])
		}
		w.send("POST", "/chat/users/alice/ping", "", h...).is(t, want, name)
	}
	body := fmt.Sprintf(`{"token":%q}`, token(t, "alice", testNow+1000, "chat"))
	w.send("POST", "/chat/users/alice/leave", body,
		crossSite("https://evil.example")...).is(t, http.StatusOK, "a beacon")
}
