package deploy_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testenv"
)

// run runs a program in a folder and returns its output. If it fails, the test does.
func run(t *testing.T, dir, path string, args ...string) string {
	t.Helper()
	command := testenv.Command(path, args...)
	command.Dir = dir
	out, err := command.CombinedOutput()
	require.NoError(t, err, "%s %v: %s", path, args, out)
	return string(out)
}
