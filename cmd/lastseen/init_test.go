package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testserver"
)

// TestInit: a server starts with the file, and takes the key. An existing file stays.
func TestInit(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	code, key, log := runInProcess("init")
	require.Zero(t, code, log)
	require.Contains(t, log, "wrote lastseen.yaml")
	content, err := os.ReadFile("lastseen.yaml")
	require.NoError(t, err)
	require.NotContains(t, string(content), strings.TrimSpace(key))

	code, out, log := runInProcess("config", "--check", "--config", "lastseen.yaml")
	require.Zero(t, code, log)
	require.Equal(t, "ok\n", out)
	s := testserver.Start(t, "--config", filepath.Join(dir, "lastseen.yaml"), "--store", "data.db")
	t.Setenv("LASTSEEN_API_KEY", strings.TrimSpace(key))
	t.Setenv("LASTSEEN_SERVER", s.URL)
	code, out, log = runInProcess("ping", "chat", "alice")
	require.Zero(t, code, log)
	require.Equal(t, "1 recorded\n", out)
	t.Setenv("LASTSEEN_API_KEY", "")
	code, _, log = runInProcess("ping", "chat", "alice")
	require.Equal(t, 1, code)
	require.Contains(t, log, "unauthenticated")

	code, out, log = runInProcess("init")
	require.Equal(t, 1, code)
	require.Empty(t, out)
	require.Equal(t, "lastseen: lastseen.yaml exists; choose another file\n", log)
	again, err := os.ReadFile("lastseen.yaml")
	require.NoError(t, err)
	require.Equal(t, content, again)

	require.NoError(t, os.WriteFile("wrong.yaml", []byte("listne: x\n"), 0o600))
	code, out, log = runInProcess("config", "--check", "--config", "wrong.yaml")
	require.Equal(t, 2, code)
	require.Empty(t, out)
	require.Contains(t, log, "listne")
}
