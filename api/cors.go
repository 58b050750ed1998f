package api

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
)

// preflightAge is how many seconds a browser may remember that it may ask; the most that Chromium does.
const preflightAge = 7200

// cors answers browsers that ask whether a script of another origin may call, and lets it read the answers if
// so. What was asked is not known yet, nor by whom: browsers send these questions without credentials. An
// origin that is not allowed gets the same answers without the headers, so that the browser keeps them to
// itself.
func cors(origins func() []string) echo.MiddlewareFunc {
	return middleware.CORSWithConfig(middleware.CORSConfig{
		Skipper: func(c echo.Context) bool {
			r := c.Request()
			return len(origins()) == 0 || r.Method == http.MethodOptions && !isPreflight(r)
		},
		AllowOriginFunc: func(origin string) (bool, error) {
			allowed := origins()
			return slices.Contains(allowed, origin) || slices.Contains(allowed, "*"), nil
		},
		AllowMethods: []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodDelete},
		AllowHeaders: []string{"Authorization", "Content-Type", "If-None-Match", "Prefer", "X-Request-Id"},
		ExposeHeaders: []string{
			pingAfterHeader, "Preference-Applied", "Retry-After", "RateLimit", "RateLimit-Policy", "X-Request-Id", "ETag",
			"WWW-Authenticate",
		},
		MaxAge: preflightAge,
	})
}

// isPreflight reports whether a browser asks for a script whether it may send a request.
func isPreflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && r.Header.Get("Origin") != "" && r.Header.Get("Access-Control-Request-Method") != ""
}

// CheckOrigin tells what is wrong with an origin that is to be allowed: it has to be as browsers send it, since
// that is what it is compared with. "null" is refused, which is the origin of anybody's sandboxed frame.
func CheckOrigin(origin string) error {
	if origin == "*" {
		return nil
	}
	u, err := url.Parse(origin)
	if err != nil || !isOrigin(u, origin) {
		return fmt.Errorf("%q is no origin as browsers send it: https://app.example.com or http://localhost:3000, in lower case, without a path, and without a port that goes without saying", origin)
	}
	return nil
}

// isOrigin reports whether a URL is written as the origin that it belongs to.
func isOrigin(u *url.URL, origin string) bool {
	bare := (&url.URL{Scheme: u.Scheme, Host: u.Host}).String() // which escapes what no host has
	usual := map[string]string{"http": "80", "https": "443"}[u.Scheme]
	return u.Scheme != "" && u.Hostname() != "" && origin == bare && origin == strings.ToLower(bare) && !strings.ContainsAny(origin, "*%") &&
		!strings.HasSuffix(origin, ":") && !strings.HasSuffix(origin, ":"+usual)
}
