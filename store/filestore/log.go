package filestore

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lastseen/lastseen/store/memstore"
)

// recordFile is an open data file that records are appended to.
type recordFile struct {
	file   *os.File
	header header
	end    int64 // offset of the next record
}

// appendRecord writes a record, without syncing it to the disk.
func (f *recordFile) appendRecord(payload []byte) error {
	if len(payload) > maxPayload {
		return fmt.Errorf("a record of %d bytes is too long", len(payload))
	}
	if _, err := f.file.WriteAt(f.header.head(f.end, payload), f.end); err != nil {
		return err
	}
	if _, err := f.file.WriteAt(payload, f.end+headSize); err != nil {
		return err
	}
	f.end += headSize + int64(len(payload))
	return nil
}

// seal notes in the header that the file is complete up to its end, so that damage to its last record, or the loss of
// its end, is found at the next start. The header lies within one sector of the disk, which is written as a whole.
func (f *recordFile) seal(fsync func(*os.File) error) error {
	h := f.header
	h.sealed = f.end
	return f.setHeader(h, fsync)
}

// setHeader writes a header and syncs it to the disk, unless the file has it.
func (f *recordFile) setHeader(h header, fsync func(*os.File) error) error {
	if h == f.header {
		return nil
	}
	if _, err := f.file.WriteAt(h.bytes(), 0); err != nil {
		return err
	}
	if err := fsync(f.file); err != nil {
		return err
	}
	f.header = h
	return nil
}

// fileLog is the data file in use. It appends records to the file, and replaces the file by a shorter one when it has
// grown. Only the writer's goroutine calls its methods, except reopen.
type fileLog struct {
	path         string // of the file, without symbolic links
	version      uint32 // the lowest of the files that it writes
	compactAfter int64
	now          func() time.Time
	logger       *slog.Logger
	fsync        func(*os.File) error // tests make it fail

	mu         sync.Mutex   // held while a record is appended and while the file is replaced
	recordFile              // everything before its end is on the disk
	renamed    bool         // the new name of the file may not be on the disk yet
	size       atomic.Int64 // the end, to be read without mu, which is held while the disk hangs

	compacting sync.WaitGroup
	busy       atomic.Bool   // a compaction is in progress
	failed     atomic.Bool   // the last compaction failed
	compacted  atomic.Int64  // compactions that finished
	tried      time.Time     // when the last compaction began
	stop       chan struct{} // closed to end a compaction
}

// prepare removes what a crash left behind, and rewrites a file of an older format. It is the first to change the file.
func (l *fileLog) prepare(found loaded, x *memstore.Tables) error {
	os.Remove(tempName(l.path))
	if found.header.version < l.version {
		l.logger.Info("upgrading the data file", "from", found.header.version, "to", l.version)
		return l.compact(x.Snapshot(), l.end)
	}
	if found.torn == 0 {
		return nil
	}
	l.logger.Warn("a crash interrupted the last flush; its rest is cut off", "file", l.path, "bytes", found.torn)
	return errors.Join(l.file.Truncate(l.end), l.fsync(l.file))
}

// append writes a run and syncs it to the disk, one record after the other. After an error the run is cut off again
// (see docs/decisions/data-file.md). When that fails, too, the next run overwrites the record that failed; after a
// crash that record is a torn one.
func (l *fileLog) append(run changes) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer func() { l.size.Store(l.end) }()
	if err := l.syncName(); err != nil {
		return err
	}
	h := l.header
	h.version = max(h.version, run.version)
	if err := l.setHeader(h, l.fsync); err != nil {
		return err
	}
	begin := l.end
	for _, payload := range run.all() {
		at := l.end
		err := l.appendRecord(payload)
		if err == nil {
			err = l.fsync(l.file)
		}
		if err != nil {
			l.end = at
			if l.file.Truncate(begin) == nil {
				l.end = begin
			}
			return err
		}
	}
	return nil
}

// syncName makes sure that the path leads to the file in use after a power failure, too: records in a file that cannot
// be found are lost. mu is held.
func (l *fileLog) syncName() error {
	if !l.renamed {
		return nil
	}
	err := SyncDir(l.path)
	l.renamed = err != nil
	return err
}

func (l *fileLog) close() error {
	close(l.stop)
	l.compacting.Wait()
	l.mu.Lock() // a backup may be about to open the file
	defer l.mu.Unlock()
	if err := l.seal(l.fsync); err != nil {
		l.logger.Warn("cannot seal the data file; nothing is lost", "error", err)
	}
	return l.file.Close()
}
