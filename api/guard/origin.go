package guard

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// CheckOrigin returns an error unless an origin is valid for [Sources]. It is one of:
//
//   - an origin as browsers send it, such as https://app.example.com or http://localhost:3000
//   - all subdomains of a domain of two labels or more: https://*.example.com, also with a port. They can have one or
//     more labels before the domain.
//   - any port of this machine: http://localhost:*, or a loopback address
//   - * for any origin
//
// "null" is refused: it is the origin of every sandboxed frame.
func CheckOrigin(origin string) error {
	domain, anySubdomain := cutSubdomain(origin)
	base, anyPort := strings.CutSuffix(origin, ":*")
	switch {
	case origin == "*":
		return nil
	case anySubdomain:
		return checkSubdomains(origin, domain)
	case anyPort:
		return checkPorts(origin, base)
	}
	if u, err := url.Parse(origin); err != nil || !isOrigin(u, origin) {
		return fmt.Errorf("%q is not an origin as browsers send it: use https://app.example.com or "+
			"http://localhost:3000, in lower case, without a path, and without the port if it is the usual one", origin)
	}
	return nil
}

// checkSubdomains returns an error unless an origin with *. before its domain is valid.
func checkSubdomains(pattern, domain string) error {
	u, err := url.Parse(domain)
	if err != nil || !isOrigin(u, domain) || !isHostname(u.Hostname()) || usualPort(u.Scheme) == "" {
		return fmt.Errorf("%q is not an origin with *. before its domain: use https://*.example.com, in lower case",
			pattern)
	}
	labels := strings.Split(u.Hostname(), ".")
	if _, err := strconv.Atoi(labels[len(labels)-1]); err == nil || len(labels) < 2 {
		return fmt.Errorf("%q allows too much: *. must precede a domain of two labels or more, as in "+
			"https://*.example.com", pattern)
	}
	return nil
}

// checkPorts returns an error unless an origin with * for its port is valid.
func checkPorts(pattern, base string) error {
	u, err := url.Parse(base)
	if err != nil || !isOrigin(u, base) || u.Port() != "" || usualPort(u.Scheme) == "" || !isLoopback(u.Hostname()) {
		return fmt.Errorf("%q is not an origin of this machine with * for its port: "+
			"use http://localhost:* or http://127.0.0.1:*", pattern)
	}
	return nil
}

// isOrigin reports whether a URL is an origin as browsers write it.
func isOrigin(u *url.URL, origin string) bool {
	bare := (&url.URL{Scheme: u.Scheme, Host: u.Host}).String() // escapes characters that hosts do not have
	return u.Scheme != "" && u.Hostname() != "" && origin == bare && origin == strings.ToLower(bare) &&
		!strings.ContainsAny(origin, "*%") && !strings.HasSuffix(origin, ":") &&
		!strings.HasSuffix(origin, ":"+usualPort(u.Scheme))
}

// usualPort returns the port that browsers omit from an origin; "" if the scheme is not one of the web.
func usualPort(scheme string) string { return map[string]string{"http": "80", "https": "443"}[scheme] }

// isLoopback reports whether a name or address always means this machine.
func isLoopback(host string) bool {
	address, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && address.IsLoopback()
}

// AllowsOrigin reports whether one of the configured origins, which have passed [CheckOrigin], matches an origin as a
// browser sent it.
func AllowsOrigin(configured []string, origin string) bool {
	return slices.ContainsFunc(configured, func(allowed string) bool {
		if _, anySubdomain := cutSubdomain(allowed); anySubdomain {
			scheme, domain, _ := strings.Cut(allowed, "*")
			rest, under := strings.CutSuffix(origin, domain)
			subdomain, same := strings.CutPrefix(rest, scheme)
			return under && same && isHostname(subdomain)
		}
		if base, anyPort := strings.CutSuffix(allowed, ":*"); anyPort {
			port, same := strings.CutPrefix(origin, base)
			return same && (port == "" || isOriginPort(base, port))
		}
		return allowed == "*" || allowed == origin
	})
}

// isOriginPort reports whether text is a colon and a port as in an origin: not the usual one of the scheme.
func isOriginPort(base, text string) bool {
	port, colon := strings.CutPrefix(text, ":")
	n, err := strconv.ParseUint(port, 10, 16)
	scheme, _, _ := strings.Cut(base, "://")
	return colon && err == nil && n > 0 && port[0] != '0' && port != usualPort(scheme)
}

// cutSubdomain returns an origin without the *. before its domain, and whether there is one.
func cutSubdomain(origin string) (domain string, found bool) {
	scheme, rest, _ := strings.Cut(origin, "://")
	rest, found = strings.CutPrefix(rest, "*.")
	return scheme + "://" + rest, found
}

// isHostname reports whether text is a DNS name as browsers send it: labels of lower-case letters, digits, hyphens and
// underscores, separated by dots.
func isHostname(text string) bool {
	if len(text) > 253 {
		return false
	}
	for label := range strings.SplitSeq(text, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' ||
			strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return false
		}
	}
	return true
}

// isOriginOf reports whether an origin is that of the pages of a host. The scheme can be another one than that of this
// server: a proxy may add or remove TLS.
func isOriginOf(origin, host string) bool {
	u, err := url.Parse(origin)
	if err != nil || usualPort(u.Scheme) == "" || u.Host == "" || origin != u.Scheme+"://"+u.Host {
		return false
	}
	usual := ":" + usualPort(u.Scheme)
	return strings.EqualFold(strings.TrimSuffix(u.Host, usual), strings.TrimSuffix(host, usual))
}
