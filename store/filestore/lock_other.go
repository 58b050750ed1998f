//go:build !(darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd)

package filestore

import (
	"errors"
	"fmt"
	"os"
	"runtime"
)

// tryLock fails: without a lock, two processes could write to one file.
func tryLock(*os.File) (bool, error) {
	return false, fmt.Errorf("locking files on %s: %w; store data in Redis there", runtime.GOOS, errors.ErrUnsupported)
}
