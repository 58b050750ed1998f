package api

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// countEvery is the time between two lines that count failures.
	countEvery = time.Minute
	// settleTime is how long a store has to answer without a failure until an outage is over. A store of which a
	// part is away fails some requests and answers others: that is one outage, not one a second.
	settleTime = 10 * time.Second
	// maxDefects is how many failures with one code are logged one by one within countEvery, where each may have
	// another cause.
	maxDefects = 20
)

// reach is how much of the store a request needs. Success of one request shows that those with the same reach or
// less can succeed, too: a full disk, or a Redis that accepts no writes, still answers reads.
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
	case path == "/readyz": // which asks whether writes would succeed
		return writing
	case !strings.HasPrefix(path, namespaces), path == namespaces+"/:namespace" && method != http.MethodDelete:
		return nothing // the latter returns settings
	case method == http.MethodDelete, method == http.MethodPost && !strings.HasSuffix(path, "/lookup"):
		return writing
	default:
		return reading
	}
}

// loggedEach returns how many failures with a code are logged one by one within countEvery. The rest are counted.
// It is 0 for those that are the same for all requests as long as the store is away: of an outage only the first
// failure is logged.
func (c code) loggedEach() int {
	switch c {
	case codeStoreUnavailable, codeStoreFull, codeOverloaded:
		return 0
	default:
		return maxDefects
	}
}

// failureLog logs requests that failed through no fault of their callers, without a line for each: the first one,
// how many there were each minute, and when requests succeed again. At level debug there is a line for each.
// Its methods may be called concurrently.
type failureLog struct {
	logger *slog.Logger
	now    func() time.Time
	after  func(time.Duration, func()) // calls a function later

	begun atomic.Int32 // the number of episodes; while it is 0, succeeded takes no lock
	mu    sync.Mutex
	all   map[code]*episode
}

// episode is a time in which requests fail with one code.
type episode struct {
	code      code
	began     time.Time
	needs     reach     // the largest reach of the requests that failed
	recovered time.Time // of the first success since the last failure; zero if there is none
	settling  bool      // whether settle will be called
	total     int       // failures
	detailed  int       // of these, logged one by one since the last count
	counted   int       // of these, not logged one by one since the last count
	last      error
}

func newFailureLog(logger *slog.Logger, now func() time.Time) *failureLog {
	return &failureLog{
		logger: logger, now: now, all: map[code]*episode{},
		after: func(d time.Duration, f func()) { time.AfterFunc(d, f) },
	}
}

// failed logs or counts a failure. The attributes are about the request.
func (f *failureLog) failed(c code, needs reach, err error, request ...slog.Attr) {
	message, level := "request failed", slog.LevelError
	f.mu.Lock()
	e := f.all[c]
	switch each := c.loggedEach(); {
	case e == nil:
		e = f.begin(c)
		if each == 0 {
			message += "; more failures like this one are counted"
		}
		e.detailed++
	case e.detailed < each:
		e.detailed++
	default:
		e.counted++
		level = slog.LevelDebug
	}
	e.total++
	e.last, e.needs, e.recovered = err, max(e.needs, needs), time.Time{}
	f.mu.Unlock()
	if ctx := context.Background(); f.logger.Enabled(ctx, level) {
		f.logger.LogAttrs(ctx, level, message, append(request, slog.String("error", bounded(err.Error(), maxCause)))...)
	}
}

// begin begins an episode. The lock is held.
func (f *failureLog) begin(c code) *episode {
	e := &episode{code: c, began: f.now()}
	f.all[c] = e
	f.begun.Add(1)
	f.after(countEvery, func() { f.count(e) })
	return e
}

// end ends an episode. The lock is held.
func (f *failureLog) end(e *episode) {
	delete(f.all, e.code)
	f.begun.Add(-1)
}

// count logs how many failures there were since the last time, as long as the episode lasts.
func (f *failureLog) count(e *episode) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.all[e.code] != e {
		return // it is over
	}
	if e.counted > 0 {
		f.logger.Error("requests failed", "code", e.code, "failed", e.counted, "total", e.total,
			"error", bounded(e.last.Error(), maxCause))
	}
	if e.code.loggedEach() > 0 && e.detailed+e.counted == 0 {
		f.end(e) // no end is logged: that other requests succeed does not show that the cause is gone
		return
	}
	e.counted, e.detailed = 0, 0
	f.after(countEvery, func() { f.count(e) })
}

// succeeded notes that a request succeeded.
func (f *failureLog) succeeded(shown reach) {
	if shown == nothing || f.begun.Load() == 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range f.all {
		if e.code.loggedEach() > 0 || e.needs > shown || !e.recovered.IsZero() {
			continue
		}
		e.recovered = f.now()
		if !e.settling {
			e.settling = true
			f.after(settleTime, func() { f.settle(e) })
		}
	}
}

// settle ends an episode if no request has failed for settleTime, and logs that.
func (f *failureLog) settle(e *episode) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e.settling = false
	if e.recovered.IsZero() {
		return // the next success tries again
	}
	if left := settleTime - f.now().Sub(e.recovered); left > 0 {
		e.settling = true
		f.after(left, func() { f.settle(e) })
		return
	}
	f.end(e)
	f.logger.Info("requests succeed again", "code", e.code, "failed", e.total,
		"after", e.recovered.Sub(e.began).Round(time.Millisecond).String())
}
