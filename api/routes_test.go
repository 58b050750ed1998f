package api_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api"
	"github.com/lastseen/lastseen/api/apitest"
	"github.com/lastseen/lastseen/api/apitest/kit"
	"github.com/lastseen/lastseen/api/problem"
)

// TestUnlimitedRequests checks that probes, pages and callers on this machine have no limit.
func TestUnlimitedRequests(t *testing.T) {
	t.Parallel()
	w := apitest.NewServer(t, kit.FileStore(t), apitest.BehindProxy)
	alice := kit.ForwardedFor("203.0.113.7")
	w.Spend(alice)
	for _, r := range api.Routes() {
		if strings.HasPrefix(r.Path, "/v1/") {
			continue
		}
		w.SendTo(r.Method, strings.Replace(r.Path, "*", "faq", 1), "", alice).Is(t, http.StatusOK, r.Path)
	}
	w.Send("OPTIONS", "/chat", "", alice).Is(t, http.StatusNoContent)
	w.Fails(problem.NotFound, "GET", "/chat/nothing", "", alice)
	w.Fails(problem.RateLimited, "GET", "/chat", "", alice)

	w.Spend("X-Other: 1")
	w.Spend("X-Other: 1")
}

// TestMethods goes through the table of routes: HEAD equals GET without a body, OPTIONS lists the methods, any other
// method is refused with the same list, and a trailing slash is not found, except in /docs/ and /guides/.
func TestMethods(t *testing.T) {
	t.Parallel()
	w := apitest.NewServer(t, kit.FileStore(t))
	const gzip = "Accept-Encoding: gzip" // without it the client asks for it only in GET, and hides it
	w.Ring("c1", "bob", "alice")
	policy := kit.PermissionsByRoute()
	for _, r := range api.Routes() {
		at := strings.NewReplacer(":namespace", "chat", ":user", "alice", ":id", "c1", "*", "faq",
			":webhook", "app").Replace(r.Path)
		options := w.SendTo("OPTIONS", at, "").Is(t, http.StatusNoContent, at)
		allowed := options.Header.Get("Allow")
		require.Contains(t, strings.Split(allowed, ", "), r.Method, at)
		wrong := w.SendTo("TRACE", at, "").Is(t, http.StatusMethodNotAllowed, at)
		require.Equal(t, allowed, wrong.Header.Get("Allow"))
		if at != "/docs" && at != "/guides" {
			w.SendTo(r.Method, at+"/", "").Is(t, http.StatusNotFound, at)
		}
		if r.Method != "GET" {
			continue
		}
		require.Contains(t, strings.Split(allowed, ", "), "HEAD")
		want := http.StatusOK
		if strings.HasSuffix(at, "/connect") {
			want = http.StatusUpgradeRequired
		}
		const sameID = "X-Request-Id: 1" // an error has it in its body, too
		query := "?" + policy[r.Method+" "+r.Path].Query
		got := w.SendTo("GET", at+query, "", gzip, sameID).Is(t, want, at)
		head := w.SendTo("HEAD", at+query, "", gzip, sameID).Is(t, want, at)
		require.Empty(t, head.Body)
		for _, name := range []string{"Content-Type", "Content-Length", "Cache-Control", "ETag"} {
			require.Equal(t, got.Header.Get(name), head.Header.Get(name), "%s of %s", name, at)
		}
	}
}

// TestUnusualPaths checks that a path is decoded once, by the handler, and leads to a route or to nothing. It can
// never lead to a file.
func TestUnusualPaths(t *testing.T) {
	t.Parallel()
	w := apitest.NewLimitedServer(t)
	answers := func(path, want string) {
		t.Helper()
		r := w.Exchanges("GET " + path + " HTTP/1.1\r\nHost: lastseen\r\n")
		name := map[bool]string{true: "user", false: "code"}[r.Status == http.StatusOK]
		require.Equal(t, want, r.JSON(t)[name], "%s: %s", path, r.Body)
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
			"/docs/docs.js/", "/openapi.yaml/", "/openapi", "/guides/nothing", "/guides/nothing.md", "/guides/faq/",
			"/guides/faq.MD", "/guides/.md", "/guides/aREADME.md", "/guides/guide.html", "/guides/docs.go",
			"/guides/swagger.yaml",
			"/guides/README", "/guides/pictures", "/guides/pictures/", "/guides/decisions/pages",
			"/guides/../go.mod", "/guides/..%2fgo.mod", "/guides/..%5cgo.mod", "/guides/%2e%2e/docs/", "/guides/%66aq",
			"/guides/pictures/../faq", "/guides/faq%00", "/guides/faq.md.md", "/guides/http:%2f%2fevil.example.md",
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
	handler := apitest.FuzzHandler(f)
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
	w := apitest.NewServer(t, kit.FileStore(t))
	for _, host := range []string{
		"localhost", "localhost:8080", "LOCALHOST:8080", "localhost.", "localhost.:8080", "localhost:", "app.localhost",
		"a.b.localhost:1", "127.0.0.1", "127.0.0.1:8080", "10.1.2.3", "203.0.113.7:80", "[::1]", "[::1]:8080",
		"[2001:db8::1]:80", "[fe80::1%25eth0]:80", "[::ffff:127.0.0.1]", "lastseen", "lastseen:8080", "LastSeen",
		"my_server-1", "nas.local", "nas.LOCAL.:80", "host.docker.internal", "presence.corp.internal:8080",
		"lastseen.default.svc.cluster.local", "lastseen.default.svc.cluster.local.:80", "",
	} {
		require.Equal(t, http.StatusOK, statusFor(w, host), host)
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
		require.Equal(t, http.StatusForbidden, statusFor(w, host), host)
	}
	for _, odd := range []string{"é.localhost", "a b", "user@localhost", "localhost/", "localhost#", "a\tb", "a\x00b"} {
		require.Contains(t, []int{http.StatusForbidden, http.StatusBadRequest}, statusFor(w, odd), odd)
	}
}

// TestRefusedHost checks that the error names the allowed hosts and the setting to allow more.
func TestRefusedHost(t *testing.T) {
	w := apitest.NewServer(t, kit.FileStore(t))
	w.Post(kit.AlicePing, "")
	before := w.Get("/chat/users?as_of=2026-11-20T22:00:00Z")
	for _, request := range []string{
		"DELETE /v1/namespaces/chat?confirm=chat", "DELETE /v1/namespaces/chat/users/alice", "HEAD /v1/namespaces",
		"GET /v1/namespaces/chat/users", "POST /v1/namespaces/chat/lookup", "GET /v1/namespaces",
		"POST /v1/namespaces/chat/users/alice/leave", "POST /v1/namespaces/chat/pings",
	} {
		r := w.Exchanges(request + " HTTP/1.1\r\nHost: rebound.example:8080\r\nOrigin: http://rebound.example:8080\r\n" +
			"Sec-Fetch-Site: same-origin\r\nX-Forwarded-Host: localhost\r\nForwarded: host=localhost\r\n")
		r.Is(t, http.StatusForbidden, request)
		require.Empty(t, r.Header.Get("WWW-Authenticate"), "no credentials would help")
		if strings.HasPrefix(request, "HEAD") {
			continue
		}
		refusal := r.JSON(t)
		require.Equal(t, "forbidden", refusal["code"], request)
		for _, text := range []string{`"rebound.example:8080"`, "--allowed-hosts", "localhost"} {
			require.Contains(t, refusal["detail"], text)
		}
	}
	require.Equal(t, before, w.Get("/chat/users?as_of=2026-11-20T22:00:00Z"), "nothing changed")
	for _, path := range []string{"/healthz", "/readyz", "/version", "/docs/", "/openapi.yaml"} {
		w.Exchanges("GET "+path+" HTTP/1.1\r\nHost: presence.example.com\r\n").
			Is(t, http.StatusOK, path, " holds nothing about users, and probes use any name")
	}
}

// TestHostInRequestLine checks that a host in the request line overrides the header, and that HTTP/1.0 needs none.
func TestHostInRequestLine(t *testing.T) {
	w := apitest.NewLimitedServer(t)
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
			w.Exchanges("GET "+request).Is(t, want, request)
		}
	}
}

// TestAllowedHosts checks configured hosts, and that a reload changes them.
func TestAllowedHosts(t *testing.T) {
	w := apitest.NewServer(t, kit.FileStore(t))
	require.Equal(t, http.StatusForbidden, statusFor(w, "presence.example.com"))
	w.Reload(func(c *api.Config) { c.AllowedHosts = []string{"presence.example.com", "*.corp.example", "*.lan"} })
	for want, hosts := range map[int]string{
		200: "presence.example.com PRESENCE.example.com.:8080 a.corp.example:80 a.b.corp.example nas.lan localhost",
		403: "example.com x.presence.example.com corp.example acorp.example .corp.example a..corp.example lan.evil.example",
	} {
		for host := range strings.FieldsSeq(hosts) {
			require.Equal(t, want, statusFor(w, host), host)
		}
	}
	require.Equal(t, http.StatusBadRequest, statusFor(w, "a b.lan"))
	w.Reload(func(c *api.Config) { c.AllowedHosts = []string{"*"} })
	for _, host := range []string{"evil.example", "evil%2eexample", "127.1", "a..b"} {
		require.Equal(t, http.StatusOK, statusFor(w, host), host)
	}
}

// TestHostsWithAuth checks that hosts are ignored if the server needs credentials, because web pages do not have
// them. A reload that adds or removes the last key changes this.
func TestHostsWithAuth(t *testing.T) {
	w, headers := apitest.NewGuardedServer(t)
	get := func(namespace, header string) kit.Response {
		return w.Exchanges("GET /v1/namespaces/" + namespace + " HTTP/1.1\r\nHost: presence.example.com\r\n" + header)
	}
	credentials := "Authorization: " + headers["read"] + "\r\n"
	get("chat", credentials).Is(t, http.StatusOK)
	get("chat", "").Is(t, http.StatusUnauthorized)
	get("public-1", "").Is(t, http.StatusOK, "anyone may read it")
	w.Reload(func(c *api.Config) { c.Auth = nil })
	get("chat", credentials).Is(t, http.StatusForbidden)
	require.Equal(t, http.StatusOK, statusFor(w, "localhost"))
}

// statusFor returns the status of a request for a namespace's settings with a Host header.
func statusFor(w *apitest.Server, host string) int {
	w.T.Helper()
	return w.Exchanges("GET /v1/namespaces/chat HTTP/1.1\r\nHost: " + host + "\r\n").Status
}

// TestUnknownNamespaces checks that an unknown namespace is an error on every route except those that delete
// users and namespaces, and that the list of namespaces is not affected.
func TestUnknownNamespaces(t *testing.T) {
	w := apitest.NewServer(t, kit.FileStore(t), apitest.KnowsChat)
	policy, requests := kit.PermissionsByRoute(), 0
	for _, r := range api.Routes() {
		if !strings.Contains(r.Path, ":namespace") || strings.HasSuffix(r.Path, "/connect") { // see TestConnectKeyRemoved
			continue
		}
		requests++
		valid := policy[r.Method+" "+r.Path]
		erases := r.Method == "DELETE" && !slices.Contains(valid.Allowed, "alice")
		for _, namespace := range []string{"chat", "chta"} {
			path := strings.NewReplacer(":namespace", namespace, ":user", "alice", ":id", "x").Replace(r.Path)
			path = strings.TrimPrefix(path, "/v1/namespaces") + "?" + strings.Replace(valid.Query, "chat", namespace, 1)
			switch {
			case namespace == "chat" && strings.Contains(r.Path, ":id"):
				w.Fails(problem.CallNotFound, r.Method, path, valid.Body)
			case namespace == "chat" || erases:
				require.Less(t, w.Send(r.Method, path, valid.Body).Status, 300, "%s %s", r.Method, path)
			default:
				refusal := w.Fails(problem.NotFound, r.Method, path, valid.Body)
				require.Contains(t, refusal["detail"], `"chta" is not configured`, path)
			}
		}
	}
	require.Equal(t, len(policy)-4, requests, "all but the list of namespaces and webhooks")
	w.Send("GET", "", "").Is(t, http.StatusOK)
	w.Fails(problem.InvalidNamespace, "GET", "/.hidden", "")
}
