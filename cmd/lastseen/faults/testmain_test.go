//go:build faults

package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lastseen/lastseen/internal/testenv"
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
	if out, err := testenv.Command("go", "build", "-o", binary, "..").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building lastseen: %v\n%s", err, out)
		return 1
	}
	os.Setenv(binaryVar, binary)
	return m.Run()
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
