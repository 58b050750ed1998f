package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testserver"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// logLines returns the log of a service with --log-format json.
func logLines(t *testing.T, s *testserver.Server) (lines []map[string]any) {
	t.Helper()
	for line := range strings.Lines(s.Log.String()) {
		if !strings.HasSuffix(line, "\n") {
			break // the rest of it is on its way
		}
		var fields map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &fields), "%q", line)
		lines = append(lines, fields)
	}
	return lines
}

func countLines(t *testing.T, s *testserver.Server, level, message string) (n int) {
	t.Helper()
	for _, line := range logLines(t, s) {
		if line["level"] == level && strings.Contains(line["msg"].(string), message) {
			n++
		}
	}
	return n
}

// TestLogSettings: lines in JSON, an access log that a reload switches on, and no user in it.
func TestLogSettings(t *testing.T) {
	t.Parallel()
	const start = "log-format: json\ngreen: 59s\nping-interval: 30s\n" // which is worth a warning
	file := testserver.WriteConfig(t, start)
	s := testserver.Start(t, "--config", file)
	s.Post(t, alice+"/ping", "")
	require.Equal(t, 1, countLines(t, s, "WARN", "less than two ping intervals"))
	require.Zero(t, countLines(t, s, "INFO", "request"))

	hangup(t, s, file, "log-format: json\naccess-log: on\n")
	logged := func(text string) {
		t.Helper()
		once := func() bool { return countLines(t, s, "INFO", text) == 1 }
		require.Eventually(t, once, time.Minute, 10*time.Millisecond, "%q in %s", text, s.Log)
	}
	logged("configuration reloaded")
	s.Post(t, alice+"/ping", "")
	logged("request")
	require.NotContains(t, s.Log.String(), "alice")
	require.Zero(t, s.Terminate(t))
	require.Equal(t, 1, countLines(t, s, "INFO", "stopping"), "all that was logged is JSON")
}

// TestRedisOutageInTheLog stops Redis under a running service: many requests fail, and the log has few lines.
func TestRedisOutageInTheLog(t *testing.T) {
	t.Parallel()
	server := redistest.StartProcess(t)
	s := testserver.Start(t, "--store", server.URL(), "--log-format", "json",
		"--redis-timeout", "5s", "--redis-dial-timeout", "5s") // on a busy machine, the first ping takes long
	s.Post(t, alice+"/ping", "")
	server.Stop(t)
	for range 50 {
		status, _ := s.Call(t, http.MethodPost, alice+"/ping", "")
		require.Equal(t, http.StatusServiceUnavailable, status)
	}
	require.Equal(t, 1, countLines(t, s, "ERROR", "request failed"), s.Log)
	// The requests, the check of the server, the circuit breaker, and background jobs that happen to run: a line each.
	require.LessOrEqual(t, len(logLines(t, s)), 5, s.Log)
	server.Start(t)
	require.Eventually(t, func() bool { // a success, and then settleTime of the real clock
		_, _ = s.Call(t, http.MethodPost, alice+"/ping", "")
		return countLines(t, s, "INFO", "requests succeed again") == 1
	}, time.Minute, 250*time.Millisecond, s.Log)
}
