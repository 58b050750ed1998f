package guard

import (
	"log/slog"
	"net/http"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"

	"github.com/lastseen/lastseen/api/request"
	"github.com/lastseen/lastseen/api/telemetry"
)

// preflightAge is how many seconds a browser can cache a preflight response: the maximum of Chromium.
const preflightAge = 7200

// CORS responds to the preflight requests of browsers, and lets scripts of allowed origins read responses. It comes
// before routing and authentication, since browsers send preflight requests without credentials. An origin that is not
// allowed gets the same responses without the headers, so that the browser withholds them from the script.
func CORS(origins []string) echo.MiddlewareFunc {
	return middleware.CORSWithConfig(middleware.CORSConfig{
		Skipper: func(c echo.Context) bool {
			return c.Request().Method == http.MethodOptions && !isPreflight(c.Request())
		},
		AllowOriginFunc: func(origin string) (bool, error) { return AllowsOrigin(origins, origin), nil },
		AllowMethods: []string{
			http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		},
		AllowHeaders: []string{
			"Accept", "Authorization", "baggage", "Content-Type", request.IdempotencyKey, "If-None-Match",
			"Last-Event-ID", "Prefer", "traceparent", "tracestate", "X-Request-Id",
		},
		ExposeHeaders: []string{
			request.PingAfterHeader, "Preference-Applied", "Retry-After", "RateLimit", "RateLimit-Policy",
			"X-Request-Id", "ETag", "Location", "WWW-Authenticate", request.AgeHeader,
		},
		MaxAge: preflightAge,
	})
}

// isPreflight reports whether a request is a preflight: a browser asks whether a script can send another request.
func isPreflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && r.Header.Get("Origin") != "" &&
		r.Header.Get("Access-Control-Request-Method") != ""
}

// ExplainCORS logs why a browser refuses a call of a page: these refusals have no status. It looks at the response, as
// the browser does. The level is debug, but info for the first refusal of an origin in an hour. The attributes are
// those of a request.
func ExplainCORS(
	logger *slog.Logger, hourly *telemetry.Throttle, attributes func(echo.Context) []slog.Attr,
) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			err := next(c)
			r := c.Request()
			if r.Header.Get(echo.HeaderOrigin) == "" || !logger.Enabled(r.Context(), slog.LevelInfo) {
				return err
			}
			reason := corsRefusal(r, c.Response().Header())
			if reason == "" {
				return err
			}
			message := "response withheld from page"
			if isPreflight(r) {
				message = "preflight refused"
			}
			origin := telemetry.Quotable(r.Header.Get(echo.HeaderOrigin))
			attrs := append(attributes(c), slog.String("origin", origin),
				slog.String("reason", telemetry.Quotable(reason)))
			if reason == unlistedOrigin {
				hourly.Log(slog.LevelInfo, origin, message, attrs...)
			} else {
				logger.LogAttrs(r.Context(), slog.LevelDebug, message, attrs...)
			}
			return err
		}
	}
}

const unlistedOrigin = "the origin is not one of cors-origins"

// corsRefusal returns why a browser withholds a response from the page that sent the request; "" if it does not.
func corsRefusal(r *http.Request, response http.Header) string {
	_, host, _ := strings.Cut(r.Header.Get(echo.HeaderOrigin), "://")
	method := r.Header.Get(echo.HeaderAccessControlRequestMethod)
	switch {
	case response.Get(echo.HeaderAccessControlAllowOrigin) == "":
		if !isPreflight(r) && host == r.Host {
			return "" // a page of this server; browsers send no preflight requests for these
		}
		return unlistedOrigin
	case !isPreflight(r):
		return ""
	case !listed(response.Get(echo.HeaderAccessControlAllowMethods), method):
		return "the method is not allowed for pages: " + method
	}
	for header := range strings.SplitSeq(r.Header.Get(echo.HeaderAccessControlRequestHeaders), ",") {
		header = strings.TrimSpace(header)
		if header != "" && !listed(response.Get(echo.HeaderAccessControlAllowHeaders), header) {
			return "the header is not allowed for pages: " + header
		}
	}
	return ""
}

// listed reports whether a comma-separated list in a header has an item.
func listed(list, item string) bool {
	return slices.ContainsFunc(strings.Split(list, ","), func(listed string) bool {
		return strings.EqualFold(strings.TrimSpace(listed), item)
	})
}
