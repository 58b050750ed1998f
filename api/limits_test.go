package api

import (
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api/limit"
)

// behindProxy makes the server trust the X-Forwarded-For of the test's client, and limits an address to 5 requests
// at once.
func behindProxy(c *Config) {
	c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
	c.Limits = limit.Limits{Caller: 1}
	c.Now = func() time.Time { return time.Unix(0, 0) }
}

// from returns the header with which a proxy forwards a client's address.
func from(address string) string { return "X-Forwarded-For: " + address }

// TestLimits checks the response to a caller above the limit, and that other callers are not affected.
func TestLimits(t *testing.T) {
	now := time.Unix(0, 0)
	w := newTestServer(t, fileStore(t), behindProxy, func(c *Config) {
		c.Now = func() time.Time { return now }
		c.Limits = limit.Limits{Caller: 3, User: 1}
	})
	ping := func(address string) testResponse {
		return w.send(http.MethodPost, "/chat/users/alice/ping", "", from(address))
	}
	for range 15 {
		require.Equal(t, http.StatusOK, ping("203.0.113.7").status)
	}
	refused := ping("203.0.113.7")
	require.Equal(t, http.StatusTooManyRequests, refused.status)
	require.Equal(t, "3", refused.header.Get("Retry-After"), "a second, and half of the window, since Random is 0.5")
	require.Equal(t, `"address";r=0;t=1`, refused.header.Get("RateLimit"))
	require.Equal(t, `"address";q=15;w=5`, refused.header.Get("RateLimit-Policy"))
	require.Equal(t, "no-store", refused.header.Get("Cache-Control"))
	w.fails(codeRateLimited, http.MethodGet, "/chat?what=is+this", "", from("203.0.113.7"))
	require.NotRegexp(t, "level=(INFO|WARN|ERROR)", w.log.String(), "only at level debug")

	responded := ping("203.0.113.8")
	require.Equal(t, http.StatusOK, responded.status, "somebody else")
	require.Empty(t, responded.header.Get("RateLimit"), "who is within the limit is not bothered with it")

	now = now.Add(time.Second)
	for range 3 {
		require.Equal(t, http.StatusOK, ping("203.0.113.7").status)
	}
	require.Equal(t, http.StatusTooManyRequests, ping("203.0.113.7").status)
	w.reload(func(*Config) {})
	require.Equal(t, http.StatusTooManyRequests, ping("203.0.113.7").status, "a reload does not refill buckets")
	w.reload(func(c *Config) { c.Limits = limit.Limits{} })
	require.Equal(t, http.StatusOK, ping("203.0.113.7").status, "a reload changes the limits")
}

// TestUnlimitedRequests checks that probes, pages and callers on this machine have no limit.
func TestUnlimitedRequests(t *testing.T) {
	t.Parallel()
	w := newTestServer(t, fileStore(t), behindProxy)
	alice := from("203.0.113.7")
	w.spend(alice)
	for _, r := range (&server{}).routes() {
		if strings.HasPrefix(r.path, "/v1/") {
			continue
		}
		require.Equal(t, http.StatusOK, w.sendTo(r.method, r.path, "", alice).status, r.path)
	}
	require.Equal(t, http.StatusNoContent, w.send(http.MethodOptions, "/chat", "", alice).status)
	w.fails(codeNotFound, http.MethodGet, "/chat/nothing", "", alice)
	w.fails(codeRateLimited, http.MethodGet, "/chat", "", alice)

	w.spend("X-Other: 1")
	w.spend("X-Other: 1")
}

// TestForwardedLoopbackIsLimited checks that a loopback address in X-Forwarded-For is limited.
func TestForwardedLoopbackIsLimited(t *testing.T) {
	for _, local := range []string{
		"127.0.0.1", "127.1.2.3", "::1", "::ffff:127.0.0.1", "unknown", "",
		"203.0.113.7, ::1",
	} {
		w := newTestServer(t, fileStore(t), behindProxy)
		w.spend(from(local))
		w.fails(codeRateLimited, http.MethodGet, "/chat", "", from(local))
	}
	unknownProxy := newTestServer(t, fileStore(t), behindProxy, func(c *Config) { c.TrustedProxies = nil })
	for range 2 {
		unknownProxy.spend(from("203.0.113.7")) // a proxy that is not configured would be one caller for everybody
	}
}

// TestLimitsOfAddresses checks which addresses share a limit.
func TestLimitsOfAddresses(t *testing.T) {
	w := newTestServer(t, fileStore(t), behindProxy)
	w.spend(from("2001:db8:0:1::1"))
	w.fails(codeRateLimited, http.MethodGet, "/chat", "", from("2001:db8:0:1:ffff::2"))
	w.spend(from("2001:db8:0:2::1"))
	w.spend(from("203.0.113.7"))
	for _, same := range []string{
		"::ffff:203.0.113.7", " 203.0.113.7 ", "[203.0.113.7]", "198.51.100.1, 203.0.113.7",
		"127.0.0.1,203.0.113.7",
	} {
		w.fails(codeRateLimited, http.MethodGet, "/chat", "", from(same))
	}
	w.fails(codeRateLimited, http.MethodGet, "/chat", "", from("198.51.100.1"), from("203.0.113.7"))
}

// TestLimitsOfCallers checks that an authenticated caller has one limit, from any address.
func TestLimitsOfCallers(t *testing.T) {
	guarded, one, two, token := twoKeys(t)
	w := newTestServer(t, fileStore(t), guarded)
	home, cafe := from("203.0.113.7"), from("198.51.100.1")
	refused := func(headers ...string) http.Header {
		t.Helper()
		r := w.send(http.MethodGet, "/chat", "", headers...)
		require.Equal(t, http.StatusTooManyRequests, r.status, r.body)
		return r.header
	}
	w.spend(bearer(one), home)
	require.Equal(t, `"key";q=5;w=5`, refused(bearer(one), cafe).Get("RateLimit-Policy"))
	refused(bearer(one)) // from this machine, too
	w.spend(bearer(two), home)

	w.spend(bearer(token("alice")), home)
	w.spend(bearer(token("alice")), cafe)
	require.Equal(t, `"user";q=10;w=5`, refused(bearer(token("alice"))).Get("RateLimit-Policy"),
		"another token of the same user")
	w.spend(bearer(token("one")), home)

	w.spend(home)
	require.Equal(t, `"address";q=5;w=5`, refused(home).Get("RateLimit-Policy"), "who does not say who they are")
	w.spend(bearer(token("bob")), home) // is nothing to who does
}

// TestLimitsOfInvalidCredentials checks that requests with invalid credentials count for their address only.
func TestLimitsOfInvalidCredentials(t *testing.T) {
	guarded, one, _, _ := twoKeys(t)
	w := newTestServer(t, fileStore(t), guarded)
	wrong, office := bearer("ls_wrong"), from("203.0.113.7")
	for range limit.Burst(1) {
		w.fails(codeUnauthenticated, http.MethodGet, "/chat", "", wrong, office)
	}
	w.fails(codeRateLimited, http.MethodGet, "/chat", "", wrong, office)
	w.fails(codeRateLimited, http.MethodGet, "/chat", "", office)
	w.spend(bearer(one), office)
	w.fails(codeUnauthenticated, http.MethodGet, "/chat", "", wrong, from("203.0.113.8"))
}

// TestLimitsOfForbiddenRequests checks that forbidden requests count, too.
func TestLimitsOfForbiddenRequests(t *testing.T) {
	guarded, _, _, token := twoKeys(t)
	w := newTestServer(t, fileStore(t), guarded)
	for range limit.Burst(2) {
		w.fails(codeForbidden, http.MethodDelete, "/chat/users/alice", "", bearer(token("alice")))
	}
	w.fails(codeRateLimited, http.MethodDelete, "/chat/users/alice", "", bearer(token("alice")))
}

// TestLimitsOfTokensInBodies checks that a token in a body counts like one in a header.
func TestLimitsOfTokensInBodies(t *testing.T) {
	guarded, _, _, token := twoKeys(t)
	w := newTestServer(t, fileStore(t), guarded)
	body := `{"token":"` + token("alice") + `"}`
	for range limit.Burst(2) {
		r := w.send(http.MethodPost, "/chat/users/alice/leave", body)
		require.Equal(t, http.StatusOK, r.status, r.body)
	}
	w.fails(codeRateLimited, http.MethodPost, "/chat/users/alice/leave", body)
	w.fails(codeRateLimited, http.MethodPost, "/chat/users/alice/ping", "", bearer(token("alice")))

	office := from("203.0.113.7")
	for range limit.Burst(1) / 2 { // each counts as a request of somebody unknown, and as a failure
		w.fails(codeUnauthenticated, http.MethodPost, "/chat/users/alice/leave", `{"token":"wrong"}`, office)
	}
	w.fails(codeRateLimited, http.MethodPost, "/chat/users/alice/leave", `{"token":"wrong"}`, office)
}

// rateLimited returns the operations that return 429 to a caller above the limit.
func rateLimited(t *testing.T, w *testServer, calls map[string]call) map[string]bool {
	t.Helper()
	limited := newTestServer(t, w.store.Store, behindProxy)
	mallory := from("203.0.113.66")
	limited.spend(mallory)
	for _, c := range calls {
		if strings.HasPrefix(c.path, "/v1/") {
			c.headers = append([]string{mallory}, c.headers...)
			require.Equal(t, http.StatusTooManyRequests, c.send(limited).status, c.operation)
		}
	}
	responded := limited.responses()
	maps.DeleteFunc(responded, func(response string, _ bool) bool {
		return !strings.HasSuffix(response, fmt.Sprint(" 429 ", codeRateLimited))
	})
	return responded
}

// spend sends requests until the caller has used up its limit.
func (w *testServer) spend(headers ...string) {
	w.t.Helper()
	for range limit.Burst(1) {
		r := w.send(http.MethodGet, "/chat", "", headers...)
		require.Equal(w.t, http.StatusOK, r.status, r.body)
	}
}
