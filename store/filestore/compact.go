package filestore

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/lastseen/lastseen/store/memstore"
)

// retryCompaction is how long to wait after a failed compaction.
const retryCompaction = time.Minute

// compactionDue reports whether to rewrite the file: when its superseded records take more room than the live data, and
// more than compactAfter, unless the file is full and cannot grow. live is about the size of the data in a new file.
func (l *fileLog) compactionDue(live int64, full bool) bool {
	if l.busy.Load() || l.failed.Load() && l.now().Sub(l.tried) < retryCompaction {
		return false // a second snapshot must not be taken before the first one was read
	}
	after := l.compactAfter
	if full {
		after = 1
	}
	return l.end-live >= max(after, live)
}

// startCompaction rewrites the file in the background. The snapshot has everything that is in the file.
func (l *fileLog) startCompaction(snapshot memstore.Snapshot) {
	l.busy.Store(true)
	l.tried = l.now()
	from := l.end
	l.compacting.Go(func() {
		err := l.compact(snapshot, from)
		l.failed.Store(err != nil)
		if err == nil {
			l.compacted.Add(1)
		}
		l.busy.Store(false)
		if err != nil && !errors.Is(err, errStopped) {
			l.logger.Error("cannot compact the data file; it keeps growing until a later attempt succeeds",
				"error", err)
		}
	})
}

// errStopped means that the store was closed during a compaction.
var errStopped = errors.New("stopped")

// copyLocked is the most bytes of the log that are copied while appending waits.
const copyLocked = 1 << 20

// compact writes a new file next to the one in use: a snapshot, and what was appended to the log from an offset
// on. Appending continues until almost all is copied. Then the new file takes the name of the old
// one. A crash leaves one of them, complete.
func (l *fileLog) compact(snapshot memstore.Snapshot, from int64) (err error) {
	next, err := newFile(l.path, l.version)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			next.discard()
		}
	}()
	next.stop = l.stop
	if err := next.writeSnapshot(snapshot); err != nil {
		return err
	}
	for {
		l.mu.Lock()
		end := l.end
		l.mu.Unlock()
		if end-from <= copyLocked {
			break
		}
		if err := next.copyLog(l.file, l.header, from, end); err != nil {
			return err
		}
		from = end
	}
	if err := next.file.Sync(); err != nil { // most of it, while appending continues
		return err
	}
	old := l.file
	if err := l.replace(next, from); err != nil {
		return err
	}
	old.Close() // this deletes it, which takes a while
	return nil
}

// replace completes the new file and puts it in the place of the old one.
func (l *fileLog) replace(next *fileWriter, from int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := next.copyLog(l.file, l.header, from, l.end); err != nil {
		return err
	}
	next.header.version = max(next.header.version, l.header.version)
	if err := next.seal((*os.File).Sync); err != nil { // this writes the header
		return err
	}
	if err := l.mayReplace(next.file); err != nil {
		return err
	}
	if err := os.Rename(next.file.Name(), l.path); err != nil {
		return err
	}
	l.recordFile, l.renamed = next.recordFile, true
	l.size.Store(l.end)
	if err := l.syncName(); err != nil {
		l.logger.Error("cannot sync the folder of the data file; writes fail until it works", "error", err)
	}
	return nil
}

// mayReplace gives a new file the permissions of the one in use. It returns an error when the path leads to a third
// file by now.
func (l *fileLog) mayReplace(next *os.File) error {
	if named, err := hasName(l.file, l.path); err != nil || !named {
		return errors.Join(fmt.Errorf("%s was moved or replaced while it was in use", l.path), err)
	}
	return sameMode(next, l.file)
}

// sameMode gives a new file the permissions of an old one.
func sameMode(next, old *os.File) error {
	info, err := old.Stat()
	if err != nil {
		return err
	}
	return next.Chmod(info.Mode().Perm())
}

// fileWriter writes a new data file under its temporary name.
type fileWriter struct {
	recordFile
	synced int64
	stop   chan struct{} // makes writes fail with errStopped when it is closed; may be nil
}

// newFile creates and locks an empty file to write to. It uses one that a crash left behind again.
func newFile(path string, version uint32) (*fileWriter, error) {
	f, err := lockFile(tempName(path), os.O_RDWR|os.O_CREATE)
	if err != nil {
		return nil, err
	}
	w := newFileWriter(f, version)
	if err := f.Truncate(0); err != nil {
		w.discard()
		return nil, err
	}
	return w, nil
}

// newFileWriter returns a writer to an empty file.
func newFileWriter(f *os.File, version uint32) *fileWriter {
	var salt [4]byte
	_, _ = rand.Read(salt[:]) // never fails: see crypto/rand
	h := header{version: version, salt: binary.BigEndian.Uint32(salt[:])}
	return &fileWriter{recordFile: recordFile{f, h, headerSize}}
}

// chunkSize is about the size of a record of a snapshot.
const chunkSize = 1 << 20

// syncEvery is how many bytes are written before a sync. It is small, because flushes may have to wait for it.
const syncEvery = 4 << 20

// write appends a record and now and then syncs the file.
func (w *fileWriter) write(payload []byte) error {
	select {
	case <-w.stop:
		return errStopped
	default:
	}
	if err := w.appendRecord(payload); err != nil || w.end-w.synced < syncEvery {
		return err
	}
	w.synced = w.end
	return w.file.Sync()
}

// writeSnapshot writes everything in a snapshot.
func (w *fileWriter) writeSnapshot(snapshot memstore.Snapshot) (err error) {
	run := changes{}
	writeFrom := func(size int) error {
		w.header.version = max(w.header.version, run.version)
		if len(run.buf) < size {
			return nil
		}
		err := w.write(run.buf)
		run = changes{buf: run.buf[:0]}
		return err
	}
	snapshot.Write(&run, func() bool {
		err = writeFrom(chunkSize)
		return err == nil
	})
	if err != nil {
		return err
	}
	return writeFrom(0)
}

func (w *fileWriter) copyLog(f io.ReaderAt, h header, from, to int64) error {
	r := newRecordReader(f, h, from, to)
	for {
		payload, err := r.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = w.write(payload)
		}
		if err != nil {
			return fmt.Errorf("copying the log: %w", err)
		}
	}
}

// discard removes the file. When the disk is full, the log needs the room.
func (w *fileWriter) discard() {
	os.Remove(w.file.Name()) // before it is unlocked, so that it cannot be the file of another process
	w.file.Close()
}
