// Package admin serves what operators and their monitoring need, on its own address: metrics, profiles, health
// and backups. It has no authentication.
package admin

import (
	"context"
	"io"
	"log"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Config is what the handler needs. All fields but Backup are required.
type Config struct {
	Gatherer prometheus.Gatherer         // the metrics
	Ready    func(context.Context) error // returns nil if the server can serve requests
	// Backup writes all data to w; nil if the store has no backup.
	Backup func(ctx context.Context, w io.Writer) error
	// AllowsHost reports whether a browser can be trusted with a name in Host; see [guard].
	AllowsHost func(host string) bool
	Logger     *slog.Logger
}

// Limits on the time of a request and on its header.
const (
	headerTimeout  = 5 * time.Second
	writeTimeout   = maxProfile + 30*time.Second
	idleTimeout    = 2 * time.Minute
	maxHeaderBytes = 16 << 10
	maxRequests    = 16 // in progress
)

// MaxConnections is how many connections the server needs at most.
const MaxConnections = 64

// NewServer returns an HTTP server for the handler, with limits against slow and hostile clients.
func NewServer(c Config) *http.Server {
	return &http.Server{
		Handler:           newHandler(c),
		ReadHeaderTimeout: headerTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          c.problems(),
	}
}

func newHandler(c Config) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { writeLine(w, http.StatusOK, index) })
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		promhttp.HandlerFor(c.Gatherer, promhttp.HandlerOpts{
			ErrorLog: &firstOnly{Logger: c.problems()}, ErrorHandling: promhttp.ContinueOnError,
		}).ServeHTTP(w, r)
	})
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { writeLine(w, http.StatusOK, "ok") })
	mux.HandleFunc("GET /readyz", c.readyz)
	addProfiles(mux)
	mux.Handle("POST /backup", &backups{write: c.Backup, logger: c.Logger, chunkTimeout: chunkTimeout})
	return guard(c.AllowsHost, mux)
}

// index is what a person sees first.
const index = `GET  /metrics       metrics for Prometheus
GET  /debug/pprof/  profiles
GET  /healthz       whether the process is alive
GET  /readyz        whether the server can serve requests, or why not
POST /backup        a backup of the file store: use lastseen backup FILE`

// readyz shows the same as that of the API, with the reason: only operators read it.
func (c Config) readyz(w http.ResponseWriter, r *http.Request) {
	if err := c.Ready(r.Context()); err != nil {
		writeLine(w, http.StatusServiceUnavailable, err.Error())
		return
	}
	writeLine(w, http.StatusOK, "ready")
}

func writeLine(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text + "\n")) // the client has gone
}

// problems returns a log for packages that log text.
func (c Config) problems() *log.Logger {
	return slog.NewLogLogger(c.Logger.With("listener", "admin").Handler(), slog.LevelWarn)
}

// firstOnly logs the first problem of a request for metrics: if the client has gone, each metric has the same.
type firstOnly struct {
	*log.Logger
	once sync.Once
}

// Println implements [promhttp.Logger].
func (f *firstOnly) Println(v ...any) { f.once.Do(func() { f.Logger.Println(v...) }) }
