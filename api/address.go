package api

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"
)

// proxies are whose word is taken on where requests come from. Nobody else's is: also an address of this machine or
// of its network can be a client's.
type proxies []netip.Prefix

// client returns the address of who sent a request: that of the connection, and behind proxies the last one in
// X-Forwarded-For that none of them has. It is invalid if the connection has none.
//
// What comes before that in the header is the client's own, and not even looked at: it may be 100 KB of commas,
// which Echo's way to do this would take apart first. In all else they agree.
func (p proxies) client(r *http.Request) netip.Addr {
	peer := peerOf(r)
	address := peer
	for _, line := range slices.Backward(r.Header[echo.HeaderXForwardedFor]) {
		for more := true; more; {
			if !p.include(address) {
				return address
			}
			comma := strings.LastIndexByte(line, ',')
			next, ok := parseForwarded(line[comma+1:])
			if !ok {
				return peer
			}
			address, more = next, comma >= 0
			line = line[:max(comma, 0)]
		}
	}
	return address
}

// peerOf returns the address of the connection that a request came on.
func peerOf(r *http.Request) netip.Addr {
	connection, _ := netip.ParseAddrPort(r.RemoteAddr)
	return connection.Addr().Unmap().WithZone("")
}

// isLocal reports whether a request was sent from this machine: over a connection from it, and not forwarded by a proxy
// that is trusted. What X-Forwarded-For says does not matter: a client may have written a loopback address there.
func (p proxies) isLocal(r *http.Request) bool {
	peer := peerOf(r)
	return peer.IsLoopback() && (len(r.Header[echo.HeaderXForwardedFor]) == 0 || !p.include(peer))
}

func (p proxies) include(a netip.Addr) bool {
	return slices.ContainsFunc(p, func(network netip.Prefix) bool { return network.Contains(a) })
}

// parseForwarded reads one item of X-Forwarded-For. Some proxies write IPv6 in brackets, and some add a port.
func parseForwarded(item string) (netip.Addr, bool) {
	item = strings.TrimSpace(item)
	a, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(item, "["), "]"))
	if err != nil {
		connection, portErr := netip.ParseAddrPort(item)
		a, err = connection.Addr(), portErr
	}
	return a.Unmap(), err == nil && a.Zone() == ""
}

// unmapped returns networks as addresses are compared with them: those of IPv4 that are written as IPv6 are IPv4.
func unmapped(networks []netip.Prefix) proxies {
	all := slices.Clone(networks)
	for i, n := range all {
		if n.Addr().Is4In6() && n.Bits() >= 96 {
			all[i] = netip.PrefixFrom(n.Addr().Unmap(), n.Bits()-96)
		}
	}
	return all
}
