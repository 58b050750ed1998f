package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/lastseen/lastseen"
)

const (
	steadyFor   = 10 * time.Minute // how long the store's clock is watched after it moved, and a namespace before it is emptied
	steadyDrift = time.Second      // how far the store's clock may be from monotonic time, between two readings
)

// steadiness compares the store's clock with monotonic time.
type steadiness struct {
	read    bool // there was a reading
	at      lastseen.Instant
	marks   [2]time.Duration // monotonic times before and after the reading
	waiting bool             // the clock moved, or the janitor was just made, and it has not been steady for long enough since
	since   time.Duration    // monotonic time when that was
	logged  bool             // that it moved
}

// observe takes a reading that was made between two monotonic times, and returns an error if the clock moved since the
// one before.
func (s *steadiness) observe(now lastseen.Instant, before, after time.Duration) error {
	earliest, latest := s.at.Add(before-s.marks[1]), s.at.Add(after-s.marks[0])
	moved := s.read && (now < earliest.Add(-steadyDrift) || now > latest.Add(steadyDrift))
	s.read, s.at, s.marks = true, now, [2]time.Duration{before, after}
	if moved {
		return fmt.Errorf("it shows %s, and %s was expected", now, latest)
	}
	return nil
}

// now returns the time by the store's clock, and notes whether it moved.
func (j *janitor) now(ctx context.Context) (lastseen.Instant, error) {
	before := j.monotonic()
	now, err := j.store.Now(ctx)
	if err != nil {
		return 0, err
	}
	after := j.monotonic()
	j.mu.Lock()
	moved := j.clock.observe(now, before, after)
	j.mu.Unlock()
	if moved != nil {
		j.moved(moved)
	}
	return now, nil
}

// moved notes that the store's clock moved. Nobody is deleted until it has been steady for a while; that is logged once.
func (j *janitor) moved(cause error) {
	j.full.forget()
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.clock.logged {
		j.logger.Warn("the store's clock moved: nobody is deleted until it has been steady", "for", steadyFor.String(), "error", cause)
	}
	j.clock.waiting, j.clock.since, j.clock.logged = true, j.monotonic(), true
}

// steady reports whether the store's clock has been steady for long enough to delete by it.
func (j *janitor) steady() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.clock.waiting && j.monotonic() >= j.clock.since+steadyFor {
		if j.clock.logged {
			j.logger.Info("the store's clock has been steady: users past their retention are deleted again", "for", steadyFor.String())
		}
		j.clock.waiting, j.clock.logged = false, false
	}
	return !j.clock.waiting
}

// fullSweeps are the namespaces of which a sweep would delete everyone. A clock that is wrong, or a retention that was
// mistyped, would do so; it is done only when every sweep for a while agrees.
type fullSweeps struct {
	mu      sync.Mutex
	before  map[string]time.Duration // in the round before: monotonic time since when
	current map[string]time.Duration // in this round; nil before the first one
}

// begin begins a round. A namespace that is not noted in it starts from zero when it is noted again.
func (f *fullSweeps) begin() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.before, f.current = f.current, map[string]time.Duration{}
}

// due reports whether everyone in a namespace may be deleted.
func (f *fullSweeps) due(namespace string, now time.Duration) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	since, noted := f.before[namespace]
	return noted && now >= since+steadyFor
}

// note notes whether a sweep would delete everyone in a namespace, or goes on to.
func (f *fullSweeps) note(namespace string, everyone bool, now time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !everyone {
		delete(f.current, namespace)
		return
	}
	if since, noted := f.before[namespace]; noted {
		now = since
	}
	if f.current == nil {
		f.current = map[string]time.Duration{}
	}
	f.current[namespace] = now
}

// forget starts all waiting from zero.
func (f *fullSweeps) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.before, f.current = nil, map[string]time.Duration{}
}

// report logs, once for each, the namespaces that were not emptied in this round.
func (f *fullSweeps) report(logger *slog.Logger) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fresh, example := 0, ""
	for name := range f.current {
		if _, noted := f.before[name]; !noted {
			fresh++
			example = max(example, name)
		}
	}
	if fresh > 0 {
		logger.Warn("retention would delete everyone in some namespaces: they are kept until every sweep for a while agrees",
			"for", steadyFor.String(), "namespaces", fresh, "one", example)
	}
}
