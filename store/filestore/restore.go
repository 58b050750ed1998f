package filestore

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Restore puts a copy of a backup in the place of a data file and returns its size in bytes. Meanwhile no store can
// open the data file or create it; the copy has its name only when it is complete, verified and on the disk. After any
// error the data file is as it was.
//
// Restore fails with [fs.ErrExist] if there is a data file, unless replace, and with [ErrLocked] while a store has it
// open. It refuses what is no complete backup; see [Verify].
func Restore(backup, path string, replace bool) (size int64, err error) {
	path, err = filepath.Abs(path)
	if err == nil {
		path, err = resolve(path)
	}
	if err != nil {
		return 0, err
	}
	from, err := os.Open(backup)
	if err != nil {
		return 0, err
	}
	defer from.Close()
	next, err := lockFile(tempName(path), os.O_RDWR|os.O_CREATE) // as those do who create or compact the data file
	if err != nil {
		return 0, err
	}
	defer next.Close()
	if size, err = replaceBy(next, from, path, replace); err != nil {
		os.Remove(next.Name())
		return 0, err
	}
	return size, SyncDir(path)
}

// replaceBy copies a backup to next and gives that the name path.
func replaceBy(next, backup *os.File, path string, replace bool) (size int64, err error) {
	old, err := lockFile(path, os.O_RDWR)
	if err == nil {
		defer old.Close()
		if !replace {
			return 0, fs.ErrExist
		}
		err = sameMode(next, old)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	if err := next.Truncate(0); err != nil {
		return 0, err
	}
	if size, err = io.Copy(next, backup); err != nil {
		return 0, err
	}
	if err := Verify(next.Name()); err != nil {
		return 0, err
	}
	if err := next.Sync(); err != nil {
		return 0, err
	}
	return size, os.Rename(next.Name(), path)
}
