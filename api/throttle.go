package api

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

const (
	throttleTime = time.Minute
	maxThrottled = 32 // failures that are counted separately
)

// throttle logs failures that repeat: of each id at most max a minute. It counts the others, for one line at the end
// of that minute, and logs them at level debug. Its methods may be called concurrently.
type throttle struct {
	logger *slog.Logger
	max    int
	mu     sync.Mutex
	counts map[string]int // by id, in the current minute of each
}

func newThrottle(logger *slog.Logger, limit int) *throttle {
	return &throttle{logger: logger, max: limit, counts: map[string]int{}}
}

// log logs or counts a failure.
func (t *throttle) log(level slog.Level, id, message string, attrs ...slog.Attr) {
	t.mu.Lock()
	if t.counts[id] == 0 && len(t.counts) >= maxThrottled {
		id, message, attrs = "", "too many different failures to count each", nil
	}
	t.counts[id]++
	count := t.counts[id]
	t.mu.Unlock()
	if count == 1 {
		time.AfterFunc(throttleTime, func() { t.summary(level, id, message, attrs) })
	}
	if count > t.max {
		level = slog.LevelDebug
	}
	t.logger.LogAttrs(context.Background(), level, message, attrs...)
}

// summary logs how many failures were only counted in a minute, with the attributes of the first one.
func (t *throttle) summary(level slog.Level, id, message string, attrs []slog.Attr) {
	t.mu.Lock()
	more := t.counts[id] - t.max
	delete(t.counts, id)
	t.mu.Unlock()
	if more > 0 {
		attrs = append(attrs, slog.Int("times", more), slog.Duration("within", throttleTime))
		t.logger.LogAttrs(context.Background(), level, message, attrs...)
	}
}
