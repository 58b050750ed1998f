package api

import (
	"log/slog"
	"net/http"
	"time"
)

// Limits on how long a client may take, and how much its headers may hold. A lookup of 100 users by
// GET fits: 100 × 256 bytes, percent-encoded.
const (
	headerTimeout  = 5 * time.Second
	readTimeout    = 30 * time.Second // of a whole request; NDJSON extends it chunk by chunk
	writeTimeout   = 30 * time.Second
	idleTimeout    = 2 * time.Minute
	maxHeaderBytes = 128 << 10
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
