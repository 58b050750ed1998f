package filestore

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// retryCompaction is how long to wait after a failed compaction.
const retryCompaction = time.Minute

// compactionDue reports whether the file should be rewritten: when the records that no longer count take more room
// than the live data, and more than compactAfter. When the file cannot grow any further, it does not wait for the
// latter. live is about the size of the data in a new file.
func (l *fileLog) compactionDue(live int64, full bool) bool {
	if l.busy.Load() || l.failed.Load() && l.now().Sub(l.tried) < retryCompaction {
		return false // a second freeze of the index must not come before the first one was read
	}
	after := l.compactAfter
	if full {
		after = 1
	}
	return l.end-live >= max(after, live)
}

// startCompaction rewrites the file in the background. The given namespaces contain everything that is in the file.
func (l *fileLog) startCompaction(namespaces []frozen) {
	l.busy.Store(true)
	l.tried = l.now()
	from := l.end
	l.compacting.Go(func() {
		err := l.compact(namespaces, from)
		l.failed.Store(err != nil)
		l.busy.Store(false)
		if err != nil && !errors.Is(err, errStopped) {
			l.logger.Error("cannot compact the data file; it keeps growing until a later attempt succeeds", "error", err)
		}
	})
}

// errStopped ends a compaction when the store is closed.
var errStopped = errors.New("stopped")

// copyLocked is how much of the log is copied at most while appending waits.
const copyLocked = 1 << 20

// compact writes a new file beside the one in use: a snapshot of the given namespaces, and what was appended to the
// log from an offset on. Appending goes on until almost all is copied. Then the new file takes the name of the old
// one. Until that moment a crash leaves the old file, from then on the new one; both are complete.
func (l *fileLog) compact(namespaces []frozen, from int64) (err error) {
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
	if err := next.writeSnapshot(namespaces); err != nil {
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
	if err := next.file.Sync(); err != nil { // most of it, while appending goes on
		return err
	}
	old := l.file
	if err := l.replace(next, from); err != nil {
		return err
	}
	old.Close() // and with that it is deleted, which takes a while
	return nil
}

// replace completes the new file and puts it in the place of the old one.
func (l *fileLog) replace(next *fileWriter, from int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := next.copyLog(l.file, l.header, from, l.end); err != nil {
		return err
	}
	if err := next.complete(); err != nil {
		return err
	}
	if err := l.mayReplace(next.file); err != nil {
		return err
	}
	if err := os.Rename(next.file.Name(), l.path); err != nil {
		return err
	}
	l.file, l.header, l.end, l.renamed = next.file, next.header, next.end, true
	if err := l.syncName(); err != nil {
		l.logger.Error("cannot sync the folder of the data file; writes fail until it works", "error", err)
	}
	return nil
}

// mayReplace gives a new file the permissions of the one in use, and returns an error when the path leads to another
// file by now, which somebody else has put there.
func (l *fileLog) mayReplace(next *os.File) error {
	info, err := l.file.Stat()
	if err != nil {
		return err
	}
	if named, err := hasName(l.file, l.path); err != nil || !named {
		return errors.Join(fmt.Errorf("%s was moved or replaced while it was in use", l.path), err)
	}
	return next.Chmod(info.Mode().Perm())
}

// fileWriter writes a new data file under its temporary name. Its methods return errStopped when stop is closed.
type fileWriter struct {
	file   *os.File
	header header
	end    int64
	synced int64
	stop   chan struct{} // nil if the writing has to end by itself
}

// newFile creates and locks an empty file to write to. One that a crash left behind is used again.
func newFile(path string, version uint32) (*fileWriter, error) {
	f, err := lockFile(tempName(path), os.O_RDWR|os.O_CREATE)
	if err != nil {
		return nil, err
	}
	var salt [4]byte
	_, _ = rand.Read(salt[:]) // never fails: see crypto/rand
	w := &fileWriter{
		file: f, header: header{version: version, salt: binary.BigEndian.Uint32(salt[:])}, end: headerSize,
	}
	if err := f.Truncate(0); err != nil {
		w.discard()
		return nil, err
	}
	return w, nil
}

// chunkSize is about the size of a record of a snapshot.
const chunkSize = 1 << 20

// syncEvery is how many bytes are written before a sync. It is little, because flushes may have to wait for it.
const syncEvery = 4 << 20

// write appends a record.
func (w *fileWriter) write(payload []byte) error {
	select {
	case <-w.stop:
		return errStopped
	default:
	}
	if _, err := w.file.WriteAt(w.header.head(w.end, payload), w.end); err != nil {
		return err
	}
	if _, err := w.file.WriteAt(payload, w.end+headSize); err != nil {
		return err
	}
	w.end += headSize + int64(len(payload))
	if w.end-w.synced < syncEvery {
		return nil
	}
	w.synced = w.end
	return w.file.Sync()
}

// writeSnapshot writes all users of all namespaces. A namespace without users exists, too.
func (w *fileWriter) writeSnapshot(namespaces []frozen) (err error) {
	run := changes{}
	flush := func() {
		err = w.write(run.buf)
		run = changes{buf: run.buf[:0]}
	}
	for _, n := range namespaces {
		if len(run.buf) >= chunkSize { // of names of empty namespaces
			if flush(); err != nil {
				return err
			}
		}
		run.in(n.name)
		n.order.Scan(func(e entry) bool {
			run.set(n.name, string(n.names.at(e.name)), e.score.state())
			if len(run.buf) >= chunkSize {
				flush()
			}
			return err == nil
		})
		if err != nil {
			return err
		}
	}
	flush()
	return err
}

// copyLog appends the records between two offsets of another file.
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

// complete seals the file and syncs it to the disk.
func (w *fileWriter) complete() error {
	w.header.sealed = w.end
	_, err := w.file.WriteAt(w.header.bytes(), 0)
	if err != nil {
		return err
	}
	return w.file.Sync()
}

// discard removes the file. When the disk is full, the log needs the room.
func (w *fileWriter) discard() {
	os.Remove(w.file.Name()) // before it is unlocked, so that it cannot be anybody else's by now
	w.file.Close()
}
