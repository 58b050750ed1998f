package testserver

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// WriteFile writes a file of a given name and returns its path.
func WriteFile(t testing.TB, name string, content []byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(file, content, 0o600))
	return file
}

// WriteConfig writes a configuration file and returns its name.
func WriteConfig(t testing.TB, content string) string {
	t.Helper()
	return WriteFile(t, "lastseen.yaml", []byte(content))
}
