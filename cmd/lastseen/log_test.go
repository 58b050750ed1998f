package main

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// logLines returns the log of a service with --log-format json.
func (s *service) logLines(t *testing.T) (lines []map[string]any) {
	t.Helper()
	for line := range strings.Lines(s.log.String()) {
		if !strings.HasSuffix(line, "\n") {
			break // the rest of it is on its way
		}
		var fields map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &fields), "%q", line)
		lines = append(lines, fields)
	}
	return lines
}

// count returns how many lines have a message and a level.
func (s *service) count(t *testing.T, level, message string) (n int) {
	t.Helper()
	for _, line := range s.logLines(t) {
		if line["level"] == level && strings.Contains(line["msg"].(string), message) {
			n++
		}
	}
	return n
}

// TestLogSettings: lines in JSON, an access log that a reload switches on, and no user in it.
func TestLogSettings(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "lastseen.yaml")
	write := func(text string) { require.NoError(t, os.WriteFile(file, []byte(text), 0o600)) }
	write("log-format: json\ngreen: 59s\nping-interval: 30s\n") // which is worth a warning
	s := start(t, "--config", file)
	s.post(t, alice+"/ping", "")
	require.Equal(t, 1, s.count(t, "WARN", "less than two ping intervals"))
	require.Zero(t, s.count(t, "INFO", "request"))

	write("log-format: json\naccess-log: on\n")
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGHUP))
	require.Eventually(t, func() bool { return s.count(t, "INFO", "configuration reloaded") == 1 }, 10*time.Second,
		10*time.Millisecond)
	s.post(t, alice+"/ping", "")
	require.Eventually(t, func() bool { return s.count(t, "INFO", "request") == 1 }, 10*time.Second,
		10*time.Millisecond)
	require.NotContains(t, s.log.String(), "alice")
	require.Zero(t, s.terminate(t))
	require.Equal(t, 1, s.count(t, "INFO", "stopping"), "all that was logged is JSON")
}

func TestWrongLogSettings(t *testing.T) {
	for args, want := range map[string]string{
		"--log-format xml": `--log-format: "xml" is not valid; use text or json`,
		"--access-log yes": `--access-log: "yes" is not valid; use on or off`,
	} {
		code, _, log := runInProcess(append([]string{"config"}, strings.Split(args, " ")...)...)
		require.Equal(t, 2, code)
		require.Contains(t, log, want)
	}
}

// TestRedisOutageInTheLog stops Redis under a running service: many requests fail, and the log has few lines.
func TestRedisOutageInTheLog(t *testing.T) {
	t.Parallel()
	server := redistest.StartProcess(t)
	s := start(t, "--store", server.URL(), "--log-format", "json")
	s.post(t, alice+"/ping", "")
	server.Stop(t)
	for range 50 {
		status, _ := s.call(t, http.MethodPost, alice+"/ping", "")
		require.Equal(t, http.StatusServiceUnavailable, status)
	}
	require.Equal(t, 1, s.count(t, "ERROR", "request failed"), s.log)
	// The requests, the check of the server, the circuit breaker, and background jobs that happen to run: a line each.
	require.LessOrEqual(t, len(s.logLines(t)), 5, s.log)
	server.Start(t)
	require.Eventually(t, func() bool { // a success, and then settleTime of the real clock
		_, _ = s.call(t, http.MethodPost, alice+"/ping", "")
		return s.count(t, "INFO", "requests succeed again") == 1
	}, time.Minute, 250*time.Millisecond, s.log)
}
