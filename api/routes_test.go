package api

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api/problem"
)

// TestMethods goes through the table of routes: HEAD equals GET without a body, OPTIONS lists the methods, any other
// method is refused with the same list, and a trailing slash is not found, except in /docs/.
func TestMethods(t *testing.T) {
	t.Parallel()
	w := newTestServer(t, fileStore(t))
	const gzip = "Accept-Encoding: gzip" // without it the client asks for it only in GET, and hides it
	w.ring("c1", "bob", "alice")
	policy := permissionsByRoute()
	for _, r := range (&server{}).routes() {
		at := strings.NewReplacer(":namespace", "chat", ":user", "alice", ":id", "c1").Replace(r.path)
		options := w.sendTo("OPTIONS", at, "").is(t, http.StatusNoContent, at)
		allowed := options.header.Get("Allow")
		require.Contains(t, strings.Split(allowed, ", "), r.method, at)
		wrong := w.sendTo("TRACE", at, "").is(t, http.StatusMethodNotAllowed, at)
		require.Equal(t, allowed, wrong.header.Get("Allow"))
		if at != "/docs" {
			w.sendTo(r.method, at+"/", "").is(t, http.StatusNotFound, at)
		}
		if r.method != "GET" {
			continue
		}
		require.Contains(t, strings.Split(allowed, ", "), "HEAD")
		want := http.StatusOK
		if strings.HasSuffix(at, "/connect") {
			want = http.StatusUpgradeRequired
		}
		const sameID = "X-Request-Id: 1" // an error has it in its body, too
		query := "?" + policy[r.method+" "+r.path].query
		got := w.sendTo("GET", at+query, "", gzip, sameID).is(t, want, at)
		head := w.sendTo("HEAD", at+query, "", gzip, sameID).is(t, want, at)
		require.Empty(t, head.body)
		for _, name := range []string{"Content-Type", "Content-Length", "Cache-Control", "ETag"} {
			require.Equal(t, got.header.Get(name), head.header.Get(name), "%s of %s", name, at)
		}
	}
}

// TestUnusualPaths checks that a path is decoded once, by the handler, and leads to a route or to nothing. It can
// never lead to a file.
func TestUnusualPaths(t *testing.T) {
	t.Parallel()
	w := newLimitedServer(t)
	answers := func(path, want string) {
		t.Helper()
		r := w.exchanges("GET " + path + " HTTP/1.1\r\nHost: lastseen\r\n")
		name := map[bool]string{true: "user", false: "code"}[r.status == http.StatusOK]
		require.Equal(t, want, r.json(t)[name], "%s: %s", path, r.body)
	}
	for want, paths := range map[problem.Code][]string{
		// Namespaces hold no percent sign, so that nothing is left to be decoded twice.
		problem.InvalidNamespace: {
			"/v1/namespaces/..", "/v1/namespaces//users", "%2e%2e/counts", "%252e%252e/counts", "chat%00/counts",
			"chat%2500/counts", "chat%0d%0aX:y/counts", "chat%2fcounts", "chat%2f..%2fchat/counts",
			"chat%5c..%5cchat/counts", "chat;x=y/counts", "%c0%ae%c0%ae/counts", "%ef%bc%8e%ef%bc%8e/counts",
			"presence%3achat/counts",
		},
		problem.InvalidUser: {
			"chat/users/..", "chat/users/%2e%2e", "chat/users/.%2e", "chat/users/%00", "chat/users/a%00b",
			"chat/users/a%0d%0aX-Evil:%20y", "chat/users/%c0%af", "chat/users/%e0%80%af", "chat/users/%ed%a0%80",
			"chat/users/%f4%90%80%80", "chat/users/" + strings.Repeat("%41", 257), "chat/users//ping",
		},
		problem.InvalidParameter: {"/v1//namespaces/chat/users/alice/ping"},
		problem.NotFound: {
			"chat/users/../counts", "/v1/../v1/namespaces", "/v1/./namespaces", "/./v1/namespaces", "/V1/namespaces",
			"/v1%2fnamespaces", "/%76%31/namespaces", "/healthz/..;/v1/namespaces", "/healthz%00",
			"/docs/..%2f..%2fgo.mod",
			"/docs/..%5c..%5cgo.mod", "/docs/%2e%2e/%2e%2e/etc/passwd", "/docs/../openapi.yaml", "/docs/docs.html",
			"/docs//", "/.git/config", "/lastseen.db", "/debug/pprof/", "/docs/index.html", "/docs/swagger-ui.js",
			"/docs/swagger-ui-bundle.js.gz", "/docs/pages/docs.html", "/docs/%2e%2e/openapi.yaml", "/docs/errors/",
			"/docs/docs.js/", "/openapi.yaml/", "/openapi",
		},
	} {
		for _, path := range paths {
			if path[0] != '/' {
				path = "/v1/namespaces/" + path
			}
			answers(path, string(want))
		}
	}
	// Users may hold nearly everything, which is not taken for anything else.
	for path, user := range map[string]string{
		"%252e%252e": "%2e%2e", "%2500": "%00", "%25252e": "%252e",
		"..%2f..%2f..%2fetc%2fpasswd": "../../../etc/passwd",
		"..%5c..%5cwindows":           `..\..\windows`, "..;": "..;", "%ef%bc%8e%ef%bc%8e": "．．", "$%7bjndi:x%7d": "${jndi:x}",
		"%3Cscript%3E": "<script>", "bob+eve": "bob+eve", "%e2%80%8f": "\u200f",
		"ü%2Fping": "ü/ping", `a"%2Fb`: `a"/b`, "{x}%2F%7Cy": "{x}/|y", `%2541"`: `%41"`, "%2e%2F^": "./^", // not escaped
	} {
		answers("/v1/namespaces/chat/users/"+path, user)
	}
}

// FuzzRequest checks that no path and no query makes the server fail.
func FuzzRequest(f *testing.F) {
	handler := fuzzHandler(f)
	f.Add("GET", "/v1/namespaces/chat/users", "limit=1&status=green")
	f.Add("POST", "/v1/namespaces/chat/users/a%2Fb/ping", "")
	f.Add("GET", "/v1/namespaces//users/%2e%2e", "as_of=1&green=2&yellow=3")
	f.Fuzz(func(t *testing.T, method, path, query string) {
		u, err := url.Parse(path)
		if err != nil || u.Path == "" || u.Path[0] != '/' {
			return
		}
		request := &http.Request{
			Method: method, URL: &url.URL{Path: u.Path, RawPath: u.RawPath, RawQuery: query},
			Header: http.Header{}, Body: http.NoBody,
		}
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, request)
		require.Less(t, recorder.Code, 500, "%s %s?%s: %s", method, path, query, recorder.Body)
	})
}

// TestHostsWithoutAuth checks that names that anyone could own in the public DNS are refused, so that no web page
// can point such a name at this machine and use the server.
func TestHostsWithoutAuth(t *testing.T) {
	t.Parallel()
	w := newTestServer(t, fileStore(t))
	for _, host := range []string{
		"localhost", "localhost:8080", "LOCALHOST:8080", "localhost.", "localhost.:8080", "localhost:", "app.localhost",
		"a.b.localhost:1", "127.0.0.1", "127.0.0.1:8080", "10.1.2.3", "203.0.113.7:80", "[::1]", "[::1]:8080",
		"[2001:db8::1]:80", "[fe80::1%25eth0]:80", "[::ffff:127.0.0.1]", "lastseen", "lastseen:8080", "LastSeen",
		"my_server-1", "nas.local", "nas.LOCAL.:80", "host.docker.internal", "presence.corp.internal:8080",
		"lastseen.default.svc.cluster.local", "lastseen.default.svc.cluster.local.:80", "",
	} {
		require.Equal(t, http.StatusOK, w.statusFor(host), host)
	}
	for _, host := range []string{
		"evil.example", "evil.example:8080", "EVIL.EXAMPLE", "evil.example.", "localhost.evil.example",
		"127.0.0.1.evil.example", "127.0.0.1.nip.io:8080", "evil.example:80.localhost", "evil.", "com.",
		"local.evil.example", "evillocal.com", "evil.localhost.com", "evil-internal.com",
		"svc.cluster.local.evil.example", "xn--caf-dma.example", "localhost..", "127.1", "0x7f.1", "127.0.0.1.",
		"1.2.3.4.5", "256.0.0.1", ".localhost", "a..localhost", "..", ".", "-", "evil%2eexample", "local%68ost", "[::1",
		"::1]", "[evil.example]", "[::1]evil.example", "[::1]:x", "localhost:x", "localhost:80:80", "localhost:99999",
		"localhost,evil.example", "localhost;evil.example", "$", "%", "evil.example:", "*", "*.localhost",
		strings.Repeat("a", 64), strings.Repeat("a.", 200) + "localhost",
	} {
		require.Equal(t, http.StatusForbidden, w.statusFor(host), host)
	}
	for _, odd := range []string{"é.localhost", "a b", "user@localhost", "localhost/", "localhost#", "a\tb", "a\x00b"} {
		require.Contains(t, []int{http.StatusForbidden, http.StatusBadRequest}, w.statusFor(odd), odd)
	}
}

// TestRefusedHost checks that the error names the allowed hosts and the setting to allow more.
func TestRefusedHost(t *testing.T) {
	w := newTestServer(t, fileStore(t))
	w.post(alicePing, "")
	before := w.get("/chat/users?as_of=2026-11-20T22:00:00Z")
	for _, request := range []string{
		"DELETE /v1/namespaces/chat?confirm=chat", "DELETE /v1/namespaces/chat/users/alice", "HEAD /v1/namespaces",
		"GET /v1/namespaces/chat/users", "POST /v1/namespaces/chat/lookup", "GET /v1/namespaces",
		"POST /v1/namespaces/chat/users/alice/leave", "POST /v1/namespaces/chat/pings",
	} {
		r := w.exchanges(request + " HTTP/1.1\r\nHost: rebound.example:8080\r\nOrigin: http://rebound.example:8080\r\n" +
			"Sec-Fetch-Site: same-origin\r\nX-Forwarded-Host: localhost\r\nForwarded: host=localhost\r\n")
		r.is(t, http.StatusForbidden, request)
		require.Empty(t, r.header.Get("WWW-Authenticate"), "no credentials would help")
		if strings.HasPrefix(request, "HEAD") {
			continue
		}
		refusal := r.json(t)
		require.Equal(t, "forbidden", refusal["code"], request)
		for _, text := range []string{`"rebound.example:8080"`, "--allowed-hosts", "localhost"} {
			require.Contains(t, refusal["detail"], text)
		}
	}
	require.Equal(t, before, w.get("/chat/users?as_of=2026-11-20T22:00:00Z"), "nothing changed")
	for _, path := range []string{"/healthz", "/readyz", "/version", "/docs/", "/openapi.yaml"} {
		w.exchanges("GET "+path+" HTTP/1.1\r\nHost: presence.example.com\r\n").
			is(t, http.StatusOK, path, " holds nothing about users, and probes use any name")
	}
}

// TestHostInRequestLine checks that a host in the request line overrides the header, and that HTTP/1.0 needs none.
func TestHostInRequestLine(t *testing.T) {
	w := newLimitedServer(t)
	for want, requests := range map[int][]string{
		http.StatusOK: {
			"http://localhost/v1/namespaces/chat HTTP/1.1\r\nHost: localhost\r\n", "/v1/namespaces/chat HTTP/1.0\r\n",
		},
		http.StatusForbidden: {
			"http://evil.example/v1/namespaces/chat HTTP/1.1\r\nHost: localhost\r\n",
			"http://a@evil.example/v1/namespaces/chat HTTP/1.1\r\nHost: localhost\r\n",
			"http://localhost@evil.example/v1/namespaces/chat HTTP/1.1\r\nHost: x\r\n",
			"/v1/namespaces/chat HTTP/1.0\r\nHost: evil.example\r\n",
			"/v1/namespaces/chat HTTP/1.1\r\nHost: evil.example\r\nX-Host: localhost\r\n",
		},
		http.StatusBadRequest: {
			"http://evil%2eexample/v1/namespaces/chat HTTP/1.1\r\nHost: localhost\r\n", "/v1/namespaces/chat HTTP/1.1\r\n",
			"/v1/namespaces/chat HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n",
		},
	} {
		for _, request := range requests {
			w.exchanges("GET "+request).is(t, want, request)
		}
	}
}

// TestAllowedHosts checks configured hosts, and that a reload changes them.
func TestAllowedHosts(t *testing.T) {
	w := newTestServer(t, fileStore(t))
	require.Equal(t, http.StatusForbidden, w.statusFor("presence.example.com"))
	w.reload(func(c *Config) { c.AllowedHosts = []string{"presence.example.com", "*.corp.example", "*.lan"} })
	for want, hosts := range map[int]string{
		200: "presence.example.com PRESENCE.example.com.:8080 a.corp.example:80 a.b.corp.example nas.lan localhost",
		403: "example.com x.presence.example.com corp.example acorp.example .corp.example a..corp.example lan.evil.example",
	} {
		for host := range strings.FieldsSeq(hosts) {
			require.Equal(t, want, w.statusFor(host), host)
		}
	}
	require.Equal(t, http.StatusBadRequest, w.statusFor("a b.lan"))
	w.reload(func(c *Config) { c.AllowedHosts = []string{"*"} })
	for _, host := range []string{"evil.example", "evil%2eexample", "127.1", "a..b"} {
		require.Equal(t, http.StatusOK, w.statusFor(host), host)
	}
}

// TestHostsWithAuth checks that hosts are ignored if the server needs credentials, because web pages do not have
// them. A reload that adds or removes the last key changes this.
func TestHostsWithAuth(t *testing.T) {
	w, headers := newGuardedServer(t)
	get := func(namespace, header string) testResponse {
		return w.exchanges("GET /v1/namespaces/" + namespace + " HTTP/1.1\r\nHost: presence.example.com\r\n" + header)
	}
	credentials := "Authorization: " + headers["read"] + "\r\n"
	get("chat", credentials).is(t, http.StatusOK)
	get("chat", "").is(t, http.StatusUnauthorized)
	get("public-1", "").is(t, http.StatusOK, "anyone may read it")
	w.reload(func(c *Config) { c.Auth = nil })
	get("chat", credentials).is(t, http.StatusForbidden)
	require.Equal(t, http.StatusOK, w.statusFor("localhost"))
}

// statusFor returns the status of a request for a namespace's settings with a Host header.
func (w *testServer) statusFor(host string) int {
	w.t.Helper()
	return w.exchanges("GET /v1/namespaces/chat HTTP/1.1\r\nHost: " + host + "\r\n").status
}
