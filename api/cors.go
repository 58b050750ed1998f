package api

import (
	"net/http"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
)

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
