package guard

import (
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/api/request"
	"github.com/lastseen/lastseen/api/telemetry"
)

// Limits on the time of a request and the size of its header. A lookup of 100 users by GET fits: 100 × 256 bytes,
// percent-encoded.
const (
	headerTimeout  = 5 * time.Second
	idleTimeout    = 2 * time.Minute
	maxHeaderBytes = 96 << 10
	maxHeaderLines = 100      // more than browsers and several proxies send
	maxStreams     = 100      // requests at the same time on an HTTP/2 connection
	streamBuffer   = 64 << 10 // bytes of bodies that an HTTP/2 connection buffers before they are read
)

// NewServer returns an HTTP server for the handler, with limits against slow and hostile clients.
func NewServer(h http.Handler, logger *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           closeAmbiguous(h),
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       request.Timeout,
		WriteTimeout:      request.Timeout + request.WriteTimeout, // both start at the header
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

// CheckPath is a middleware that makes the router use the path as it was sent, so that %2F in a name is not a
// separator, and refuses empty segments. RawPath is the path as sent unless it is empty. EscapedPath would ignore it if
// it had a byte that should be encoded, such as a quote, and %2F would become a slash. CheckPath also checks the
// headers.
func CheckPath(next echo.HandlerFunc) echo.HandlerFunc {
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
