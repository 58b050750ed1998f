package api

import (
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"
)

// Limits on how long a client may take, and how much its headers may hold. A lookup of 100 users by
// GET fits: 100 × 256 bytes, percent-encoded.
const (
	headerTimeout  = 5 * time.Second
	readTimeout    = 30 * time.Second // of a whole request; NDJSON extends it chunk by chunk
	writeTimeout   = 30 * time.Second // of an answer, to what was read in time
	idleTimeout    = 2 * time.Minute
	maxHeaderBytes = 96 << 10
	maxHeaderLines = 100             // more than browsers and several proxies send
	maxStreams     = 100             // requests at the same time on a connection of HTTP/2
	streamBuffer   = 64 << 10        // bytes of bodies that arrived on such a connection before they are read
	maxLinger      = 64 << 20        // bytes of a body, read after an error that came before its end
	lingerTimeout  = 5 * time.Second // for these
)

// NewServer returns an HTTP server for the handler with limits that slow or hostile clients run into.
func NewServer(h http.Handler, logger *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           endDoubtful(h),
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      readTimeout + writeTimeout, // both are counted from the header on
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          newServerLog(logger),
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams, MaxReceiveBufferPerStream: streamBuffer, MaxReceiveBufferPerConnection: streamBuffer,
		},
	}
}

// endDoubtful makes a request the last one on its connection if a proxy may have seen its end elsewhere: one in
// chunks may have had a Content-Length, too, and one of HTTP/1.0 chunks, which package net/http hides from us. What
// follows could be another request that somebody smuggled through that proxy. See RFC 9112, section 6.1.
func endDoubtful(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor == 1 && (len(r.TransferEncoding) > 0 || r.ProtoMinor == 0) {
			w.Header().Set(echo.HeaderConnection, "close")
		}
		h.ServeHTTP(w, r)
	})
}

// linger sends the answer now, and takes and forgets what is left of the body, within limits. Otherwise
// the connection would be closed while the client still sends, and the answer lost with it.
func linger(c echo.Context) {
	controller := http.NewResponseController(c.Response().Writer)
	if c.Request().ContentLength == 0 {
		return
	}
	_ = controller.SetReadDeadline(time.Now().Add(lingerTimeout)) // without one there is still the byte limit
	if controller.Flush() != nil {                                // it reads a small body before it sends the answer
		return
	}
	_, _ = io.CopyN(io.Discard, c.Request().Body, maxLinger) // whatever happens, the answer is sent
}
