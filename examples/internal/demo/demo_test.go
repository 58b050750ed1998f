package demo

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// program returns a program that does something instead of lastseen.
func program(t *testing.T, script string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+script), 0o700))
	return path
}

// run runs an example whose page needs a server that answers.
func run(ctx context.Context, t *testing.T, args []string, out io.Writer) error {
	t.Helper()
	return Demo{Name: "test", Title: "test", Listen: "127.0.0.1:0", Handler: page}.Run(ctx, args, out)
}

func page(ctx context.Context, presence string, _ io.Writer) (http.Handler, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, presence, nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	return http.NotFoundHandler(), response.Body.Close()
}

// presenceServer is a lastseen server that accepts everything.
func presenceServer(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func TestRunReportsServersThatDoNotStart(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	broken := program(t, "echo a setting is wrong >&2; exit 2")
	err := run(t.Context(), t, []string{"--lastseen", broken}, io.Discard)
	require.ErrorContains(t, err, "a setting is wrong")
	left, err := os.ReadDir(os.Getenv("TMPDIR"))
	require.NoError(t, err)
	require.Empty(t, left)
}

// TestRunEndsWithItsServer: an example without its server reports that, with the log.
func TestRunEndsWithItsServer(t *testing.T) {
	t.Parallel()
	running := filepath.Join(t.TempDir(), "running")
	require.NoError(t, os.WriteFile(running, nil, 0o600))
	crashing := program(t, fmt.Sprintf("echo '  API   %s/v1/namespaces'\nwhile [ -e %s ]; do sleep 0.05; done\necho crashed >&2",
		presenceServer(t), running))
	out, in := io.Pipe()
	failed := make(chan error, 1)
	go func() { failed <- run(t.Context(), t, []string{"--lastseen", crashing}, in) }()
	_, err := out.Read(make([]byte, 1000)) // it is there
	require.NoError(t, err)
	require.NoError(t, os.Remove(running))
	err = <-failed
	require.ErrorContains(t, err, "lastseen has ended")
	require.ErrorContains(t, err, "crashed")
}

// TestRunUsesServer: with --url, no process is started, and Ctrl-C is not an error.
func TestRunUsesServer(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	out, in := io.Pipe()
	failed := make(chan error, 1)
	go func() { failed <- run(ctx, t, []string{"--url", presenceServer(t) + "/"}, in) }()
	_, err := out.Read(make([]byte, 1000))
	require.NoError(t, err)
	cancel()
	require.NoError(t, <-failed)
	err = run(t.Context(), t, []string{"--url", "http://127.0.0.1:1"}, io.Discard)
	require.ErrorContains(t, err, "127.0.0.1:1")
	require.ErrorContains(t, run(t.Context(), t, []string{"now"}, io.Discard), `"now"`)
}
