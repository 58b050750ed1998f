package deploy_test

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// tool returns the path of a program. Without it the test is skipped, or fails if LASTSEEN_TEST_REQUIRE contains the
// name of what it belongs to.
func tool(t *testing.T, program, belongsTo string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	switch {
	case err == nil:
	case slices.Contains(strings.Split(os.Getenv("LASTSEEN_TEST_REQUIRE"), ","), belongsTo):
		t.Fatalf("LASTSEEN_TEST_REQUIRE asks for %s: %v", belongsTo, err)
	default:
		t.Skipf("no %s on PATH: install %s to run this test", program, belongsTo)
	}
	return path
}

// run runs a program in a folder and returns its output. If it fails, the test does.
func run(t *testing.T, dir, path string, args ...string) string {
	t.Helper()
	command := exec.Command(path, args...)
	command.Dir = dir
	out, err := command.CombinedOutput()
	require.NoError(t, err, "%s %v: %s", path, args, out)
	return string(out)
}
