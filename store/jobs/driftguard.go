package jobs

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/lastseen/lastseen"
)

const (
	steadyFor = 10 * time.Minute // how long the clock has to be steady, or a namespace held, before deletions
	maxDrift  = time.Second      // how far the clock may move against monotonic time, between two readings
)

// driftGuard compares the store's clock with monotonic time, and decides whether to rely on it.
type driftGuard struct {
	logger *slog.Logger

	mu        sync.Mutex
	read      bool             // there was a reading
	low, high lastseen.Instant // the last reading, less the monotonic times after and before it
	steadyAt  time.Duration    // the monotonic time from which on the clock counts as steady
	moved     bool             // the clock moved; this was logged
}

// observe takes a reading that was made between two monotonic times. It reports whether the clock has been steady for
// long enough.
func (c *driftGuard) observe(now lastseen.Instant, before, after time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	low, high := now.Add(-after), now.Add(-before)
	if c.read && (high < c.low.Add(-maxDrift) || low > c.high.Add(maxDrift)) {
		c.unsettle(fmt.Errorf("it shows %s, and %s was expected", now, c.high.Add(after)), after)
	}
	c.read, c.low, c.high = true, low, high
	if after < c.steadyAt {
		return false
	}
	if c.moved {
		c.moved = false
		c.logger.Info("the store's clock has been steady: what is past its retention is deleted again",
			"for", steadyFor.String())
	}
	return true
}

// move starts the waiting again at a monotonic time at which the store reports that its clock moved.
func (c *driftGuard) move(cause error, at time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unsettle(cause, at)
}

// unsettle starts the waiting again, and logs why, once until the waiting is over.
func (c *driftGuard) unsettle(cause error, at time.Duration) {
	if !c.moved {
		c.logger.Warn("the store's clock moved: nothing is deleted until it has been steady",
			"for", steadyFor.String(), "error", cause)
	}
	c.moved, c.steadyAt = true, at+steadyFor
}

// backoffs delay retention in namespaces in which it would delete all users, or all contacts, as with a wrong clock or
// a mistyped retention.
type backoffs struct {
	warning string // what to log about them

	mu     sync.Mutex
	byName map[string]*backoff
}

func newBackoffs(warning string) backoffs {
	return backoffs{warning: warning, byName: map[string]*backoff{}}
}

type backoff struct {
	since  time.Duration // monotonic
	noted  bool          // in this round
	logged bool
}

// longEnough reports whether all in a namespace may be deleted.
func (h *backoffs) longEnough(namespace string, now time.Duration) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	known := h.byName[namespace]
	return known != nil && now >= known.since+steadyFor
}

// note notes whether this round would delete all in a namespace, or has begun to.
func (h *backoffs) note(namespace string, everyone bool, now time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if everyone && h.byName[namespace] == nil {
		h.byName[namespace] = &backoff{since: now}
	}
	if known := h.byName[namespace]; known != nil {
		known.noted = everyone
	}
}

func (h *backoffs) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	clear(h.byName)
}

// endRound drops the namespaces that the round did not note, and logs how many it noted for the first time.
func (h *backoffs) endRound(logger *slog.Logger) {
	h.mu.Lock()
	defer h.mu.Unlock()
	fresh, example := 0, ""
	for name, known := range h.byName {
		switch {
		case !known.noted:
			delete(h.byName, name)
		case !known.logged:
			fresh++
			example = max(example, name)
		}
		known.noted, known.logged = false, true
	}
	if fresh > 0 {
		logger.Warn(h.warning, "for", steadyFor.String(), "namespaces", fresh, "one", example)
	}
}
