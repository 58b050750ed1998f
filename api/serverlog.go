package api

import (
	"log/slog"
	"strings"
)

// serverLog is the error log of package net/http.
type serverLog struct {
	logger   *slog.Logger
	failures *throttle
}

// serverFailures returns the prefixes of messages about failures of this server or its machine. Clients cause the other
// messages, for example by a TLS handshake that fails.
func serverFailures() []string {
	return []string{
		"http: panic serving ", "http2: panic serving ", "http: Accept error: ", "http: superfluous ",
		"http: response.Write", "http: invalid Content-Length ", "http: WriteHeader called ",
	}
}

// Write logs a message.
func (l *serverLog) Write(text []byte) (int, error) {
	message, stack, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
	for _, prefix := range serverFailures() {
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
		l.failures.log(slog.LevelError, prefix+cause, prefix+cause)
		return
	}
	client, cause, _ := strings.Cut(rest, ": ")
	message := strings.TrimSuffix(prefix, "serving ") + cause
	l.failures.log(slog.LevelError, message, message, slog.String("client", client), slog.String("stack", stack))
}
