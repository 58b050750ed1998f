package telemetry

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lastseen/lastseen/api/problem"
)

const (
	// countEvery is the time between two lines that count the failures of an outage.
	countEvery = time.Minute
	// MaxCause is the size of an internal cause in the log, in bytes. It can have a stack.
	MaxCause = 8 << 10
	// SettleTime is how long requests must succeed without a failure until an outage is over. A store that is partly
	// down fails some requests and serves others: that is one outage, not one a second.
	SettleTime = 10 * time.Second
)

// Reach is how much of the store a request needs. If a request succeeds, those with the same reach or less can succeed,
// too. A full disk, or a Redis that accepts no writes, still serves reads.
type Reach int

// The reaches.
const (
	NoStore Reach = iota
	Reading
	Writing
)

// Outages logs outages of the store without a line for each request: the first failure, the number of failures each
// minute, and the recovery. At level debug there is a line for each. Its methods may be called concurrently.
type Outages struct {
	logger *slog.Logger
	now    func() time.Time

	ongoing atomic.Int32 // the number of outages; while it is 0, Succeeded takes no lock
	mu      sync.Mutex
	outages map[problem.Code]*outage
}

// outage is a time in which requests fail with one code.
type outage struct {
	code      problem.Code
	began     time.Time
	needs     Reach       // the largest reach of the requests that failed
	recovered time.Time   // of the first success since the last failure
	recovery  *time.Timer // ends the outage; nil if there was no success since the last failure
	total     int         // failures
	counted   int         // failures since the last line
	last      error
}

// NewOutages returns a log of no outages.
func NewOutages(logger *slog.Logger, now func() time.Time) *Outages {
	return &Outages{logger: logger, now: now, outages: map[problem.Code]*outage{}}
}

// Failed logs or counts a failure with a code that is an outage. The attributes are about the request.
func (l *Outages) Failed(c problem.Code, needs Reach, err error, request ...slog.Attr) {
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
func (l *Outages) count(o *outage) {
	l.mu.Lock()
	ongoing, counted, total, last := l.outages[o.code] == o, o.counted, o.total, o.last
	o.counted = 0
	l.mu.Unlock() // a log that blocks must not block requests that succeed
	if !ongoing {
		return
	}
	if counted > 0 {
		l.logger.Error("requests failed", "code", o.code, "failed", counted, "total", total,
			"error", Bounded(last.Error(), MaxCause))
	}
	time.AfterFunc(countEvery, func() { l.count(o) })
}

// Succeeded notes that a request succeeded. An outage ends if no request fails for SettleTime afterwards.
func (l *Outages) Succeeded(needed Reach) {
	if needed == NoStore || l.ongoing.Load() == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, o := range l.outages {
		if o.needs <= needed && o.recovery == nil {
			total := o.total
			o.recovered = l.now()
			o.recovery = time.AfterFunc(SettleTime, func() { l.end(o, total) })
		}
	}
}

// end ends an outage, unless a request has failed since the total was counted: then another timer ends it.
func (l *Outages) end(o *outage, total int) {
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
