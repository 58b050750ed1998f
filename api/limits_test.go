package api

import (
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v4"
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

// someProxies returns a network, one address, and an IPv4 network in IPv6-mapped form.
func someProxies() []netip.Prefix {
	return []netip.Prefix{
		netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("2001:db8::e/128"),
		netip.MustParsePrefix("::ffff:10.9.0.0/112"),
	}
}

// forwarded returns a request from a peer with X-Forwarded-For headers.
func forwarded(peer string, lines ...string) *http.Request {
	request := httptest.NewRequest("GET", "/", nil)
	request.RemoteAddr = net.JoinHostPort(peer, "4711")
	request.Header["X-Forwarded-For"] = lines
	request.Header.Set("X-Real-IP", "198.51.100.99")
	request.Header.Set("Forwarded", "for=198.51.100.99")
	return request
}

// TestClient checks that only a configured proxy decides what a client's address is.
func TestClient(t *testing.T) {
	const client, proxy, edge = "203.0.113.7", "10.1.2.3", "2001:db8::e"
	for _, c := range []struct {
		why, peer string
		forwarded []string
		want      string
	}{
		{"no proxy", client, nil, client},
		{"no proxy, and a header of the client's own", client, []string{"198.51.100.1"}, client},
		{"one who claims to be a proxy", client, []string{proxy}, client},
		{"this machine is no proxy unless it is said to be", "127.0.0.1", []string{"198.51.100.1"}, "127.0.0.1"},
		{"nor is this network", "10.2.0.1", []string{"198.51.100.1"}, "10.2.0.1"},
		{"nor that", "192.168.1.1", []string{"198.51.100.1"}, "192.168.1.1"},
		{"nor a neighbour", "169.254.1.1", []string{"198.51.100.1"}, "169.254.1.1"},
		{"nor one by IPv6", "fe80::1%eth0", []string{"198.51.100.1"}, "fe80::1"},
		{"a proxy", proxy, []string{client}, client},
		{"a proxy, as a socket for IPv4 and IPv6 calls it", "::ffff:" + proxy, []string{client}, client},
		{"a proxy that is configured like that", "10.9.1.1", []string{client}, client},
		{"a proxy that asks on its own", proxy, nil, proxy},
		{"a header of the client's, which the proxy adds to", proxy, []string{"198.51.100.1, " + client}, client},
		{"in lines of their own", proxy, []string{"198.51.100.1", client}, client},
		{"a client who claims to be local", proxy, []string{"127.0.0.1, " + client}, client},
		{"a client who claims to be a proxy", proxy, []string{proxy + ", " + client}, client},
		{"two proxies", proxy, []string{client + ", " + edge}, client},
		{"two proxies, in lines of their own", proxy, []string{client, edge}, client},
		{"two proxies, and a header of the client's", proxy, []string{"198.51.100.1," + client + "," + edge}, client},
		{"a proxy behind another that asks on its own", proxy, []string{edge}, edge},
		{"rubbish of the client's", proxy, []string{"rubbish, ;<script>, " + client}, client},
		{"IPv6", edge, []string{"2001:db8:1::7"}, "2001:db8:1::7"},
		{"IPv6 in brackets", edge, []string{"[2001:db8:1::7]"}, "2001:db8:1::7"},
		{"IPv6 with a port", edge, []string{"[2001:db8:1::7]:4711"}, "2001:db8:1::7"},
		{"IPv4 with a port", proxy, []string{client + ":4711"}, client},
		{"rubbish of the proxy's", proxy, []string{"unknown"}, proxy},
		{"nothing in the header", proxy, []string{""}, proxy},
		{"only commas", proxy, []string{",,,"}, proxy},
		{"a comma at the end", proxy, []string{client + ","}, proxy},
		{"a zone, which means something on another machine", proxy, []string{"fe80::1%eth0"}, proxy},
		{"a number that is no address", proxy, []string{"3405803783"}, proxy},
		{"octal", proxy, []string{"0203.0.113.7"}, proxy},
	} {
		request := forwarded(c.peer, c.forwarded...)
		require.Equal(t, c.want, unmapped(someProxies()).client(request).String(), c.why)
		alone := netip.MustParseAddr(c.peer).Unmap().WithZone("")
		require.Equal(t, alone, proxies(nil).client(request), "without proxies: %s", c.why)
	}
	request := forwarded(client)
	request.RemoteAddr = "@" // a socket without addresses
	require.False(t, proxies(nil).client(request).IsValid())
}

// TestClientAllocations checks that a long header costs no memory, whatever the client writes into it.
func TestClientAllocations(t *testing.T) {
	ours := unmapped(someProxies())
	commas := strings.Repeat(",", maxHeaderBytes)
	for _, request := range []*http.Request{
		forwarded("203.0.113.7", commas), forwarded("10.1.2.3", commas), forwarded("10.1.2.3", commas+"203.0.113.7"),
	} {
		require.LessOrEqual(t, testing.AllocsPerRun(10, func() { ours.client(request) }), 2.0, "but for two errors")
	}
	usual := forwarded("10.1.2.3", "198.51.100.1, 203.0.113.7, 10.1.2.4")
	require.Zero(t, testing.AllocsPerRun(10, func() { ours.client(usual) }))
}

// FuzzForwardedFor checks that what a client writes before the entry of a trusted proxy changes nothing.
func FuzzForwardedFor(f *testing.F) {
	for _, seed := range []string{
		"127.0.0.1", "10.1.0.1, 10.1.0.2", "::1", "[::1]:80", "unknown, _hidden", "203.0.113.7:443", ",,", "\x00",
	} {
		f.Add(seed)
	}
	trusted := unmapped([]netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")})
	find := func(r *http.Request) string { return trusted.client(r).String() }
	f.Fuzz(func(t *testing.T, said string) {
		behind := &http.Request{
			RemoteAddr: "10.1.2.3:1",
			Header:     http.Header{echo.HeaderXForwardedFor: {said + ", 203.0.113.7"}},
		}
		require.Equal(t, "203.0.113.7", find(behind))
		behind.Header[echo.HeaderXForwardedFor] = []string{said, "203.0.113.7"}
		require.Equal(t, "203.0.113.7", find(behind))
		direct := &http.Request{RemoteAddr: "203.0.113.7:1", Header: http.Header{echo.HeaderXForwardedFor: {said}}}
		require.Equal(t, "203.0.113.7", find(direct))
	})
}
