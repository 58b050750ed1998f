package guard

import (
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

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
		{"in their own lines", proxy, []string{"198.51.100.1", client}, client},
		{"a client who claims to be local", proxy, []string{"127.0.0.1, " + client}, client},
		{"a client who claims to be a proxy", proxy, []string{proxy + ", " + client}, client},
		{"two proxies", proxy, []string{client + ", " + edge}, client},
		{"two proxies, in their own lines", proxy, []string{client, edge}, client},
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
		require.Equal(t, c.want, NewProxies(someProxies()).Client(request).String(), c.why)
		alone := netip.MustParseAddr(c.peer).Unmap().WithZone("")
		require.Equal(t, alone, Proxies(nil).Client(request), "without proxies: %s", c.why)
	}
	request := forwarded(client)
	request.RemoteAddr = "@" // a socket without addresses
	require.False(t, Proxies(nil).Client(request).IsValid())
}

// TestClientAllocations checks that a long header costs no memory, whatever the client writes into it.
func TestClientAllocations(t *testing.T) {
	ours := NewProxies(someProxies())
	commas := strings.Repeat(",", 96<<10)
	for _, request := range []*http.Request{
		forwarded("203.0.113.7", commas), forwarded("10.1.2.3", commas), forwarded("10.1.2.3", commas+"203.0.113.7"),
	} {
		require.LessOrEqual(t, testing.AllocsPerRun(10, func() { ours.Client(request) }), 2.0, "but for two errors")
	}
	usual := forwarded("10.1.2.3", "198.51.100.1, 203.0.113.7, 10.1.2.4")
	require.Zero(t, testing.AllocsPerRun(10, func() { ours.Client(usual) }))
}

// FuzzForwardedFor checks that what a client writes before the entry of a trusted proxy changes nothing.
func FuzzForwardedFor(f *testing.F) {
	for _, seed := range []string{
		"127.0.0.1", "10.1.0.1, 10.1.0.2", "::1", "[::1]:80", "unknown, _hidden", "203.0.113.7:443", ",,", "\x00",
	} {
		f.Add(seed)
	}
	trusted := NewProxies([]netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")})
	find := func(r *http.Request) string { return trusted.Client(r).String() }
	f.Fuzz(func(t *testing.T, said string) {
		behind := &http.Request{
			RemoteAddr: "10.1.2.3:1",
			Header:     http.Header{forwardedFor: {said + ", 203.0.113.7"}},
		}
		require.Equal(t, "203.0.113.7", find(behind))
		behind.Header[forwardedFor] = []string{said, "203.0.113.7"}
		require.Equal(t, "203.0.113.7", find(behind))
		direct := &http.Request{RemoteAddr: "203.0.113.7:1", Header: http.Header{forwardedFor: {said}}}
		require.Equal(t, "203.0.113.7", find(direct))
	})
}
