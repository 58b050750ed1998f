package api

import (
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"

	"github.com/lastseen/lastseen/api/guard"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/api/request"
	"github.com/lastseen/lastseen/api/telemetry"
)

// Limits on the time of a request and the size of its header. A lookup of 100 users by GET fits: 100 × 256 bytes,
// percent-encoded.
const (
	headerTimeout  = 5 * time.Second
	writeTimeout   = 30 * time.Second // of the response, after the request was read
	idleTimeout    = 2 * time.Minute
	maxHeaderBytes = 96 << 10
	maxHeaderLines = 100             // more than browsers and several proxies send
	maxStreams     = 100             // requests at the same time on an HTTP/2 connection
	streamBuffer   = 64 << 10        // bytes of bodies that an HTTP/2 connection buffers before they are read
	maxDrain       = 64 << 20        // bytes of a body that are read after an error
	drainTimeout   = 5 * time.Second // for these
)

// NewServer returns an HTTP server for the handler, with limits against slow and hostile clients.
func NewServer(h http.Handler, logger *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           closeAmbiguous(h),
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       request.Timeout,
		WriteTimeout:      request.Timeout + writeTimeout, // both start at the header
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          telemetry.ServerLog(logger),
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams, MaxReceiveBufferPerStream: streamBuffer,
			MaxReceiveBufferPerConnection: streamBuffer,
		},
	}
}

// closeAmbiguous makes a request the last one on its connection if a proxy may have seen its end elsewhere: a chunked
// request may have had a Content-Length, too, and an HTTP/1.0 request chunks, which package net/http hides. What
// follows may be a request smuggled through that proxy. See RFC 9112, section 6.1.
func closeAmbiguous(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor == 1 && (len(r.TransferEncoding) > 0 || r.ProtoMinor == 0) {
			w.Header().Set(echo.HeaderConnection, "close")
		}
		h.ServeHTTP(w, r)
	})
}

// drainBody sends the response now, and reads and discards the rest of the body, within limits. Otherwise the
// connection would be closed while the client still sends, and the client would lose the response.
func drainBody(c echo.Context) {
	if c.Request().ContentLength == 0 {
		return
	}
	controller := http.NewResponseController(c.Response().Writer)
	_ = controller.SetReadDeadline(time.Now().Add(drainTimeout)) // without one there is still the byte limit
	if controller.Flush() != nil {                               // it reads a small body before it sends the response
		return
	}
	_, _ = io.CopyN(io.Discard, c.Request().Body, maxDrain) // the response is sent even if this fails
}

// Values of headers that are the same in many responses. Sharing them saves an allocation each. They must not be
// modified.
var (
	noStore     = []string{"no-store"}
	noSniff     = []string{"nosniff"}
	minimalDone = []string{"return=minimal"}
)

// maxRequestID is the maximum length of request IDs from clients in bytes.
const maxRequestID = 128

// begin gives every request an ID, which the response repeats: that of the client if it is valid, or a random one.
// While the server is draining, the response ends its connection; HTTP/2 has no such header, and package net/http sends
// GOAWAY instead. It also measures the request. Separate middlewares would cost two allocations each.
func (s *server) begin(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		id := c.Request().Header.Get(echo.HeaderXRequestID)
		if !validRequestID(id) {
			id = strconv.FormatUint(rand.Uint64(), 36)
		}
		header := c.Response().Header()
		header.Set(echo.HeaderXRequestID, id)
		header[echo.HeaderXContentTypeOptions] = noSniff
		if s.Draining() {
			header.Set(echo.HeaderConnection, "close")
		}
		return s.Telemetry.Measure(c, next)
	}
}

func validRequestID(id string) bool {
	return id != "" && len(id) <= maxRequestID &&
		!strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r > '~' })
}

// checkHeaders refuses requests with more than maxHeaderLines headers. Package net/http limits only their bytes, and
// many short headers slow down everything that reads headers.
func checkHeaders(request *http.Request) error {
	lines := 0
	for _, values := range request.Header {
		lines += len(values)
	}
	if lines <= maxHeaderLines {
		return nil
	}
	// The server waits for the rest of the body. Until then it keeps only the header that the log needs.
	request.Header = http.Header{echo.HeaderXForwardedFor: slices.Clone(request.Header[echo.HeaderXForwardedFor])}
	return problem.Errorf(problem.TooManyHeaders, "The request has %d headers: send at most %d.", lines, maxHeaderLines)
}

// checkPath makes the router use the path as it was sent, so that %2F in a name is not a separator, and refuses empty
// segments. RawPath is the path as sent unless it is empty. EscapedPath would ignore it if it had a byte that should be
// encoded, such as a quote, and %2F would become a slash. checkPath also checks the headers.
func checkPath(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if err := checkHeaders(c.Request()); err != nil { // a separate middleware would cost an allocation
			return err
		}
		url := c.Request().URL
		if url.RawPath == "" {
			url.RawPath = url.EscapedPath()
		}
		if strings.Contains(url.RawPath, "//") && !strings.HasSuffix(url.RawPath, "/") {
			return emptySegment(url.RawPath)
		}
		return next(c)
	}
}

// emptySegment returns an error that names the missing part of the path.
func emptySegment(path string) error {
	segments := strings.Split(path, "/") // the first is empty, before the leading slash
	missing := func(i int) bool {
		return strings.HasPrefix(path, "/v1/namespaces/") && len(segments) > i && segments[i] == ""
	}
	switch {
	case missing(3):
		return problem.New(problem.InvalidNamespace, "The namespace in the path is empty.")
	case missing(5) && segments[4] != "calls":
		return problem.New(problem.InvalidUser, "The user in the path is empty.")
	default:
		return problem.New(problem.InvalidParameter, "The path has an empty segment.")
	}
}

// preflightAge is how many seconds a browser can cache a preflight response: the maximum of Chromium.
const preflightAge = 7200

// cors responds to the preflight requests of browsers, and lets scripts of allowed origins read responses. It comes
// before routing and authentication, since browsers send preflight requests without credentials. An origin that is not
// allowed gets the same responses without the headers, so that the browser withholds them from the script.
func cors(origins []string) echo.MiddlewareFunc {
	return middleware.CORSWithConfig(middleware.CORSConfig{
		Skipper: func(c echo.Context) bool {
			return c.Request().Method == http.MethodOptions && !isPreflight(c.Request())
		},
		AllowOriginFunc: func(origin string) (bool, error) { return guard.AllowsOrigin(origins, origin), nil },
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
