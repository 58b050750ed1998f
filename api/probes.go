package api

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/api/request"
	"github.com/lastseen/lastseen/api/telemetry"
)

// statusResponse is the response to a probe.
type statusResponse struct {
	Status string `json:"status"`
} // @name ServiceStatus

// healthz responds as long as the process is alive, whatever the store does: a restart would not help the store.
//
// @ID getHealth
// @Tags Service
// @Summary Check that the process is alive
// @Description For liveness probes. Does not depend on the store, because restarting the process would not repair the
// @Description store. Unknown query parameters are ignored.
// @Success 200 {object} statusResponse "The process is alive."
// @Router /healthz [get]
func (s *server) healthz(c echo.Context, _ request.Query) error {
	return request.Respond(c, statusResponse{"ok"})
}

// readyz responds with status 200 if the store can serve reads and writes and the server is not shutting down. It is
// public and each probe costs the store work, so concurrent requests share one probe.
//
// @ID getReadiness
// @Tags Service
// @Summary Check that the server can serve requests
// @Description For readiness probes and load balancers. Returns 200 if the store accepts reads and writes and the
// @Description server is not shutting down. Unknown query parameters are ignored.
// @Success 200 {object} statusResponse "The store accepts reads and writes."
// @Failure default {object} problem.Body "error"
// @Router /readyz [get]
func (s *server) readyz(c echo.Context, _ request.Query) error {
	if s.Draining() {
		return problem.New(problem.ShuttingDown, "The server is shutting down. It still serves requests for a moment.")
	}
	_, err, _ := s.probes.Do("", func() (any, error) { // the store bounds its time
		return nil, s.Store.Ready(context.WithoutCancel(c.Request().Context()))
	})
	if err != nil {
		return err
	}
	return request.Respond(c, statusResponse{"ready"})
}

// getVersion returns the version of the running build.
//
// @ID getVersion
// @Tags Service
// @Summary Get the version of the server
// @Description Unknown query parameters are ignored.
// @Success 200 {object} Version "The version and build."
// @Router /version [get]
func (s *server) getVersion(c echo.Context, _ request.Query) error {
	return request.Respond(c, s.Version)
}

const (
	// countEvery is the time between two lines that count the failures of an outage.
	countEvery = time.Minute
	// settleTime is how long requests must succeed without a failure until an outage is over. A store that is partly
	// down fails some requests and serves others: that is one outage, not one a second.
	settleTime = 10 * time.Second
)

// reach is how much of the store a request needs. If a request succeeds, those with the same reach or less can succeed,
// too. A full disk, or a Redis that accepts no writes, still serves reads.
type reach int

// The reaches.
const (
	nothing reach = iota
	reading
	writing
)

// reachOf returns the reach of the requests to a route.
func reachOf(method, path string) reach {
	const namespaces = "/v1/namespaces"
	switch {
	case path == "/readyz": // it checks whether writes would succeed
		return writing
	case strings.HasSuffix(path, "/connect"): // only the upgrade
		return nothing
	case !strings.HasPrefix(path, namespaces), path == namespaces+"/:namespace" && method != http.MethodDelete:
		return nothing // the latter returns settings
	case strings.HasSuffix(path, "/lookup"), strings.HasSuffix(path, "/changes"):
		return reading
	case method == http.MethodDelete, method == http.MethodPost, method == http.MethodPut, method == http.MethodPatch:
		return writing
	default:
		return reading
	}
}

// outageLog logs outages of the store without a line for each request: the first failure, the number of failures each
// minute, and the recovery. At level debug there is a line for each. Its methods may be called concurrently.
type outageLog struct {
	logger *slog.Logger
	now    func() time.Time

	ongoing atomic.Int32 // the number of outages; while it is 0, succeeded takes no lock
	mu      sync.Mutex
	outages map[problem.Code]*outage
}

// outage is a time in which requests fail with one code.
type outage struct {
	code      problem.Code
	began     time.Time
	needs     reach       // the largest reach of the requests that failed
	recovered time.Time   // of the first success since the last failure
	recovery  *time.Timer // ends the outage; nil if there was no success since the last failure
	total     int         // failures
	counted   int         // failures since the last line
	last      error
}

func newOutageLog(logger *slog.Logger, now func() time.Time) *outageLog {
	return &outageLog{logger: logger, now: now, outages: map[problem.Code]*outage{}}
}

// failed logs or counts a failure with a code that is an outage. The attributes are about the request.
func (l *outageLog) failed(c problem.Code, needs reach, err error, request ...slog.Attr) {
	message, level := "request failed", slog.LevelDebug
	l.mu.Lock()
	o := l.outages[c]
	if o == nil {
		message, level = "request failed; more failures like this one are counted", slog.LevelError
		o = &outage{code: c, began: l.now()}
		l.outages[c] = o
		l.ongoing.Add(1)
		time.AfterFunc(countEvery, func() { l.count(o) })
	} else {
		o.counted++
	}
	o.total++
	o.last, o.needs = err, max(o.needs, needs)
	if o.recovery != nil {
		o.recovery.Stop()
		o.recovery = nil
	}
	l.mu.Unlock()
	l.logger.LogAttrs(context.Background(), level, message, request...)
}

// count logs the number of failures since the last line, and calls itself again as long as the outage lasts.
func (l *outageLog) count(o *outage) {
	l.mu.Lock()
	ongoing, counted, total, last := l.outages[o.code] == o, o.counted, o.total, o.last
	o.counted = 0
	l.mu.Unlock() // a log that blocks must not block requests that succeed
	if !ongoing {
		return
	}
	if counted > 0 {
		l.logger.Error("requests failed", "code", o.code, "failed", counted, "total", total,
			"error", telemetry.Bounded(last.Error(), maxCause))
	}
	time.AfterFunc(countEvery, func() { l.count(o) })
}

// succeeded notes that a request succeeded. An outage ends if no request fails for settleTime afterwards.
func (l *outageLog) succeeded(needed reach) {
	if needed == nothing || l.ongoing.Load() == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, o := range l.outages {
		if o.needs <= needed && o.recovery == nil {
			total := o.total
			o.recovered = l.now()
			o.recovery = time.AfterFunc(settleTime, func() { l.end(o, total) })
		}
	}
}

// end ends an outage, unless a request has failed since the total was counted: then another timer ends it.
func (l *outageLog) end(o *outage, total int) {
	l.mu.Lock()
	if o.total != total {
		l.mu.Unlock()
		return
	}
	delete(l.outages, o.code)
	l.ongoing.Add(-1)
	l.mu.Unlock() // nothing changes the outage any more
	l.logger.Info("requests succeed again", "code", o.code, "failed", o.total,
		"after", o.recovered.Sub(o.began).Round(time.Millisecond).String())
}
