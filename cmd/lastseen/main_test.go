package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testserver"
)

func TestMain(m *testing.M) { os.Exit(testserver.Main(m)) }

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { panic("broken") }

// TestRunPanics: a defect must not end the process with code 0.
func TestRunPanics(t *testing.T) {
	require.PanicsWithValue(t, "broken", func() { run(t.Context(), []string{"version"}, brokenWriter{}, io.Discard) })
}

// execute runs one command line to its end, with a context that has ended: serve stops at once.
func execute(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	t.Chdir(t.TempDir())
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var out, err bytes.Buffer
	code = run(ctx, args, &out, &err)
	return code, out.String(), err.String()
}

// runInProcess runs a command line that ends by itself.
func runInProcess(args ...string) (code int, out, log string) {
	var stdout, stderr bytes.Buffer
	code = run(context.Background(), args, &stdout, &stderr)
	return code, stdout.String(), stderr.String()
}

// requireLogged waits until a server has logged a text.
func requireLogged(t *testing.T, s *testserver.Server, text string) {
	t.Helper()
	logged := func() bool { return strings.Contains(s.Log.String(), text) }
	require.Eventually(t, logged, time.Minute, time.Millisecond, "%q in %s", text, s.Log)
}

// hangup replaces the configuration of a server, unless file is empty, and sends it SIGHUP.
func hangup(t *testing.T, s *testserver.Server, file, content string) {
	t.Helper()
	if file != "" {
		require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
	}
	require.NoError(t, s.Cmd.Process.Signal(syscall.SIGHUP))
}

// statusOf returns the status of a request with a key or a token.
func statusOf(t *testing.T, s *testserver.Server, method, path, credentials string) int {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, http.NoBody)
	require.NoError(t, err)
	request.Header.Set("Authorization", "Bearer "+credentials)
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	response.Body.Close()
	return response.StatusCode
}

// requireRefused requires that each command line, of which arguments after the first ones are in a text, ends at once,
// says why, prints nothing else, and shows no secret.
func requireRefused(t *testing.T, first []string, refused map[string]string) {
	t.Helper()
	for line, want := range refused {
		code, stdout, stderr := execute(t, append(slices.Clone(first), strings.Fields(line)...)...)
		require.Equal(t, 2, code, "%s: %s", line, stderr)
		require.Empty(t, stdout, line)
		require.Contains(t, stderr, want, line)
		require.NotContains(t, stderr, "geheim", line)
	}
}
