//go:build faults

package faults

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// binaryVar is the environment variable with the path of the program under test.
const binaryVar = "LASTSEEN_TEST_BINARY"

// TestMain builds the program once. Started again by a test, this program is a client.
func TestMain(m *testing.M) {
	if url := os.Getenv(clientVar); url != "" {
		os.Exit(holdAsChild(url))
	}
	os.Exit(buildAndRun(m))
}

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "lastseen-faults-*")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	for _, variable := range os.Environ() { // that a developer has set to run lastseen
		name, _, _ := strings.Cut(variable, "=")
		if strings.HasPrefix(name, "LASTSEEN_") && !strings.HasPrefix(name, "LASTSEEN_TEST_") {
			os.Unsetenv(name)
		}
	}
	binary := filepath.Join(dir, "lastseen")
	if out, err := exec.Command("go", "build", "-o", binary, "..").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building lastseen: %v\n%s", err, out)
		return 1
	}
	os.Setenv(binaryVar, binary)
	return m.Run()
}

// requirePart skips a test that needs a part, such as nginx, that is missing; or fails it if LASTSEEN_TEST_REQUIRE
// contains the part's name.
func requirePart(t testing.TB, name string, missing error) {
	t.Helper()
	switch {
	case missing == nil:
	case slices.Contains(strings.Split(os.Getenv("LASTSEEN_TEST_REQUIRE"), ","), name):
		t.Fatalf("LASTSEEN_TEST_REQUIRE asks for %s: %v", name, missing)
	default:
		t.Skipf("needs %s: %v", name, missing)
	}
}

// fullOrShort returns how often, how many or how long: the first value, or with -short the second.
func fullOrShort[T any](full, short T) T {
	if testing.Short() {
		return short
	}
	return full
}

// awaitFor is how long anything may take before a test fails. It does not measure; it ends a test that hangs.
const awaitFor = time.Minute

// await waits until a condition holds.
func await(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(awaitFor); !condition(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("after %s still waiting for: %s", awaitFor, what)
		}
	}
}
