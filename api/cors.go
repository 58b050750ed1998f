package api

import (
	"net/http"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
)

// preflightAge is how many seconds a browser may remember that it may ask; the most that Chromium does.
const preflightAge = 7200

// cors answers browsers that ask whether a script of another origin may call, and lets it read the answers if
// so. What was asked is not known yet, nor by whom: browsers send these questions without credentials. An
// origin that is not allowed gets the same answers without the headers, so that the browser keeps them to
// itself.
func cors(origins []string) echo.MiddlewareFunc {
	return middleware.CORSWithConfig(middleware.CORSConfig{
		Skipper: func(c echo.Context) bool {
			r := c.Request()
			return r.Method == http.MethodOptions && !isPreflight(r)
		},
		AllowOriginFunc: func(origin string) (bool, error) {
			return allowsOrigin(origins, origin), nil
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
