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
	writeTimeout   = 30 * time.Second
	idleTimeout    = 2 * time.Minute
	maxHeaderBytes = 128 << 10
	maxLinger      = 64 << 20        // bytes of a body, read after an error that came before its end
	lingerTimeout  = 5 * time.Second // for these
)

// NewServer returns an HTTP server for the handler with limits that slow or hostile clients run into.
func NewServer(h http.Handler, logger *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}
}

// linger sends the answer now, and takes and forgets what is left of the body, within limits. Otherwise
// the connection would be closed while the client still sends, and the answer lost with it.
func linger(c echo.Context) {
	controller := http.NewResponseController(c.Response().Writer)
	if c.Request().ContentLength == 0 || controller.Flush() != nil {
		return
	}
	_ = controller.SetReadDeadline(time.Now().Add(lingerTimeout)) // without one there is still the byte limit
	_, _ = io.CopyN(io.Discard, c.Request().Body, maxLinger)      // whatever happens, the answer is sent
}
