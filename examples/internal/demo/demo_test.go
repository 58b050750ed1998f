package demo

import (
	"context"
	"fmt"
	"io"
	"net/http"
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

// run runs an example without a page.
func run(ctx context.Context, t *testing.T, args []string, out io.Writer) error {
	t.Helper()
	return Demo{Name: "test", Title: "test", Listen: "127.0.0.1:0", Handler: page}.Run(ctx, args, out)
}

func page(context.Context, string, io.Writer) http.Handler { return http.NotFoundHandler() }

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
	crashing := program(t, fmt.Sprintf("echo '  API   http://127.0.0.1:1/v1/namespaces'\nwhile [ -e %s ]; do sleep 0.05; done\necho crashed >&2",
		running))
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

func TestRunRefusesArguments(t *testing.T) {
	t.Parallel()
	require.ErrorContains(t, run(t.Context(), t, []string{"now"}, io.Discard), `"now"`)
}
