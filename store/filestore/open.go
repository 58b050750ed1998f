package filestore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// How often, and how far apart, to try to lock a file that another process has open.
const (
	lockTries = 20
	lockPause = 50 * time.Millisecond
)

// tempName returns the name of the file that is written next to the data file and replaces it when it is complete.
func tempName(path string) string { return path + ".new" }

// resolve returns the file that an absolute path leads to, so that a symbolic link stays when the file is replaced.
func resolve(path string) (string, error) {
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return path, nil
	}
	return filepath.EvalSymlinks(path)
}

// openFile opens and locks the data file, or creates an empty one if it does not exist.
func openFile(path string, version uint32) (*os.File, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return createFile(path, version)
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%w: it is not a regular file", ErrForeign)
	}
	return lockFile(path, os.O_RDWR)
}

// createFile creates an empty data file and returns it locked. The file gets its name when it is complete, so an empty
// or half-written file is never a data file. Processes that create the same file take turns by the lock on the
// temporary one; a file that has the path by then is not replaced.
func createFile(path string, version uint32) (*os.File, error) {
	next, err := newFile(path, version)
	if err == nil {
		if _, statErr := os.Lstat(path); statErr == nil { // another process created it
			next.discard()
			return openFile(path, version)
		}
		if err = next.seal((*os.File).Sync); err == nil {
			err = errors.Join(os.Rename(next.file.Name(), path), SyncDir(path))
		}
		if err == nil {
			return next.file, nil
		}
		next.discard()
	}
	return nil, fmt.Errorf("creating the data file: %w", err)
}

// lockFile opens a file and locks it against other processes. When the file was replaced before it was locked, it has
// lost its name, and lockFile tries again.
func lockFile(name string, flag int) (*os.File, error) {
	for try := 0; ; try++ {
		f, err := os.OpenFile(name, flag, 0o600)
		if err != nil {
			return nil, err
		}
		locked, err := tryLock(f)
		if err == nil && locked {
			locked, err = hasName(f, name)
		}
		if err == nil && locked {
			return f, nil
		}
		f.Close()
		switch {
		case err != nil:
			return nil, err
		case try == lockTries:
			return nil, ErrLocked
		}
		time.Sleep(lockPause)
	}
}

// hasName reports whether a name leads to an open file.
func hasName(f *os.File, name string) (bool, error) {
	own, err := f.Stat()
	if err != nil {
		return false, err
	}
	named, err := os.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(own, named), err
}

// SyncDir makes the name of a file survive a power failure. File systems that cannot sync a directory do not need it.
func SyncDir(path string) error {
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer d.Close()
	err = d.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	return err
}
