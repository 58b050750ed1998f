package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestScriptHasAllFragments checks that each file in the folder api/web/lastseen is part of lastseen.js, once.
func TestScriptHasAllFragments(t *testing.T) {
	entries, err := os.ReadDir(filepath.Join(root, "api", "web", "lastseen"))
	require.NoError(t, err)
	var names []string
	for _, entry := range entries {
		names = append(names, strings.TrimSuffix(entry.Name(), ".js"))
	}
	require.ElementsMatch(t, names, fragments())
}

// TestScriptReportsErrors checks that a fragment that is not valid is an error that names the place.
func TestScriptReportsErrors(t *testing.T) {
	dir := t.TempDir()
	folder := filepath.Join(dir, "api", "web", "lastseen")
	require.NoError(t, os.MkdirAll(folder, 0o755))
	for _, name := range fragments() {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name+".js"), []byte("f(]\n"), 0o600))
	}
	_, err := script(dir)
	require.ErrorContains(t, err, "f(]")
	_, err = script(t.TempDir())
	require.ErrorIs(t, err, os.ErrNotExist)
}
