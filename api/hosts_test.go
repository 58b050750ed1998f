package api

import (
	"crypto/tls"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestHostsWithoutAuth checks that names that anyone could own in the public DNS are refused, so that no web page
// can point such a name at this machine and use the server.
func TestHostsWithoutAuth(t *testing.T) {
	t.Parallel()
	w := newTestServer(t, fileStore(t))
	for _, host := range []string{
		"localhost", "localhost:8080", "LOCALHOST:8080", "localhost.", "localhost.:8080", "localhost:", "app.localhost",
		"a.b.localhost:1", "127.0.0.1", "127.0.0.1:8080",
		"10.1.2.3", "203.0.113.7:80", "[::1]", "[::1]:8080", "[2001:db8::1]:80", "[fe80::1%25eth0]:80",
		"[::ffff:127.0.0.1]", "lastseen", "lastseen:8080", "LastSeen", "my_server-1",
		"nas.local", "nas.LOCAL.:80", "host.docker.internal", "presence.corp.internal:8080",
		"lastseen.default.svc.cluster.local", "lastseen.default.svc.cluster.local.:80", "",
	} {
		require.Equal(t, http.StatusOK, w.statusFor(host), host)
	}
	for _, host := range []string{
		"evil.example", "evil.example:8080", "EVIL.EXAMPLE", "evil.example.", "localhost.evil.example",
		"127.0.0.1.evil.example", "127.0.0.1.nip.io:8080", "evil.example:80.localhost",
		"evil.", "com.", "local.evil.example", "evillocal.com", "evil.localhost.com", "evil-internal.com",
		"svc.cluster.local.evil.example", "xn--caf-dma.example", "localhost..",
		"127.1", "0x7f.1", "127.0.0.1.", "1.2.3.4.5", "256.0.0.1", ".localhost", "a..localhost", "..", ".", "-",
		"evil%2eexample", "local%68ost", "[::1", "::1]", "[evil.example]", "[::1]evil.example",
		"[::1]:x", "localhost:x", "localhost:80:80", "localhost:99999", "localhost,evil.example",
		"localhost;evil.example", "$", "%", "evil.example:", "*", "*.localhost",
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
	w.send(http.MethodPost, "/chat/users/alice/ping", "")
	before := w.get("/chat/users?as_of=2026-11-20T22:00:00Z")
	for _, request := range []string{
		"DELETE /v1/namespaces/chat?confirm=chat", "DELETE /v1/namespaces/chat/users/alice",
		"GET /v1/namespaces/chat/users", "POST /v1/namespaces/chat/lookup",
		"POST /v1/namespaces/chat/users/alice/leave", "POST /v1/namespaces/chat/pings", "GET /v1/namespaces",
		"HEAD /v1/namespaces",
	} {
		responses := w.exchange(request +
			" HTTP/1.1\r\nHost: rebound.example:8080\r\nOrigin: http://rebound.example:8080\r\nSec-Fetch-Site: same-origin\r\n" +
			"X-Forwarded-Host: localhost\r\nForwarded: host=localhost\r\nConnection: close\r\n\r\n")
		require.Len(t, responses, 1)
		require.Equal(t, http.StatusForbidden, responses[0].status, request)
		require.Empty(t, responses[0].header.Get("WWW-Authenticate"), "no credentials would help")
		if strings.HasPrefix(request, "HEAD") {
			continue
		}
		problem := responses[0].json(t)
		require.Equal(t, "forbidden", problem["code"], request)
		for _, text := range []string{`"rebound.example:8080"`, "--allowed-hosts", "localhost"} {
			require.Contains(t, problem["detail"], text)
		}
	}
	require.Equal(t, before, w.get("/chat/users?as_of=2026-11-20T22:00:00Z"), "nothing changed")
	for _, path := range []string{"/healthz", "/readyz", "/version", "/docs/", "/openapi.yaml"} {
		responses := w.exchange("GET " + path + " HTTP/1.1\r\nHost: presence.example.com\r\nConnection: close\r\n\r\n")
		require.Equal(t, http.StatusOK, responses[0].status, "%s holds nothing about users, and probes use any name",
			path)
	}
}

// TestHostInRequestLine checks that a host in the request line overrides the header, and that HTTP/1.0 needs none.
func TestHostInRequestLine(t *testing.T) {
	w := newLimitedServer(t)
	for request, want := range map[string]int{
		"GET http://localhost/v1/namespaces/chat HTTP/1.1\r\nHost: localhost\r\n":         http.StatusOK,
		"GET http://evil.example/v1/namespaces/chat HTTP/1.1\r\nHost: localhost\r\n":      http.StatusForbidden,
		"GET http://evil%2eexample/v1/namespaces/chat HTTP/1.1\r\nHost: localhost\r\n":    http.StatusBadRequest,
		"GET http://a@evil.example/v1/namespaces/chat HTTP/1.1\r\nHost: localhost\r\n":    http.StatusForbidden,
		"GET http://localhost@evil.example/v1/namespaces/chat HTTP/1.1\r\nHost: x\r\n":    http.StatusForbidden,
		"GET /v1/namespaces/chat HTTP/1.0\r\n":                                            http.StatusOK,
		"GET /v1/namespaces/chat HTTP/1.0\r\nHost: evil.example\r\n":                      http.StatusForbidden,
		"GET /v1/namespaces/chat HTTP/1.1\r\n":                                            http.StatusBadRequest,
		"GET /v1/namespaces/chat HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n":   http.StatusBadRequest,
		"GET /v1/namespaces/chat HTTP/1.1\r\nHost: evil.example\r\nX-Host: localhost\r\n": http.StatusForbidden,
	} {
		responses := w.exchange(request + "Connection: close\r\n\r\n")
		require.Len(t, responses, 1, request)
		require.Equal(t, want, responses[0].status, "%s%s", request, responses[0].body)
	}
}

// TestHostsOverHTTP2 checks the pseudo-header :authority.
func TestHostsOverHTTP2(t *testing.T) {
	server := httptest.NewUnstartedServer(New(Config{
		Store: fileStore(t), Settings: Settings{},
		Logger: slog.New(slog.DiscardHandler),
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	client := server.Client()
	transport := client.Transport.(*http.Transport)
	transport.TLSClientConfig = &tls.Config{InsecureSkipVerify: true} //nolint:gosec // a test server
	for host, want := range map[string]int{
		"localhost": http.StatusOK, "127.0.0.1:8080": http.StatusOK,
		"evil.example": http.StatusForbidden, "evil.example:8080": http.StatusForbidden,
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/v1/namespaces/chat", nil)
		require.NoError(t, err)
		request.Host = host
		response, err := client.Do(request)
		require.NoError(t, err)
		_, err = io.Copy(io.Discard, response.Body)
		require.NoError(t, err)
		response.Body.Close()
		require.Equal(t, 2, response.ProtoMajor)
		require.Equal(t, want, response.StatusCode, host)
	}
}

// TestAllowedHosts checks configured hosts, and that a reload changes them.
func TestAllowedHosts(t *testing.T) {
	w := newTestServer(t, fileStore(t))
	require.Equal(t, http.StatusForbidden, w.statusFor("presence.example.com"))
	w.reload(func(c *Config) { c.AllowedHosts = []string{"presence.example.com", "*.corp.example", "*.lan"} })
	for host, want := range map[string]int{
		"presence.example.com": 200, "PRESENCE.example.com.:8080": 200, "a.corp.example:80": 200,
		"a.b.corp.example": 200, "nas.lan": 200, "localhost": 200,
		"example.com": 403, "x.presence.example.com": 403, "corp.example": 403, "acorp.example": 403,
		".corp.example": 403, "a..corp.example": 403, "lan.evil.example": 403, "a b.lan": 400,
	} {
		require.Equal(t, want, w.statusFor(host), host)
	}
	w.reload(func(c *Config) { c.AllowedHosts = []string{"*"} })
	for _, host := range []string{"evil.example", "evil%2eexample", "127.1", "a..b"} {
		require.Equal(t, http.StatusOK, w.statusFor(host), host)
	}
}

// TestHostsWithAuth checks that hosts are ignored if the server needs credentials, because web pages do not have
// them. A reload that adds or removes the last key changes this.
func TestHostsWithAuth(t *testing.T) {
	authenticator, headers := callers(t)
	w := newAuthServer(t, fileStore(t), authenticator)
	status := func() int {
		responses := w.exchange("GET /v1/namespaces/chat HTTP/1.1\r\nHost: presence.example.com\r\nAuthorization: " +
			headers["read"] + "\r\nConnection: close\r\n\r\n")
		return responses[0].status
	}
	require.Equal(t, http.StatusOK, status())
	require.Equal(t, http.StatusUnauthorized, w.statusFor("presence.example.com"))
	require.Equal(t, http.StatusOK,
		w.exchange("GET /v1/namespaces/public-1 HTTP/1.1\r\nHost: presence.example.com\r\nConnection: close\r\n\r\n")[0].status, "anyone may read it")
	w.reload(func(c *Config) { c.Auth = nil })
	require.Equal(t, http.StatusForbidden, status())
	require.Equal(t, http.StatusOK, w.statusFor("localhost"))
}

func TestCheckHost(t *testing.T) {
	for _, good := range []string{
		"*", "presence.example.com", "*.example.com", "*.lan", "lan", "my_host.example",
		"xn--caf-dma.example", "10.0.0.1",
	} {
		require.NoError(t, CheckHost(good), good)
	}
	for _, bad := range []string{
		"", ".", "*.", "a.*", "**", "*a.example", "A.example", "a.example.", "a.example:80",
		"https://a.example", "a/b", "[::1]", "*.*.example", "é.example", "a b", "-a.example", strings.Repeat("a", 64),
	} {
		require.Error(t, CheckHost(bad), bad)
	}
}

// FuzzHost checks that an allowed name has no dot, is an address, or ends in a domain that is not public.
func FuzzHost(f *testing.F) {
	for _, seed := range []string{
		"localhost:8080", "[::1]:1", "127.0.0.1", "a.local.", "evil.example", "com.",
		"[fe80::1%eth0]", "a:b:c", "\u212Aocalhost", "1.2.3", "*", "xn--a.internal",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, host string) {
		if !AllowsHost(nil, host) || host == "" {
			return
		}
		u, err := url.Parse("http://" + strings.ReplaceAll(host, "%", "%25") + "/")
		require.NoError(t, err)
		name := strings.ToLower(u.Hostname())
		if _, err := netip.ParseAddr(name); err == nil || !strings.Contains(name, ".") {
			return
		}
		labels := strings.Split(strings.TrimSuffix(name, "."), ".")
		require.Contains(t, []string{"localhost", "local", "internal"}, labels[len(labels)-1], host)
	})
}

// statusFor returns the status of a request for a namespace's settings with a Host header.
func (w *testServer) statusFor(host string) int {
	w.t.Helper()
	responses := w.exchange("GET /v1/namespaces/chat HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n\r\n")
	require.Len(w.t, responses, 1, host)
	return responses[0].status
}
