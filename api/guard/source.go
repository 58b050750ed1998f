// Package guard decides whose requests a server takes, which ones it refuses under load, and how many connections it
// keeps.
package guard

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/lastseen/lastseen/api/problem"
)

// Sources are where requests of browsers to a server can come from.
type Sources struct {
	Hosts       []string // that have passed [CheckHost], besides local names
	Origins     []string // that have passed [CheckOrigin], besides the server's own
	crossOrigin http.CrossOriginProtection
}

// Check returns an error if a request to an open server can come from any web page in a browser that reaches the
// server. Other servers do not need this check, because that page has no credentials.
//
// A page can make the browser send requests to this machine in two ways. It can point its own host name at this machine
// (DNS rebinding): then its requests have the same origin, and only the name in Host reveals them. Or it can send
// simple requests to another origin without reading the response.
func (s *Sources) Check(r *http.Request) error {
	if !AllowsHost(s.Hosts, r.Host) {
		return problem.Errorf(problem.Forbidden, "%.100q is not an allowed host. Add it to --allowed-hosts, or use an "+
			"IP address, localhost, a name without a dot, or one that ends in %s: a server without authentication "+
			"accepts only these.", r.Host, strings.Join(localDomains(), ", "))
	}
	if origin := r.Header.Get("Origin"); origin != "" && AllowsOrigin(s.Origins, origin) {
		return nil
	}
	if s.crossOrigin.Check(r) != nil {
		return problem.New(problem.Forbidden,
			"This POST or DELETE comes from a web page whose origin is not in --cors-origins. "+
				"A server without authentication accepts those of its own pages and of clients that are not browsers.")
	}
	return nil
}

// CheckSocket returns an error if a browser sends a request for a page of another origin that is not allowed:
// browsers apply their own rules of origins to WebSockets only by sending the origin. Other clients send none.
func (s *Sources) CheckSocket(r *http.Request) error {
	origins := r.Header["Origin"]
	allowed := len(origins) == 1 && (isOriginOf(origins[0], r.Host) || AllowsOrigin(s.Origins, origins[0]))
	if len(origins) == 0 || allowed {
		return nil
	}
	return problem.New(problem.Forbidden, "This WebSocket comes from a web page whose origin is not in --cors-origins.")
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
	_, err := strconv.ParseUint(host[colon+1:], 10, 16)
	return host[:colon], err == nil || colon == len(host)-1
}
