//go:build faults

package faults

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// clockVar is the environment variable that testdata/clock.c and a build with the tag faults read.
const clockVar = "FAULTS_CLOCK_OFFSET"

// steppedClock is a machine's clock that a test can set while programs run.
type steppedClock struct{ path string }

func newSteppedClock(t testing.TB) steppedClock {
	t.Helper()
	c := steppedClock{filepath.Join(t.TempDir(), "offset")}
	require.NoError(t, os.WriteFile(c.path, make([]byte, 8), 0o600))
	return c
}

// set makes the clock be off by some seconds. It does not cut the file, which programs read at any time.
func (c steppedClock) set(t testing.TB, off time.Duration) {
	t.Helper()
	file, err := os.OpenFile(c.path, os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = file.WriteAt(binary.LittleEndian.AppendUint64(nil, uint64(off/time.Second)), 0)
	require.NoError(t, err)
	require.NoError(t, file.Close())
}

// startRedis starts a Redis on the clock.
func (c steppedClock) startRedis(t *testing.T) *redistest.Process {
	t.Helper()
	compiler := testenv.Program(t, "cc", "cc")
	library := filepath.Join(t.TempDir(), "clock.so")
	runCommand(t, compiler, "-shared", "-fPIC", "-O2", "-o", library, "testdata/clock.c")
	t.Setenv("LD_PRELOAD", library)
	t.Setenv(clockVar, c.path)
	defer func() { // for all other programs
		os.Unsetenv("LD_PRELOAD")
		os.Unsetenv(clockVar)
	}()
	return redistest.StartProcess(t)
}

// buildWithClock builds the program on a clock that can be set.
func buildWithClock(t testing.TB) (binary string) {
	t.Helper()
	binary = filepath.Join(t.TempDir(), "lastseen")
	runCommand(t, "go", "build", "-tags", "faults", "-o", binary, "..")
	return binary
}

// startOn starts a server on the clock.
func (c steppedClock) startOn(t testing.TB, binary, store string, args ...string) *server {
	t.Helper()
	s := newServer(t, store, args...)
	s.binary, s.prefix = binary, []string{"env", clockVar + "=" + c.path}
	s.start(t)
	return s
}
