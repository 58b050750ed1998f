package api

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
)

// CheckOrigin returns an error unless an origin is valid for [Config]. It is one of:
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

// allowsOrigin reports whether one of the configured origins, which have passed [CheckOrigin], matches an origin as a
// browser sent it.
func allowsOrigin(configured []string, origin string) bool {
	return slices.ContainsFunc(configured, func(allowed string) bool { return matchesOrigin(allowed, origin) })
}

func matchesOrigin(allowed, origin string) bool {
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
}

// isOriginPort reports whether text is a colon and a port as in an origin: not the usual one of the scheme.
func isOriginPort(base, text string) bool {
	port, colon := strings.CutPrefix(text, ":")
	n, err := parsePort(port)
	scheme, _, _ := strings.Cut(base, "://")
	return colon && err == nil && n > 0 && port[0] != '0' && port != usualPort(scheme)
}

// parsePort parses a port, which has only digits.
func parsePort(text string) (uint64, error) {
	if strings.Trim(text, "0123456789") != "" {
		return 0, errors.New("not a number")
	}
	return strconv.ParseUint(text, 10, 16)
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

// preflightAge is how many seconds a browser can cache a preflight response: the maximum of Chromium.
const preflightAge = 7200

// cors responds to the preflight requests of browsers, and lets scripts of allowed origins read responses. It comes
// before routing and authentication, since browsers send preflight requests without credentials. An origin that is not
// allowed gets the same responses without the headers, so that the browser withholds them from the script.
func cors(origins []string) echo.MiddlewareFunc {
	return middleware.CORSWithConfig(middleware.CORSConfig{
		Skipper: func(c echo.Context) bool {
			r := c.Request()
			return r.Method == http.MethodOptions && !isPreflight(r)
		},
		AllowOriginFunc: func(origin string) (bool, error) {
			return allowsOrigin(origins, origin), nil
		},
		AllowMethods: []string{
			http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		},
		AllowHeaders: []string{
			"Accept", "Authorization", "baggage", "Content-Type", idempotencyKey, "If-None-Match", "Last-Event-ID",
			"Prefer", "traceparent", "tracestate", "X-Request-Id",
		},
		ExposeHeaders: []string{
			pingAfterHeader, "Preference-Applied", "Retry-After", "RateLimit", "RateLimit-Policy", "X-Request-Id",
			"ETag", "Location", "WWW-Authenticate", ageHeader,
		},
		MaxAge: preflightAge,
	})
}

// isPreflight reports whether a request is a preflight: a browser asks whether a script can send another request.
func isPreflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && r.Header.Get("Origin") != "" &&
		r.Header.Get("Access-Control-Request-Method") != ""
}
