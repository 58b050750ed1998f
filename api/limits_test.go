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

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/limit"
	"github.com/lastseen/lastseen/api/problem"
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
		c.Now, c.Limits = func() time.Time { return now }, limit.Limits{Caller: 3, User: 1}
	})
	pings := func(n int, address string) (last testResponse) {
		for range n {
			last = w.send("POST", alicePing, "", from(address)).is(t, http.StatusOK)
		}
		return last
	}
	pings(15, "203.0.113.7")
	refused := w.send("POST", alicePing, "", from("203.0.113.7")).is(t, http.StatusTooManyRequests)
	for name, want := range map[string]string{
		"Retry-After": "3", // a second, and half of the window, since Random is 0.5
		"RateLimit":   `"address";r=0;t=1`, "RateLimit-Policy": `"address";q=15;w=5`, "Cache-Control": "no-store",
	} {
		require.Equal(t, want, refused.header.Get(name))
	}
	w.fails(problem.RateLimited, "GET", "/chat?what=is+this", "", from("203.0.113.7"))
	require.NotRegexp(t, "level=(INFO|WARN|ERROR)", w.log.String(), "only at level debug")
	responded := pings(1, "203.0.113.8") // somebody else
	require.Empty(t, responded.header.Get("RateLimit"), "who is within the limit is not bothered with it")

	now = now.Add(time.Second)
	pings(3, "203.0.113.7")
	w.fails(problem.RateLimited, "POST", alicePing, "", from("203.0.113.7"))
	w.reload(func(*Config) {}) // which does not refill buckets
	w.fails(problem.RateLimited, "POST", alicePing, "", from("203.0.113.7"))
	w.reload(func(c *Config) { c.Limits = limit.Limits{} })
	pings(1, "203.0.113.7")
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
		w.sendTo(r.method, r.path, "", alice).is(t, http.StatusOK, r.path)
	}
	w.send("OPTIONS", "/chat", "", alice).is(t, http.StatusNoContent)
	w.fails(problem.NotFound, "GET", "/chat/nothing", "", alice)
	w.fails(problem.RateLimited, "GET", "/chat", "", alice)

	w.spend("X-Other: 1")
	w.spend("X-Other: 1")
}

// TestLimitsOfAddresses checks which addresses share a limit, and that one of this machine that a proxy names has one.
func TestLimitsOfAddresses(t *testing.T) {
	t.Parallel()
	for _, local := range []string{
		"127.0.0.1", "127.1.2.3", "::1", "::ffff:127.0.0.1", "unknown", "", "203.0.113.7, ::1",
	} {
		w := newTestServer(t, fileStore(t), behindProxy)
		w.spend(from(local))
		w.fails(problem.RateLimited, "GET", "/chat", "", from(local))
	}
	unknownProxy := newTestServer(t, fileStore(t), behindProxy, func(c *Config) { c.TrustedProxies = nil })
	for range 2 {
		unknownProxy.spend(from("203.0.113.7")) // a proxy that is not configured would be one caller for everybody
	}
	w := newTestServer(t, fileStore(t), behindProxy)
	w.spend(from("2001:db8:0:1::1"))
	w.fails(problem.RateLimited, "GET", "/chat", "", from("2001:db8:0:1:ffff::2"))
	w.spend(from("2001:db8:0:2::1"))
	w.spend(from("203.0.113.7"))
	for _, same := range []string{
		"::ffff:203.0.113.7", " 203.0.113.7 ", "[203.0.113.7]", "198.51.100.1, 203.0.113.7", "127.0.0.1,203.0.113.7",
	} {
		w.fails(problem.RateLimited, "GET", "/chat", "", from(same))
	}
	w.fails(problem.RateLimited, "GET", "/chat", "", from("198.51.100.1"), from("203.0.113.7"))
}

// TestLimitsOfCallers checks that an authenticated caller has one limit, from any address.
func TestLimitsOfCallers(t *testing.T) {
	guarded, one, two, token := twoKeys(t)
	w := newTestServer(t, fileStore(t), guarded)
	home, cafe := from("203.0.113.7"), from("198.51.100.1")
	refused := func(headers ...string) http.Header {
		t.Helper()
		r := w.send("GET", "/chat", "", headers...).is(t, http.StatusTooManyRequests)
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

// TestLimitsOfRefusedRequests checks that requests with invalid credentials count for their address only, and forbidden
// ones for their caller.
func TestLimitsOfRefusedRequests(t *testing.T) {
	guarded, one, _, token := twoKeys(t)
	w := newTestServer(t, fileStore(t), guarded)
	wrong, office := bearer("ls_wrong"), from("203.0.113.7")
	for range limit.Burst(1) {
		w.fails(problem.Unauthenticated, "GET", "/chat", "", wrong, office)
	}
	w.fails(problem.RateLimited, "GET", "/chat", "", wrong, office)
	w.fails(problem.RateLimited, "GET", "/chat", "", office)
	w.spend(bearer(one), office)
	w.fails(problem.Unauthenticated, "GET", "/chat", "", wrong, from("203.0.113.8"))
	for range limit.Burst(2) {
		w.fails(problem.Forbidden, "DELETE", aliceUser, "", bearer(token("alice")))
	}
	w.fails(problem.RateLimited, "DELETE", aliceUser, "", bearer(token("alice")))
}

// TestLimitsOfConnections: an upgrade counts for its address before anything is read, whatever comes of it, and a hello
// for its caller.
func TestLimitsOfConnections(t *testing.T) {
	guarded, one, _, token := twoKeys(t)
	w := newSocketServer(t, guarded)
	office := from("203.0.113.7")
	for range limit.Burst(1) - 2 {
		s := w.dialSocket("chat", office)
		s.send(`{"hello":` + strings.Repeat("[", lastseen.MaxDepth))
		s.fails(problem.InvalidJSON)
	}
	w.fails(problem.UpgradeRequired, "GET", "/chat/connect", "", office)
	w.hello(`{"user":"alice","token":"`+token("alice")+`"}`, office)
	refused := w.send("GET", "/chat/connect", "", upgradeHeaders(office, bearer(one))...)
	refused.is(t, http.StatusTooManyRequests)
	require.Equal(t, `"address";q=5;w=5`, refused.header.Get("RateLimit-Policy"))
	w.spend(bearer(one), office)

	for range limit.Burst(1) {
		w.hello(`{}`, from("203.0.113.8")) // the upgrade has paid for a client without credentials
	}
	w.refused(problem.RateLimited, from("203.0.113.8"))
	for range 2 * limit.Burst(1) {
		w.dialSocket("chat") // from this machine
	}
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
		return !strings.HasSuffix(response, fmt.Sprint(" 429 ", problem.RateLimited))
	})
	return responded
}

// spend sends requests until the caller has used up its limit.
func (w *testServer) spend(headers ...string) {
	w.t.Helper()
	for range limit.Burst(1) {
		w.send("GET", "/chat", "", headers...).is(w.t, http.StatusOK)
	}
}
