package api

import (
	"io"
	"log"
	"log/slog"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"
)

// Limits on the time of a request and the size of its header. A lookup of 100 users by GET fits: 100 × 256 bytes,
// percent-encoded.
const (
	headerTimeout  = 5 * time.Second
	readTimeout    = 30 * time.Second // of a whole request; NDJSON extends it chunk by chunk
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
		ReadTimeout:       readTimeout,
		WriteTimeout:      readTimeout + writeTimeout, // both start at the header
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          log.New(&serverLog{logger, newThrottle(logger, 1)}, "", 0),
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
