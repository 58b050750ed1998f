package api

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCheckOrigin(t *testing.T) {
	for _, good := range []string{
		"*", app, local, "http://127.0.0.1:8080", "http://[::1]:8080", "https://xn--caf-dma.example",
		"capacitor://localhost",
		"chrome-extension://abcdefghijklmnop", "https://a.example:80",
		"https://*.example.com", "https://*.example.com:8443", "https://*.eu.example.com", "http://*.example.com",
		"http://localhost:*", "https://localhost:*", "http://127.0.0.1:*", "http://[::1]:*",
	} {
		require.NoError(t, CheckOrigin(good), good)
	}
	for _, bad := range []string{
		"", "null", "app.example.com", "https://", "https://app.example.com/", "https://app.example.com/path",
		"https://App.example.com",
		"HTTPS://app.example.com", "https://app.example.com:443", "http://localhost:80", "http://localhost:",
		"https://café.example",
		"https://user@app.example.com", "https://app.example.com?x", "https://app.example.com#x", "https://a b",
		"//app.example.com",
		"file:///index.html", "https://a,https://b", "http://:3000", " https://app.example.com",
		"https://*", "https://*.com", "https://*.", "https://*.example.", "https://*.example.com.",
		"https://*.localhost", "https://*example.com", "https://app*.example.com",
		"https://app.*.com", "https://*.*.example.com", "https://example.*", "*.example.com", "*://app.example.com",
		"https://*.Example.com",
		"https://*.example.com/", "https://*.example.com:443", "https://*.example.com:*", "https://*.127.0.0.1",
		"https://*.0.1", "https://*.[::1]", "https://u@*.example.com",
		"http://localhost:3*", "http://localhost:**", "http://localhost:*/", "http://app.example.com:*",
		"http://10.0.0.1:*", "http://0.0.0.0:*", "http://LOCALHOST:*", "ftp://*",
		"**", "https://*..example.com", "https://*.-example.com", "https://*.exa_mple.com/",
	} {
		require.Error(t, CheckOrigin(bad), bad)
	}
}

// TestCORSPatterns checks that a star stands for one or more labels before a domain, or for any port of this
// machine, and for nothing else that an attacker could write.
func TestCORSPatterns(t *testing.T) {
	t.Parallel()
	w := newTestServer(t, fileStore(t), allowing("https://*.example.com", "https://*.example.org:8443",
		"http://localhost:*",
		"http://[::1]:*"))
	const user = "/v1/namespaces/chat/users/alice"
	for _, origin := range []string{
		"https://app.example.com", "https://a.b.example.com", "https://xn--caf-dma.example.com",
		"https://a-1.example.com", "https://a.example.org:8443",
		"http://localhost:3000", "http://localhost:1", "http://localhost:65535", "http://localhost",
		"http://[::1]:5173",
	} {
		require.Equal(t, origin, w.preflight(user+"/ping", origin).header.Get("Access-Control-Allow-Origin"), origin)
		got := w.sendTo(http.MethodGet, user, "", "Origin: "+origin)
		require.Equal(t, origin, got.header.Get("Access-Control-Allow-Origin"), origin)
		require.Equal(t, []string{"Origin"}, got.header.Values("Vary"), origin)
	}
	for _, origin := range []string{
		"https://example.com", "http://app.example.com", "https://app.example.com:8443", "https://appexample.com",
		"https://evil.example/.example.com",
		"https://evil.example#.example.com", "https://evil.example?.example.com",
		"https://evil.example:443.example.com", "https://evil@app.example.com",
		"https://.example.com", "https://a..example.com", "https://-.example.com", "https://A.example.com",
		"https://app.example.com.evil.example", "https://app.example.com.",
		"https://a\\.example.com", "https://a%2e.example.com", "https://*.example.com", "https://a .example.com",
		"https://a\tb.example.com", "https://é.example.com",
		"https://a.example.org", "https://a.example.org:84430", "https://localhost:3000", "http://localhost:",
		"http://localhost:0", "http://localhost:80", "http://localhost:08080",
		"http://localhost:65536", "http://localhost:99999999999999999999", "http://localhost:+1",
		"http://localhost:3000/", "http://localhost:3000.evil.example", "http://localhost.evil.example:3000",
		"http://evil.localhost:3000", "http://localhost:*", "http://[::1]:x", "http://[::2]:3000", "null",
	} {
		requireNoCORS(t, w.preflight(user+"/ping", origin), origin)
		requireNoCORS(t, w.sendTo(http.MethodGet, user, "", "Origin: "+origin), origin)
	}
}

// FuzzOrigin checks that an accepted origin has the form that browsers send, or is a pattern that matches no other
// host.
func FuzzOrigin(f *testing.F) {
	for _, seed := range []string{
		"*", "https://app.example.com", "http://localhost:3000", "https://a/", "null", "https://A.example",
		"https://[::1]:1", "https://*.a", "https://u@a",
		"https://*.example.com:1", "http://localhost:*", "http://[::1]:*",
	} {
		f.Add(seed, "https://a.example.com")
		f.Add("https://*.example.com", seed)
		f.Add("http://localhost:*", seed)
	}
	f.Fuzz(func(t *testing.T, allowed, origin string) {
		if CheckOrigin(allowed) != nil || allowed == "*" {
			return
		}
		exact := strings.NewReplacer("://*.", "://", ":*", "").Replace(allowed)
		u, err := url.Parse(exact)
		require.NoError(t, err)
		require.Equal(t, exact, u.Scheme+"://"+u.Host)
		require.NotEmpty(t, u.Hostname())
		require.NotContains(t, exact, "*")
		if !allowsOrigin([]string{allowed}, origin) {
			return
		}
		sent, err := url.Parse(origin)
		require.NoError(t, err)
		require.Equal(t, origin, sent.Scheme+"://"+sent.Host)
		require.Equal(t, u.Scheme, sent.Scheme)
		require.True(t, sent.Hostname() == u.Hostname() && !strings.Contains(allowed, "*.") ||
			strings.HasSuffix(sent.Hostname(), "."+u.Hostname()) && strings.Contains(allowed, "*."))
		require.True(t, sent.Port() == u.Port() || strings.HasSuffix(allowed, ":*"))
	})
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
		r := w.send(http.MethodPost, "/chat/pings", `{"pings":[{"user":"eve"}]}`, c.headers...)
		require.Equal(t, c.want, r.status, "%s: %s", c.name, r.body)
		require.Equal(t, http.StatusOK, w.send(http.MethodGet, "/chat", "", c.headers...).status,
			"%s: reading is up to CORS", c.name)
		if c.want == http.StatusForbidden {
			problem := w.fails(codeForbidden, http.MethodPost, "/chat/users/alice/ping", "", c.headers...)
			require.Contains(t, problem["detail"], "--cors-origins", c.name)
			w.fails(codeForbidden, http.MethodDelete, "/chat?confirm=chat", "", c.headers...)
		}
	}
}

// TestCrossOriginWritesWithCredentials checks that only the credentials decide if there are any: a browser does not
// add them by itself.
func TestCrossOriginWritesWithCredentials(t *testing.T) {
	authenticator, headers := callers(t)
	w := newAuthServer(t, fileStore(t), authenticator)
	for name, want := range map[string]int{"ping": 204, "alice": 200, "nobody": 401} {
		h := crossSite("https://evil.example")
		if headers[name] != "" {
			h = append(h, "Authorization: "+headers[name])
		}
		require.Equal(t, want, w.send(http.MethodPost, "/chat/users/alice/ping", "", h...).status, name)
	}
	body := fmt.Sprintf(`{"token":%q}`, token(t, "alice", testNow+1000, "chat"))
	require.Equal(t, http.StatusOK, w.send(http.MethodPost, "/chat/users/alice/leave", body,
		crossSite("https://evil.example")...).status, "a beacon")
}
