package api

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/lastseen/lastseen/api/problem"
)

// proxies are the peers whose X-Forwarded-For is believed. All other peers are clients, including those on this machine
// or in its network.
type proxies []netip.Prefix

// client returns the address of the client that sent a request: that of the connection or, behind proxies, the last one
// in X-Forwarded-For that is not a proxy's. It is invalid if the connection has none.
//
// It reads the header from the end and stops at that address. The client controls what precedes it, which can be 90 KB
// of commas.
func (p proxies) client(r *http.Request) netip.Addr {
	peer := peerOf(r)
	if !p.include(peer) {
		return peer
	}
	address, rest := peer, strings.Join(r.Header[echo.HeaderXForwardedFor], ",")
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

// isLocal reports whether a request was sent from this machine: over a connection from it, and not forwarded by a
// trusted proxy. A loopback address in X-Forwarded-For does not count, since the client can have written it.
func (p proxies) isLocal(r *http.Request) bool {
	peer := peerOf(r)
	return peer.IsLoopback() && (len(r.Header[echo.HeaderXForwardedFor]) == 0 || !p.include(peer))
}

func (p proxies) include(a netip.Addr) bool {
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

// unmapped returns networks in the form of the addresses that are compared with them: IPv4 written as IPv6 becomes
// IPv4.
func unmapped(networks []netip.Prefix) proxies {
	all := slices.Clone(networks)
	for i, n := range all {
		if n.Addr().Is4In6() && n.Bits() >= 96 {
			all[i] = netip.PrefixFrom(n.Addr().Unmap(), n.Bits()-96)
		}
	}
	return all
}

// checkSource returns an error if a request to an open server can come from any web page in a browser that reaches the
// server. Other servers do not need this check, because that page has no credentials.
//
// A page can make the browser send requests to this machine in two ways. It can point its own host name at this machine
// (DNS rebinding): then its requests have the same origin, and only the name in Host reveals them. Or it can send
// simple requests to another origin without reading the response.
func (s *server) checkSource(r *http.Request) error {
	if !AllowsHost(s.AllowedHosts, r.Host) {
		return problem.Errorf(problem.Forbidden, "%.100q is not an allowed host. Add it to --allowed-hosts, or use an "+
			"IP address, localhost, a name without a dot, or one that ends in %s: a server without authentication "+
			"accepts only these.", r.Host, strings.Join(localDomains(), ", "))
	}
	if origin := r.Header.Get("Origin"); origin != "" && allowsOrigin(s.CORSOrigins, origin) {
		return nil
	}
	if s.crossOrigin.Check(r) != nil {
		return problem.New(problem.Forbidden,
			"This POST or DELETE comes from a web page whose origin is not in --cors-origins. "+
				"A server without authentication accepts those of its own pages and of clients that are not browsers.")
	}
	return nil
}

// localDomains returns the suffixes of names that cannot be registered in the public DNS.
func localDomains() []string {
	return []string{".localhost", ".local", ".internal", ".svc.cluster.local"}
}

// CheckHost returns an error unless text is a valid allowed host: a name in lower case and without a port; *. and a
// domain for all names that end in it; or * for any.
func CheckHost(text string) error {
	if text == "*" || isHostname(strings.TrimPrefix(text, "*.")) {
		return nil
	}
	return fmt.Errorf("%q is not a host name: use presence.example.com, or *.example.com for all names that end "+
		"in it, in lower case and without a port", text)
}

// AllowsHost reports whether the Host of a request is a local name or one of the configured ones, which have passed
// [CheckHost]. A request without a Host, as HTTP/1.0 allows, does not come from a browser.
func AllowsHost(configured []string, host string) bool {
	if host == "" || slices.Contains(configured, "*") {
		return true
	}
	name, ok := withoutPort(host)
	if !ok {
		return false
	}
	if isAddress(name) {
		return true
	}
	name, absolute := strings.CutSuffix(name, ".")
	matches := func(allowed string) bool {
		domain, wildcard := strings.CutPrefix(allowed, "*")
		return name == allowed || wildcard && strings.HasSuffix(name, domain)
	}
	return isHostname(name) && (isLocalName(name, absolute) || slices.ContainsFunc(configured, matches))
}

// isAddress reports whether a host is an IP address; IPv6 must be in brackets.
func isAddress(host string) bool {
	inner, opened := strings.CutPrefix(host, "[")
	inner, closed := strings.CutSuffix(inner, "]")
	address, err := netip.ParseAddr(inner)
	return err == nil && address.Is6() == opened && opened == closed
}

// isLocalName reports whether a name cannot be registered in the public DNS. A name without a dot belongs to this
// network, such as that of a container. If it is absolute, with a dot at its end, it is a top-level domain.
func isLocalName(name string, absolute bool) bool {
	return name == "localhost" || !absolute && !strings.Contains(name, ".") ||
		slices.ContainsFunc(localDomains(), func(domain string) bool { return strings.HasSuffix(name, domain) })
}

// withoutPort returns a Host in lower case and without its port. It reports false if that is not a port.
func withoutPort(host string) (name string, ok bool) {
	if strings.ContainsFunc(host, func(r rune) bool { return r > '~' }) {
		return "", false // other characters could become ASCII in lower case
	}
	host = strings.ToLower(host)
	colon := strings.LastIndexByte(host, ':')
	if colon <= strings.LastIndexByte(host, ']') {
		return host, true
	}
	_, err := parsePort(host[colon+1:])
	return host[:colon], err == nil || colon == len(host)-1
}
