package boltstore

import (
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"

	"go.etcd.io/bbolt"
)

// fileLog appends records to the log in the file, and folds it into a snapshot when it has grown.
// Its methods are called by the writer's goroutine only.
type fileLog struct {
	db        *bbolt.DB
	foldAfter int64
	logger    *slog.Logger

	generation uint64 // of the log being appended to
	last       uint64 // sequence number of the newest record
	unfolded   int64  // bytes appended since the last fold began

	folding  sync.WaitGroup
	busy     atomic.Bool   // a fold is under way
	snapshot atomic.Int64  // bytes of the snapshot
	stop     chan struct{} // closed when a fold has to give up
}

func newFileLog(db *bbolt.DB, l loaded, foldAfter int64, logger *slog.Logger) *fileLog {
	log := &fileLog{
		db: db, foldAfter: foldAfter, logger: logger,
		generation: max(l.head.generation, l.head.newest), last: l.head.last, unfolded: l.logBytes,
		stop: make(chan struct{}),
	}
	log.snapshot.Store(l.snapshotBytes)
	return log
}

// append writes one record and syncs it to the disk. When it returns an error nothing was written.
func (l *fileLog) append(run []byte) error {
	err := l.db.Update(func(tx *bbolt.Tx) error {
		header := tx.Bucket(headerBucket)
		h, err := readHead(header)
		if err != nil {
			return err
		}
		bucket, err := tx.CreateBucketIfNotExists(logBucket(l.generation))
		if err != nil {
			return err
		}
		bucket.FillPercent = 1 // keys only grow
		h.newest, h.last = l.generation, l.last+1
		key := numberKey(h.last)
		if err := bucket.Put(key, seal(key, run)); err != nil {
			return err
		}
		return h.write(header)
	})
	if err != nil {
		return err
	}
	l.last++
	l.unfolded += int64(len(run))
	return nil
}

// foldDue reports whether the log has outgrown the snapshot. It never has while a fold is under way, which reads
// what the next one's freeze lets be written over.
func (l *fileLog) foldDue() bool {
	return !l.busy.Load() && l.unfolded >= max(l.foldAfter, l.snapshot.Load())
}

// chunkSize is about how much of a snapshot one transaction writes: little enough that a flush never
// waits long behind it.
const chunkSize = 1 << 20

// startFold writes a snapshot of the given namespaces in the background, and then lets go of the
// logs so far. They hold at least what these logs say; whatever comes later goes to a new log.
func (l *fileLog) startFold(namespaces []frozen) {
	l.busy.Store(true)
	l.generation++
	l.unfolded = 0
	generation, first := l.generation, l.last+1
	l.folding.Go(func() {
		defer l.busy.Store(false)
		err := l.fold(namespaces, generation, first)
		if err != nil && !errors.Is(err, errStopped) {
			err = errors.Join(err, l.discard())
			l.logger.Error("cannot fold the log into the snapshot; the data file keeps growing until a later try succeeds", "error", err)
		}
	})
}

// discard removes what a failed fold wrote: when the disk is full, the log needs the room.
func (l *fileLog) discard() error {
	return l.db.Update(func(tx *bbolt.Tx) error {
		h, err := readHead(tx.Bucket(headerBucket))
		if err != nil {
			return err
		}
		return dropStale(tx, h)
	})
}

// errStopped ends a fold at the store's close. What it wrote is removed at the next start.
var errStopped = errors.New("stopped")

// fold writes the snapshot of a generation chunk by chunk. Until the last transaction it does not
// count.
func (l *fileLog) fold(namespaces []frozen, generation, first uint64) error {
	s := snapshotWriter{log: l, bucket: snapshotBucket(generation)}
	if err := s.clear(); err != nil {
		return err
	}
	for _, n := range namespaces {
		s.run.in(n.name) // also one without users exists
		var err error
		n.order.Scan(func(e entry) bool {
			s.run.set(n.name, string(n.names.at(e.name)), e.score.state())
			err = s.writeIfFull()
			return err == nil
		})
		if err != nil {
			return err
		}
	}
	if err := s.write(); err != nil {
		return err
	}
	err := l.db.Update(func(tx *bbolt.Tx) error {
		header := tx.Bucket(headerBucket)
		h, err := readHead(header)
		if err != nil {
			return err
		}
		h.generation, h.chunks, h.first = generation, s.chunks, first
		if err := h.write(header); err != nil {
			return err
		}
		return dropStale(tx, h)
	})
	if err == nil {
		l.snapshot.Store(s.size)
	}
	return err
}

// snapshotWriter writes a run of changes as numbered chunks.
type snapshotWriter struct {
	log    *fileLog
	bucket []byte
	run    changes
	chunks uint64
	size   int64
}

// clear removes what an earlier try under the same name left behind.
func (s *snapshotWriter) clear() error {
	return s.log.db.Update(func(tx *bbolt.Tx) error {
		if tx.Bucket(s.bucket) == nil {
			return nil
		}
		return tx.DeleteBucket(s.bucket)
	})
}

func (s *snapshotWriter) writeIfFull() error {
	if len(s.run.buf) < chunkSize {
		return nil
	}
	return s.write()
}

// write ends the chunk.
func (s *snapshotWriter) write() error {
	if len(s.run.buf) == 0 {
		return nil
	}
	select {
	case <-s.log.stop:
		return errStopped
	default:
	}
	err := s.log.db.Update(func(tx *bbolt.Tx) error {
		bucket, err := tx.CreateBucketIfNotExists(s.bucket)
		if err != nil {
			return err
		}
		key := numberKey(s.chunks + 1)
		return bucket.Put(key, seal(key, s.run.buf))
	})
	s.chunks++
	s.size += int64(len(s.run.buf))
	s.run = changes{}
	return err
}

// close ends a fold under way and closes the file.
func (l *fileLog) close() error {
	close(l.stop)
	l.folding.Wait()
	return l.db.Close()
}
