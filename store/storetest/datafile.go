package storetest

import (
	"os"
	"path/filepath"
	"testing"
)

// DataFile returns the path of a data file to create, which is gone after the test. The file is in memory where there
// is such a file system: most tests are not about what the disk does. Those that are use t.TempDir.
func DataFile(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "lastseen-test-") //nolint:usetesting // t.TempDir is on a disk
	if err != nil {
		dir = t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return filepath.Join(dir, "lastseen.db")
}
