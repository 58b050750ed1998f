package filestore

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// fileLog is the data file in use. It appends records to the file, and replaces the file by a shorter one when it
// has grown. Its methods are called by the writer's goroutine only.
type fileLog struct {
	path         string // of the file, without symbolic links
	version      uint32 // of the files that it writes
	compactAfter int64
	now          func() time.Time
	logger       *slog.Logger
	fsync        func(*os.File) error // tests make it fail

	mu      sync.Mutex // held while a record is appended and while the file is replaced
	file    *os.File
	header  header
	end     int64 // offset of the next record; everything before it is on the disk
	renamed bool  // the new name of the file may not be on the disk yet

	compacting sync.WaitGroup
	busy       atomic.Bool   // a compaction is in progress
	failed     atomic.Bool   // the last compaction failed
	tried      time.Time     // when the last compaction began
	stop       chan struct{} // closed when a compaction has to end
}

func newFileLog(path string, f *os.File, l loaded, version uint32, o Options) *fileLog {
	return &fileLog{
		path: path, version: version, compactAfter: o.CompactAfter, now: o.Now, logger: o.Logger, fsync: (*os.File).Sync,
		file: f, header: l.header, end: l.end, stop: make(chan struct{}),
	}
}

// prepare removes what a crash left behind, and rewrites a file of an older format. Before it is called, nothing of
// the file is changed.
func (l *fileLog) prepare(found loaded, x *index) error {
	os.Remove(tempName(l.path))
	if found.header.version != l.version {
		l.logger.Info("upgrading the data file", "from", found.header.version, "to", l.version)
		return l.compact(x.freeze(), l.end)
	}
	if found.torn == 0 {
		return nil
	}
	l.logger.Warn("a crash interrupted the last flush; its rest is cut off", "file", l.path, "bytes", found.torn)
	return errors.Join(l.file.Truncate(l.end), l.fsync(l.file))
}

// append writes a run and syncs it to the disk, one record after the other. After an error the run is cut off again.
//
// After a failed sync the kernel may believe that pages are on the disk which are not, so that a second sync would
// succeed without having written anything. That is why what failed is cut off and later written again, not synced
// again: writing makes its pages dirty once more. Records before it are on the disk already. When cutting it off
// fails, too, the next run is written over the record that failed, and after a crash that record is a torn one.
func (l *fileLog) append(run [][]byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.syncName(); err != nil {
		return err
	}
	begin := l.end
	for _, payload := range run {
		if err := l.appendRecord(payload); err != nil {
			if l.file.Truncate(begin) == nil {
				l.end = begin
			}
			return err
		}
	}
	return nil
}

func (l *fileLog) appendRecord(payload []byte) error {
	if len(payload) > maxPayload {
		return fmt.Errorf("a record of %d bytes is too long", len(payload))
	}
	if _, err := l.file.WriteAt(l.header.head(l.end, payload), l.end); err != nil {
		return err
	}
	if _, err := l.file.WriteAt(payload, l.end+headSize); err != nil {
		return err
	}
	if err := l.fsync(l.file); err != nil {
		return err
	}
	l.end += headSize + int64(len(payload))
	return nil
}

// syncName makes sure that the path leads to the file in use after a loss of power, too: a record in a file that
// cannot be found is lost. mu is held.
func (l *fileLog) syncName() error {
	if !l.renamed {
		return nil
	}
	err := syncDir(l.path)
	l.renamed = err != nil
	return err
}

// seal notes in the header that the file is complete up to its end, so that damage to its last record, or the loss of
// its end, shows at the next start. The header lies within one sector of the disk, which is written as a whole.
func (l *fileLog) seal() error {
	if l.header.sealed == l.end {
		return nil
	}
	h := l.header
	h.sealed = l.end
	_, err := l.file.WriteAt(h.bytes(), 0)
	return errors.Join(err, l.fsync(l.file))
}

// close ends a compaction in progress, seals the file and closes it.
func (l *fileLog) close() error {
	close(l.stop)
	l.compacting.Wait()
	if err := l.seal(); err != nil {
		l.logger.Warn("cannot seal the data file; nothing is lost", "error", err)
	}
	return l.file.Close()
}
