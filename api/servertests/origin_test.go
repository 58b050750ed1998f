package servertests

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api/apitest"
	"github.com/lastseen/lastseen/api/apitest/kit"
	"github.com/lastseen/lastseen/api/problem"
)

func TestCORS(t *testing.T) {
	t.Parallel()
	w := apitest.NewServer(t, kit.FileStore(t), apitest.Allowing(kit.AppOrigin, kit.LocalOrigin))
	const user, ping = "/v1/namespaces/chat/users/alice", "/v1/namespaces/chat/users/alice/ping"
	for _, origin := range []string{kit.AppOrigin, kit.LocalOrigin} {
		asked := preflight(w, ping, origin).Is(t, http.StatusNoContent)
		for name, want := range map[string]string{
			"Allow-Origin": origin, "Allow-Methods": "GET,HEAD,POST,PUT,PATCH,DELETE", "Max-Age": "7200", "Allow-Credentials": "",
			"Allow-Headers": "Accept,Authorization,baggage,Content-Type,Idempotency-Key,If-None-Match,Last-Event-ID,Prefer," +
				"traceparent,tracestate,X-Request-Id",
		} {
			require.Equal(t, want, asked.Header.Get("Access-Control-"+name))
		}
		pinged := w.SendTo("POST", ping, "", "Origin: "+origin).Is(t, http.StatusOK)
		require.Equal(t, origin, pinged.Header.Get("Access-Control-Allow-Origin"))
		require.Equal(t, []string{"Origin"}, pinged.Header.Values("Vary"))
		require.Subset(t, strings.Split(pinged.Header.Get("Access-Control-Expose-Headers"), ","), []string{
			"Lastseen-Ping-After-Ms", "Preference-Applied", "Retry-After", "RateLimit", "RateLimit-Policy",
			"X-Request-Id", "ETag", "WWW-Authenticate",
		})
	}
	plain := w.SendTo("GET", user, "")
	require.Equal(t, []string{"Origin"}, plain.Header.Values("Vary"), "or a cache would give a browser a response without the headers")
	require.Empty(t, plain.Header.Get("Access-Control-Allow-Origin"))
	style := w.SendTo("GET", "/docs/swagger-ui.css", "", "Origin: "+kit.AppOrigin)
	require.ElementsMatch(t, []string{"Origin", "Accept-Encoding"}, style.Header.Values("Vary"))
	for _, origin := range []string{
		"null", "https://evil.example", "http://app.example.com", "https://app.example.com:8443",
		"https://app.example.com.evil.example", "https://xapp.example.com", "https://app.example.com/",
		"HTTPS://APP.EXAMPLE.COM", "*", "https://app.example.com,http://localhost:3000",
		"https://app.example.com https://evil.example", "http://localhost:3001", strings.Repeat("x", 5000),
	} {
		requireNoCORS(t, preflight(w, ping, origin), origin)
		requireNoCORS(t, w.SendTo("GET", user, "", "Origin: "+origin), origin)
	}
	w.Reload(apitest.Allowing("*"))
	for _, origin := range []string{kit.AppOrigin, "https://evil.example", "null"} {
		require.Equal(t, origin, preflight(w, "/v1/namespaces/chat/pings",
			origin).Header.Get("Access-Control-Allow-Origin"))
		got := w.SendTo("GET", "/v1/namespaces/chat", "", "Origin: "+origin)
		require.Equal(t, origin, got.Header.Get("Access-Control-Allow-Origin"))
		require.Empty(t, got.Header.Get("Access-Control-Allow-Credentials"))
	}
}

// TestCORSIsOffByDefault checks that, without CORS, OPTIONS requests get the usual response.
func TestCORSIsOffByDefault(t *testing.T) {
	w := apitest.NewServer(t, kit.FileStore(t))
	asked := preflight(w, "/v1/namespaces/chat", kit.AppOrigin).Is(t, http.StatusNoContent)
	allowed := asked.Header.Get("Allow")
	require.Contains(t, allowed, "GET")
	for _, r := range []kit.Response{asked, w.SendTo("GET", "/v1/namespaces/chat", "", "Origin: "+kit.AppOrigin)} {
		for name := range r.Header {
			require.NotContains(t, name, "Access-Control-")
		}
		require.Empty(t, r.Header.Get("Vary"))
	}
	w.Reload(apitest.Allowing(kit.AppOrigin))
	for _, headers := range [][]string{nil, {"Origin: " + kit.AppOrigin}, {"Access-Control-Request-Method: GET"}} {
		require.Equal(t, allowed, w.SendTo("OPTIONS", "/v1/namespaces/chat", "", headers...).Header.Get("Allow"))
	}
	w.SendTo("OPTIONS", "/v1/nothing", "").Is(t, http.StatusNotFound)
}

func requireNoCORS(t *testing.T, r kit.Response, origin string) {
	t.Helper()
	require.Less(t, r.Status, 300, origin)
	for name := range r.Header {
		require.NotContains(t, name, "Access-Control-", origin)
	}
	require.Contains(t, r.Header.Values("Vary"), "Origin", origin)
}

// TestCORSOfErrors checks that scripts can read errors, including those that occur before routing.
func TestCORSOfErrors(t *testing.T) {
	w := apitest.NewServer(t, kit.FileStore(t), apitest.BehindProxy, apitest.Allowing(kit.AppOrigin))
	mallory, origin := kit.ForwardedFor("203.0.113.66"), "Origin: "+kit.AppOrigin
	for _, path := range []string{"//users", "/chat/nothing", "/chat?what=is+this", "/.hidden"} {
		r := w.Send("GET", path, "", origin)
		require.GreaterOrEqual(t, r.Status, 400, path)
		require.Equal(t, kit.AppOrigin, r.Header.Get("Access-Control-Allow-Origin"), path)
		preflight(w, "/v1/namespaces"+path, kit.AppOrigin).Is(t, http.StatusNoContent, "what is wrong is told after it")
	}
	w.Spend(mallory)
	r := w.Send("GET", "/chat", "", mallory, origin).Is(t, http.StatusTooManyRequests)
	require.Equal(t, kit.AppOrigin, r.Header.Get("Access-Control-Allow-Origin"))
	asked := w.Send("OPTIONS", "/chat", "", mallory, origin, "Access-Control-Request-Method: GET")
	require.Equal(t, kit.AppOrigin, asked.Header.Get("Access-Control-Allow-Origin"), "nobody is counted by what a browser asks")
}

// preflight sends the request that a browser sends before a script's ping.
func preflight(w *apitest.Server, path, origin string) kit.Response {
	return w.SendTo("OPTIONS", path, "", "Origin: "+origin, "Access-Control-Request-Method: POST",
		"Access-Control-Request-Headers: authorization,content-type,prefer")
}

// TestCORSPatterns checks that a star stands for one or more labels before a domain, or for any port of this
// machine, and for nothing else that an attacker could write.
func TestCORSPatterns(t *testing.T) {
	t.Parallel()
	w := apitest.NewServer(t, kit.FileStore(t), apitest.Allowing("https://*.example.com", "https://*.example.org:8443",
		"http://localhost:*", "http://[::1]:*"))
	const user = "/v1/namespaces/chat/users/alice"
	for _, origin := range []string{
		"https://app.example.com", "https://a.b.example.com", "https://xn--caf-dma.example.com",
		"https://a-1.example.com", "https://a.example.org:8443", "http://localhost:3000", "http://localhost:1",
		"http://localhost:65535", "http://localhost", "http://[::1]:5173",
	} {
		require.Equal(t, origin, preflight(w, user+"/ping", origin).Header.Get("Access-Control-Allow-Origin"), origin)
		got := w.SendTo("GET", user, "", "Origin: "+origin)
		require.Equal(t, origin, got.Header.Get("Access-Control-Allow-Origin"), origin)
		require.Equal(t, []string{"Origin"}, got.Header.Values("Vary"), origin)
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
		requireNoCORS(t, preflight(w, user+"/ping", origin), origin)
		requireNoCORS(t, w.SendTo("GET", user, "", "Origin: "+origin), origin)
	}
}

// TestCrossOriginWrites checks that a page of another origin cannot write to a server without authentication, even
// without reading the response, unless CORS allows its origin. Other clients are not affected.
func TestCrossOriginWrites(t *testing.T) {
	w := apitest.NewServer(t, kit.FileStore(t), apitest.Allowing(kit.AppOrigin, "https://*.example.org"))
	const evil = "https://evil.example"
	own := "http://" + strings.TrimPrefix(w.URL, "http://")
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
		{"an allowed origin", kit.CrossSite(kit.AppOrigin), 200},
		{"one that fits a pattern", kit.CrossSite("https://a.example.org"), 200},
		{"a form or a beacon of another site", append(kit.CrossSite(evil), "Content-Type: text/plain"), 403},
		{"another port of this machine", []string{"Origin: http://localhost:1", "Sec-Fetch-Site: same-site"}, 403},
		{"a sandboxed frame", kit.CrossSite("null"), 403},
		{"without an origin", []string{"Sec-Fetch-Site: cross-site"}, 403},
		{"an old browser", []string{"Origin: " + evil}, 403},
		{"a page that names another origin, too", append(kit.CrossSite(evil), "Origin: "+kit.AppOrigin), 403},
	} {
		r := w.Send("POST", "/chat/pings", `{"pings":[{"user":"eve"}]}`, c.headers...)
		require.Equal(t, c.want, r.Status, "%s: %s", c.name, r.Body)
		w.Send("GET", "/chat", "", c.headers...).Is(t, http.StatusOK, c.name, ": reading is up to CORS")
		if c.want == http.StatusForbidden {
			refusal := w.Fails(problem.Forbidden, "POST", "/chat/users/alice/ping", "", c.headers...)
			require.Contains(t, refusal["detail"], "--cors-origins", c.name)
			w.Fails(problem.Forbidden, "DELETE", "/chat?confirm=chat", "", c.headers...)
		}
	}
}

// TestCrossOriginWritesWithCredentials checks that only the credentials decide if there are any: a browser does not
// add them by itself.
func TestCrossOriginWritesWithCredentials(t *testing.T) {
	w, headers := apitest.NewGuardedServer(t)
	for name, want := range map[string]int{"ping": 204, "alice": 200, "nobody": 401} {
		h := kit.CrossSite("https://evil.example")
		if headers[name] != "" {
			h = append(h, "Authorization: "+headers[name])
		}
		w.Send("POST", "/chat/users/alice/ping", "", h...).Is(t, want, name)
	}
	body := fmt.Sprintf(`{"token":%q}`, kit.Token(t, "alice", kit.Now+1000, "chat"))
	w.Send("POST", "/chat/users/alice/leave", body,
		kit.CrossSite("https://evil.example")...).Is(t, http.StatusOK, "a beacon")
}
