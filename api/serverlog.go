package api

import (
	"context"
	"log"
	"log/slog"
	"strings"
	"sync"
	"time"
)

const (
	summaryEvery = time.Minute
	maxSummaries = 32 // messages that are told apart
)

// summary logs a message at once, and once a minute how often it came again.
type summary struct {
	logger *slog.Logger
	mu     sync.Mutex
	again  map[string]int // since it was logged
}

func newSummary(logger *slog.Logger) *summary {
	return &summary{logger: logger, again: map[string]int{}}
}

// log logs a message, unless it was logged within the last minute. Messages are the same whatever their attributes.
func (s *summary) log(level slog.Level, message string, attributes ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, logged := s.again[message]
	if !logged && len(s.again) >= maxSummaries {
		message = "messages of more kinds than are told apart"
		_, logged = s.again[message]
	}
	if logged {
		s.again[message]++
		return
	}
	s.again[message] = 0
	s.logger.Log(context.Background(), level, message, attributes...)
	time.AfterFunc(summaryEvery, func() { s.repeat(level, message, attributes) })
}

// repeat says how often a message came in the last minute, and begins another one if it did.
func (s *summary) repeat(level slog.Level, message string, attributes []any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	again := s.again[message]
	delete(s.again, message)
	if again == 0 {
		return
	}
	s.again[message] = 0
	s.logger.Log(context.Background(), level, message, append(attributes, "times", again, "within", summaryEvery)...)
	time.AfterFunc(summaryEvery, func() { s.repeat(level, message, attributes) })
}

// serverLog is where package net/http writes what goes wrong.
type serverLog struct {
	logger  *slog.Logger
	summary *summary
}

func newServerLog(logger *slog.Logger) *log.Logger {
	return log.New(&serverLog{logger, newSummary(logger)}, "", 0)
}

// ours returns how messages begin that are about a failure of this server or its machine. What others are about is
// the doing of clients, such as a TLS handshake that fails.
func ours() []string {
	return []string{
		"http: panic serving ", "http2: panic serving ", // also of clients, which are named after it
		"http: Accept error: ", "http: superfluous ", "http: response.Write", "http: invalid Content-Length ", "http: WriteHeader called ",
	}
}

// Write logs a message.
func (l *serverLog) Write(text []byte) (int, error) {
	message, stack, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
	for _, prefix := range ours() {
		if rest, found := strings.CutPrefix(message, prefix); found {
			l.fail(prefix, rest, stack)
			return len(text), nil
		}
	}
	l.logger.Debug(message)
	return len(text), nil
}

// fail logs a failure. Which client it was with comes first in that of a panic, and makes no other message of it.
func (l *serverLog) fail(prefix, rest, stack string) {
	if !strings.Contains(prefix, "panic") {
		kind, _, _ := strings.Cut(rest, ";") // after which "retrying in 5ms" follows
		l.summary.log(slog.LevelError, prefix+kind)
		return
	}
	client, cause, _ := strings.Cut(rest, ": ")
	l.summary.log(slog.LevelError, strings.TrimSuffix(prefix, "serving ")+cause, "client", client, "stack", stack)
}
