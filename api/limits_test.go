package api

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api/limit"
)

// behindProxy has the server take the word of a proxy on this machine, which a test's client then is, on where
// requests come from; and limits those of an address to 5 at once.
func behindProxy(c *Config) {
	c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
	c.Limits = func() limit.Limits { return limit.Limits{Caller: 1} }
	c.Now = func() time.Time { return time.Unix(0, 0) }
}

// from is the header by which a proxy says who asks.
func from(address string) string { return "X-Forwarded-For: " + address }

// spend sends requests that are answered, until nothing is left of what the caller may send.
func (w *world) spend(headers ...string) {
	w.t.Helper()
	for range limit.Quota(1) {
		r := w.send(http.MethodGet, "/chat", "", headers...)
		require.Equal(w.t, http.StatusOK, r.status, r.body)
	}
}

// TestLimits: what a caller beyond the limit is told, and that nobody else is.
func TestLimits(t *testing.T) {
	now, limits := time.Unix(0, 0), limit.Limits{Caller: 3, User: 1}
	w := newWorld(t, fileStore(t), behindProxy, func(c *Config) {
		c.Now = func() time.Time { return now }
		c.Limits = func() limit.Limits { return limits }
	})
	ping := func(address string) reply {
		return w.send(http.MethodPost, "/chat/users/alice/ping", "", from(address))
	}
	for range 15 {
		require.Equal(t, http.StatusOK, ping("203.0.113.7").status)
	}
	refused := ping("203.0.113.7")
	require.Equal(t, http.StatusTooManyRequests, refused.status)
	require.Equal(t, "1", refused.header.Get("Retry-After"))
	require.Equal(t, `"address";r=0;t=1`, refused.header.Get("RateLimit"))
	require.Equal(t, `"address";q=15;w=5`, refused.header.Get("RateLimit-Policy"))
	require.Equal(t, "no-store", refused.header.Get("Cache-Control"))
	w.fails(codeRateLimited, http.MethodGet, "/chat?what=is+this", "", from("203.0.113.7"))
	require.Empty(t, w.log.String(), "it is no matter for the log")

	answered := ping("203.0.113.8")
	require.Equal(t, http.StatusOK, answered.status, "somebody else")
	require.Empty(t, answered.header.Get("RateLimit"), "who is within the limit is not bothered with it")

	now = now.Add(time.Second)
	for range 3 {
		require.Equal(t, http.StatusOK, ping("203.0.113.7").status)
	}
	require.Equal(t, http.StatusTooManyRequests, ping("203.0.113.7").status)
	limits = limit.Limits{}
	require.Equal(t, http.StatusOK, ping("203.0.113.7").status, "limits are asked for at every request")
}

// TestWhatIsNotLimited: probes and pages, and callers on this machine.
func TestWhatIsNotLimited(t *testing.T) {
	w := newWorld(t, fileStore(t), behindProxy)
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

	for _, local := range []string{"X-Other: 1", from("127.0.0.1"), from("127.1.2.3"), from("::1"), from("::ffff:127.0.0.1")} {
		w.spend(local)
		w.spend(local)
	}
}

// TestAddressesOfCallers: whose requests are counted together.
func TestAddressesOfCallers(t *testing.T) {
	w := newWorld(t, fileStore(t), behindProxy)
	w.spend(from("2001:db8:0:1::1"))
	w.fails(codeRateLimited, http.MethodGet, "/chat", "", from("2001:db8:0:1:ffff::2"))
	w.spend(from("2001:db8:0:2::1"))
	w.spend(from("203.0.113.7"))
	for _, same := range []string{"::ffff:203.0.113.7", " 203.0.113.7 ", "[203.0.113.7]", "198.51.100.1, 203.0.113.7", "127.0.0.1,203.0.113.7"} {
		w.fails(codeRateLimited, http.MethodGet, "/chat", "", from(same))
	}
	w.fails(codeRateLimited, http.MethodGet, "/chat", "", from("198.51.100.1"), from("203.0.113.7"))
}

// TestAddressOf: nobody but a proxy that is configured decides what a client's address is.
func TestAddressOf(t *testing.T) {
	const client, proxy, edge = "203.0.113.7", "10.1.2.3", "2001:db8::e"
	proxies := []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("2001:db8::e/128")}
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
		{"nor one by IPv6", "fe80::1", []string{"198.51.100.1"}, "fe80::1"},
		{"a proxy", proxy, []string{client}, client},
		{"a proxy, as a socket for IPv4 and IPv6 calls it", "::ffff:" + proxy, []string{client}, client},
		{"a proxy that asks on its own", proxy, nil, proxy},
		{"a header of the client's, which the proxy adds to", proxy, []string{"198.51.100.1, " + client}, client},
		{"in lines of their own", proxy, []string{"198.51.100.1", client}, client},
		{"a client who claims to be local", proxy, []string{"127.0.0.1, " + client}, client},
		{"a client who claims to be a proxy", proxy, []string{proxy + ", " + client}, client},
		{"two proxies", proxy, []string{client + ", " + edge}, client},
		{"two proxies, and a header of the client's", proxy, []string{"198.51.100.1," + client + "," + edge}, client},
		{"rubbish of the client's", proxy, []string{"rubbish, ;<script>, " + client}, client},
		{"IPv6", edge, []string{"2001:db8:1::7"}, "2001:db8:1::7"},
		{"IPv6 in brackets", edge, []string{"[2001:db8:1::7]"}, "2001:db8:1::7"},
		{"rubbish of the proxy's", proxy, []string{"unknown"}, proxy},
		{"nothing in the header", proxy, []string{""}, proxy},
		{"only commas", proxy, []string{",,,"}, proxy},
		{"a zone, which means something on another machine", proxy, []string{"fe80::1%eth0"}, proxy},
		{"a number that is no address", proxy, []string{"3405803783"}, proxy},
		{"octal", proxy, []string{"0203.0.113.7"}, proxy},
	} {
		request := httptest.NewRequest(http.MethodGet, "/", nil)
		request.RemoteAddr = netip.AddrPortFrom(netip.MustParseAddr(c.peer), 4711).String()
		request.Header["X-Forwarded-For"] = c.forwarded
		got, err := netip.ParseAddr(addressOf(proxies)(request))
		require.NoError(t, err, c.why)
		require.Equal(t, netip.MustParseAddr(c.want), got.Unmap(), c.why)

		request.Header.Set("X-Real-IP", "198.51.100.1")
		request.Header.Set("Forwarded", "for=198.51.100.1")
		require.Equal(t, netip.MustParseAddr(c.peer).String(), addressOf(nil)(request), "without proxies: %s", c.why)
	}
}

// rateLimited returns which operations tell a caller beyond the limit so.
func rateLimited(t *testing.T, w *world, calls map[string]call) map[string]bool {
	t.Helper()
	limited := newWorld(t, w.store.Store, behindProxy)
	mallory := from("203.0.113.66")
	limited.spend(mallory)
	for _, c := range calls {
		if strings.HasPrefix(c.path, "/v1/") {
			c.headers = append([]string{mallory}, c.headers...)
			require.Equal(t, http.StatusTooManyRequests, c.send(limited).status, c.operation)
		}
	}
	answered := limited.answers()
	maps.DeleteFunc(answered, func(answer string, _ bool) bool {
		return !strings.HasSuffix(answer, fmt.Sprint(" 429 ", codeRateLimited))
	})
	return answered
}
