package boltstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"go.etcd.io/bbolt"
	boltErrors "go.etcd.io/bbolt/errors"
)

// The reasons why a file is refused. The file is not changed then.
var (
	// ErrLocked: another process has the file open.
	ErrLocked = errors.New("the data file is in use by another process")
	// ErrDamaged: the file was a data file, and part of it is lost or altered.
	ErrDamaged = errors.New("the data file is damaged")
	// ErrForeign: the file is something else.
	ErrForeign = errors.New("not a lastseen data file")
	// ErrNewer: the file was written by a later version of lastseen.
	ErrNewer = errors.New("the data file is of a newer format")
)

// lockTimeout is how long to wait for another process to let go of the file.
const lockTimeout = time.Second

// format is the version of the file's layout, which is:
//
//	bucket "lastseen"      "format" → the version; "head" → what belongs to the data, sealed
//	bucket "snapshot-<g>"  chunk number → sealed run of changes; generation g
//	bucket "log-<g>"       sequence number → sealed run of changes; generation g
//
// Numbers in keys are 8 bytes, big endian. The data is the head's snapshot, followed by all records
// of the logs of its generation and later ones.
const format = "1"

var (
	headerBucket = []byte("lastseen")
	formatKey    = []byte("format")
	headKey      = []byte("head")
)

func snapshotBucket(generation uint64) []byte { return fmt.Appendf(nil, "snapshot-%d", generation) }
func logBucket(generation uint64) []byte      { return fmt.Appendf(nil, "log-%d", generation) }
func numberKey(n uint64) []byte               { return binary.BigEndian.AppendUint64(nil, n) }

// head says exactly which records make up the data, so that one that vanished is noticed.
type head struct {
	generation uint64 // of the snapshot, and of the oldest log
	newest     uint64 // generation of the newest log
	chunks     uint64 // in the snapshot, numbered from 1
	first      uint64 // sequence number of the first record of the logs
	last       uint64 // and of the last; first-1 if there are none
}

func (h head) write(header *bbolt.Bucket) error {
	var b []byte
	for _, n := range []uint64{h.generation, h.newest, h.chunks, h.first, h.last} {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	return header.Put(headKey, seal(headKey, b))
}

func readHead(header *bbolt.Bucket) (head, error) {
	b, err := unseal(headKey, header.Get(headKey))
	if err != nil || len(b) != 40 {
		return head{}, fmt.Errorf("%w: its head is unreadable", ErrDamaged)
	}
	n := func(i int) uint64 { return binary.BigEndian.Uint64(b[8*i:]) }
	return head{generation: n(0), newest: n(1), chunks: n(2), first: n(3), last: n(4)}, nil
}

// openFile opens the data file, or makes an empty one where there is none. An existing file is
// checked from end to end, and loaded.
func openFile(path string) (db *bbolt.DB, l loaded, err error) {
	if _, err := os.Lstat(path); errors.Is(err, os.ErrNotExist) {
		if err := createFile(path); err != nil {
			return nil, loaded{}, fmt.Errorf("creating %s: %w", path, err)
		}
	}
	err = guard(func() error {
		if err := checkFile(path); err != nil {
			return err
		}
		db, err = bbolt.Open(path, 0o600, &bbolt.Options{Timeout: lockTimeout, FreelistType: bbolt.FreelistMapType})
		if err != nil {
			return openError(err)
		}
		if l, err = load(db); err == nil {
			err = tidy(db, l.head)
		}
		if err != nil {
			_ = db.Close() // the first error is the one to tell
		}
		return err
	})
	if err != nil {
		return nil, loaded{}, fmt.Errorf("%s: %w", path, err)
	}
	return db, l, nil
}

// guard turns a panic of bbolt's, and a fault in the file's mapping, into ErrDamaged.
func guard(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %v", ErrDamaged, r)
		}
	}()
	return f()
}

// createFile makes an empty data file. It appears under its name only when it is whole, and never in
// the place of another.
func createFile(path string) error {
	temp, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(temp.Name())
	if err := temp.Close(); err != nil {
		return err
	}
	db, err := bbolt.Open(temp.Name(), 0o600, nil)
	if err != nil {
		return err
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		header, err := tx.CreateBucket(headerBucket)
		if err != nil {
			return err
		}
		if err := header.Put(formatKey, []byte(format)); err != nil {
			return err
		}
		return head{first: 1}.write(header)
	})
	if err := errors.Join(err, db.Close()); err != nil {
		return err
	}
	if err := os.Link(temp.Name(), path); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// syncDir makes a new name in a directory survive a loss of power.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// checkFile looks for damage, with the file locked against writers and nothing written. What is not
// ours is refused here already: opened for writing, bbolt adds to a file what it misses in it.
func checkFile(path string) error {
	if info, err := os.Stat(path); err != nil {
		return err
	} else if !info.Mode().IsRegular() || info.Size() == 0 {
		return fmt.Errorf("%w: it is empty or no regular file; remove it to start with no data", ErrForeign)
	}
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: lockTimeout, ReadOnly: true})
	if err != nil {
		return openError(err)
	}
	defer db.Close()
	if err := checkPages(path); err != nil {
		return pageError(err)
	}
	return db.View(func(tx *bbolt.Tx) error {
		_, first := identify(tx)
		for err := range tx.Check() {
			if first == nil {
				first = fmt.Errorf("%w: %w", ErrDamaged, err)
			}
		}
		return first
	})
}

func openError(err error) error {
	var system *os.PathError
	switch {
	case errors.Is(err, boltErrors.ErrTimeout):
		return ErrLocked
	case errors.Is(err, boltErrors.ErrInvalid), errors.Is(err, boltErrors.ErrVersionMismatch), errors.Is(err, boltErrors.ErrChecksum):
		return fmt.Errorf("%w, or damaged at its beginning: %w", ErrForeign, err)
	case errors.As(err, &system):
		return err // not the file's fault: no permission, for example
	default:
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
}

func pageError(err error) error {
	if errors.Is(err, errNotBolt) {
		return fmt.Errorf("%w, or damaged at its beginning: %w", ErrForeign, err)
	}
	return fmt.Errorf("%w: %w", ErrDamaged, err)
}
