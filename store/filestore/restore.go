package filestore

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/memstore"
)

// Restore puts a copy of a backup in the place of a data file and returns its size in bytes. Meanwhile no store can
// open the data file or create it; the copy has its name only when it is complete, verified and on the disk. After any
// error the data file is as it was.
//
// Restore fails with [fs.ErrExist] if there is a data file, unless replace, and with [ErrLocked] while a store has it
// open. It refuses what is no complete backup; see [Verify].
func Restore(backup, path string, replace bool) (size int64, err error) {
	from, err := os.Open(backup)
	if err != nil {
		return 0, err
	}
	defer from.Close()
	if isTemp, err := isTempOf(from, path); err != nil || isTemp {
		return 0, errors.Join(err, errors.New("the backup has the name of a file in the making: rename it first"))
	}
	err = replaceBy(path, replace, func(next *os.File) error {
		if size, err = io.Copy(next, from); err != nil {
			return err
		}
		return Verify(next.Name())
	})
	return size, err
}

// isTempOf reports whether a file is the one that is written next to a data file.
func isTempOf(f *os.File, path string) (bool, error) {
	path, err := absolute(path)
	if err != nil {
		return false, err
	}
	return hasName(f, tempName(path))
}

// Write writes all data to a data file, as Restore puts a backup in place: it is read back and compared before.
func Write(path string, x *memstore.Tables, replace bool) error {
	return replaceBy(path, replace, func(next *os.File) error {
		w := newFileWriter(next, supported().base)
		if err := w.writeSnapshot(x.Snapshot()); err != nil {
			return err
		}
		if err := w.seal((*os.File).Sync); err != nil {
			return err
		}
		written, err := read(next)
		if err != nil {
			return err
		}
		_, _, err = x.Compare(written.Export, func(namespace string, c store.KeptChange) error {
			return fmt.Errorf("%s: %q was written as %+v instead of %+v", namespace, c.User, c.Was, c.Now)
		})
		return err
	})
}

// Read loads a data file. It is locked until release is called, and not changed. Its errors are those of [Open], and
// [fs.ErrNotExist].
func Read(path string) (x *memstore.Tables, release func(), err error) {
	path, err = absolute(path)
	if err != nil {
		return nil, nil, err
	}
	file, err := lockFile(path, os.O_RDWR)
	if err != nil {
		return nil, nil, err
	}
	if x, err = read(file); err != nil {
		file.Close()
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	return x, func() { file.Close() }, nil
}

func read(file *os.File) (*memstore.Tables, error) {
	x := memstore.NewTables(memstore.Options{})
	return x, x.Fill(func(log memstore.Log) error {
		_, err := supported().load(file, log)
		return err
	})
}

// replaceBy writes a data file to put in the place of another one.
func replaceBy(path string, replace bool, write func(next *os.File) error) error {
	path, err := absolute(path)
	if err != nil {
		return err
	}
	next, err := lockFile(tempName(path), os.O_RDWR|os.O_CREATE) // as those do who create or compact the data file
	if err != nil {
		return err
	}
	defer next.Close()
	if err := replaceLocked(path, replace, next, write); err != nil {
		os.Remove(next.Name())
		return err
	}
	return SyncDir(path)
}

func replaceLocked(path string, replace bool, next *os.File, write func(next *os.File) error) error {
	old, err := lockFile(path, os.O_RDWR)
	if err == nil {
		defer old.Close()
		if !replace {
			return fs.ErrExist
		}
		err = sameMode(next, old)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := next.Truncate(0); err != nil {
		return err
	}
	if err := write(next); err != nil {
		return err
	}
	if err := next.Sync(); err != nil {
		return err
	}
	return os.Rename(next.Name(), path)
}

// absolute returns the file that a path leads to.
func absolute(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	return resolve(path)
}
