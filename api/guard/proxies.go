package guard

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

const forwardedFor = "X-Forwarded-For"

// Proxies are the peers whose X-Forwarded-For is believed. All other peers are clients, including those on this machine
// or in its network.
type Proxies []netip.Prefix

// Client returns the address of the client that sent a request: that of the connection or, behind proxies, the last one
// in X-Forwarded-For that is not a proxy's. It is invalid if the connection has none.
//
// It reads the header from the end and stops at that address. The client controls what precedes it, which can be 90 KB
// of commas.
func (p Proxies) Client(r *http.Request) netip.Addr {
	peer := peerOf(r)
	if !p.include(peer) {
		return peer
	}
	address, rest := peer, strings.Join(r.Header[forwardedFor], ",")
	for more := rest != ""; more && p.include(address); {
		comma := strings.LastIndexByte(rest, ',')
		next, ok := parseForwarded(rest[comma+1:])
		if !ok {
			return peer
		}
		address, rest, more = next, rest[:max(comma, 0)], comma >= 0
	}
	return address
}

// peerOf returns the address of the connection of a request.
func peerOf(r *http.Request) netip.Addr {
	connection, _ := netip.ParseAddrPort(r.RemoteAddr)
	return connection.Addr().Unmap().WithZone("")
}

// IsLocal reports whether a request was sent from this machine: over a connection from it, and not forwarded by a
// trusted proxy. A loopback address in X-Forwarded-For does not count, since the client can have written it.
func (p Proxies) IsLocal(r *http.Request) bool {
	peer := peerOf(r)
	return peer.IsLoopback() && (len(r.Header[forwardedFor]) == 0 || !p.include(peer))
}

func (p Proxies) include(a netip.Addr) bool {
	return slices.ContainsFunc(p, func(network netip.Prefix) bool { return network.Contains(a) })
}

// parseForwarded parses one item of X-Forwarded-For. Some proxies write IPv6 in brackets, and some add a port.
func parseForwarded(item string) (netip.Addr, bool) {
	item = strings.TrimSpace(item)
	a, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(item, "["), "]"))
	if err != nil {
		connection, portErr := netip.ParseAddrPort(item)
		a, err = connection.Addr(), portErr
	}
	return a.Unmap(), err == nil && a.Zone() == ""
}

// NewProxies returns proxies in the form of the addresses that are compared with them: IPv4 written as IPv6 becomes
// IPv4.
func NewProxies(networks []netip.Prefix) Proxies {
	all := slices.Clone(networks)
	for i, n := range all {
		if n.Addr().Is4In6() && n.Bits() >= 96 {
			all[i] = netip.PrefixFrom(n.Addr().Unmap(), n.Bits()-96)
		}
	}
	return all
}
