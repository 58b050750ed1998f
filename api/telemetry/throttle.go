package telemetry

import (
	"context"
	"log"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"time"
)

const (
	throttleTime = time.Minute
	maxThrottled = 32 // failures that are counted separately
)

// Throttle logs failures that repeat: of each id at most max a minute. It counts the others, for one line at the end
// of that minute, and logs them at level debug. Its methods may be called concurrently.
type Throttle struct {
	logger  *slog.Logger
	max     int
	window  time.Duration // a minute, unless the throttle is hourly
	summary bool          // at the end of a window
	mu      sync.Mutex
	counts  map[string]int // by id, in the current window of each
}

// NewThrottle returns a throttle that logs limit failures of each id a minute.
func NewThrottle(logger *slog.Logger, limit int) *Throttle {
	return &Throttle{logger: logger, max: limit, window: throttleTime, summary: true, counts: map[string]int{}}
}

// NewHourly returns a throttle that logs one line of each id an hour, and does not count the others.
func NewHourly(logger *slog.Logger) *Throttle {
	return &Throttle{logger: logger, max: 1, window: time.Hour, counts: map[string]int{}}
}

// Log logs or counts a failure.
func (t *Throttle) Log(level slog.Level, id, message string, attrs ...slog.Attr) {
	t.mu.Lock()
	if t.counts[id] == 0 && len(t.counts) >= maxThrottled {
		id, message, attrs = "", "too many different failures to count each", nil
	}
	t.counts[id]++
	count := t.counts[id]
	t.mu.Unlock()
	if count == 1 {
		time.AfterFunc(t.window, func() { t.end(level, id, message, attrs) })
	}
	if count > t.max {
		level = slog.LevelDebug
	}
	t.logger.LogAttrs(context.Background(), level, message, attrs...)
}

// end ends a window. It logs how many failures were only counted, with the attributes of the first one.
func (t *Throttle) end(level slog.Level, id, message string, attrs []slog.Attr) {
	t.mu.Lock()
	more := t.counts[id] - t.max
	delete(t.counts, id)
	t.mu.Unlock()
	if t.summary && more > 0 {
		attrs = append(attrs, slog.Int("times", more), slog.Duration("within", t.window))
		t.logger.LogAttrs(context.Background(), level, message, attrs...)
	}
}

// serverLog is the error log of package net/http.
type serverLog struct {
	logger   *slog.Logger
	failures *Throttle
}

// ServerLog returns the error log of a server of package net/http.
func ServerLog(logger *slog.Logger) *log.Logger {
	return log.New(&serverLog{logger, NewThrottle(logger, 1)}, "", 0)
}

// Write logs a message. Some prefixes are of failures of this server or its machine. Clients cause the other messages,
// for example by a TLS handshake that fails.
func (l *serverLog) Write(text []byte) (int, error) {
	message, stack, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
	for _, prefix := range []string{
		"http: panic serving ", "http2: panic serving ", "http: Accept error: ", "http: superfluous ",
		"http: response.Write", "http: invalid Content-Length ", "http: WriteHeader called ",
	} {
		if rest, found := strings.CutPrefix(message, prefix); found {
			l.fail(prefix, rest, stack)
			return len(text), nil
		}
	}
	l.logger.Debug(message)
	return len(text), nil
}

// fail logs a failure. A panic is the same failure whichever client it was with.
func (l *serverLog) fail(prefix, rest, stack string) {
	if !strings.Contains(prefix, "panic") {
		cause, _, _ := strings.Cut(rest, ";") // "retrying in 5ms" follows
		l.failures.Log(slog.LevelError, prefix+cause, prefix+cause)
		return
	}
	client, cause, _ := strings.Cut(rest, ": ")
	message := strings.TrimSuffix(prefix, "serving ") + cause
	l.failures.Log(slog.LevelError, message, message, slog.String("client", client), slog.String("stack", stack))
}

// credentials matches text that looks like an API key or a token.
var credentials = regexp.MustCompile(`(ls_|eyJ)[A-Za-z0-9_.-]{5,}`)

// MaxReason is the maximum length of text that can quote the caller, in bytes.
const MaxReason = 200

// Quotable prepares text that can quote a caller for the log: it shortens it, and removes credentials that were sent in
// the wrong place.
func Quotable(text string) string {
	return Bounded(credentials.ReplaceAllString(Bounded(text, 2*MaxReason), "${1}…"), MaxReason)
}

// Bounded returns at most limit bytes of a text, followed by … if there are more.
func Bounded(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + "…" // half a character may be at the end
}
