// Package filestore stores presence in one file, for a service that runs as a single process with nothing else to
// install. Reads are served from memory; the file keeps the data across restarts.
//
// Every write becomes part of a flush: one record that is appended to the file and synced to the disk. When superseded
// records take more room than the live data, the file is rewritten in the background (compaction), so its size stays in
// proportion to the number of users.
//
// # What a crash can lose
//
// With Options.Sync above zero (the default is a second), pings and leaves return at once and are part of the next
// flush, which begins at most Sync later. A crash loses at most the writes of the flush in progress and those since it
// began; when a flush takes longer than Sync, writes wait for it. With Sync zero every write returns, and is visible to
// reads, only after its flush; one flush serves all writes that wait. Forget and DeleteNamespace always return after
// their flush. Close flushes.
//
// Calls between users, changes feeds and requests to close connections are in memory only: they end with the process.
//
// When a flush fails, accepted writes are kept and flushed again. Until that succeeds, writes and Ready fail with
// [store.ErrUnavailable] or [store.ErrFull]. Reads continue. When a flush takes 5 seconds longer than Sync, as on a
// disk that hangs, writes and Ready fail with [store.ErrUnavailable] until it is done; writes that waited may still be
// made.
//
// # What is refused
//
// Open refuses a file that is in use, is damaged, has a newer format or is not a data file, and leaves it unchanged.
// The rest of a flush that a crash interrupted is not damage: it is cut off, with a warning.
package filestore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/memstore"
)

// defaultCompactAfter is how much room superseded records may take in any file.
const defaultCompactAfter = 16 << 20

// Options configures a store.
type Options struct {
	Path string        // of the data file, which is created if it does not exist
	Sync time.Duration // between flushes; 0 makes every write wait for its flush

	// CompactAfter is the least number of bytes of superseded records at which the file is rewritten; default 16 MiB.
	// A file in which they take less room than the live data is never rewritten.
	CompactAfter int64

	// ObserveFlush is called with the time that each flush took, whether it succeeded or not; default nil. It must
	// return quickly.
	ObserveFlush func(time.Duration)

	// As in [memstore.Options].
	MaxNamespaces int
	Gap           func(namespace string, gap time.Duration)
	Now           func() time.Time
	Monotonic     func() time.Duration
	Logger        *slog.Logger
}

// Store is a [store.Store] in one file.
type Store struct {
	*memory
	path   string // as the caller knows it
	tables *memstore.Tables
	writer *writer
}

type memory = memstore.Store

var _ store.Store = (*Store)(nil)

// Open loads the data file, which may take a second for a million users. Its errors include [ErrLocked], [ErrDamaged],
// [ErrForeign], [ErrNewer] and [ErrOlder].
func Open(o Options) (*Store, error) { return openWith(supported(), o) }

func openWith(k formats, o Options) (*Store, error) {
	if o.Sync < 0 {
		return nil, fmt.Errorf("sync is %s: it cannot be negative", o.Sync)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Logger = cmp.Or(o.Logger, slog.Default())
	o.CompactAfter = cmp.Or(o.CompactAfter, defaultCompactAfter)
	path, err := filepath.Abs(o.Path)
	if err != nil {
		return nil, err
	}
	tables := memstore.NewTables(memstore.Options{
		MaxNamespaces: o.MaxNamespaces, Gap: o.Gap, Now: o.Now, Monotonic: o.Monotonic, Logger: o.Logger,
	})
	log, err := k.open(path, tables, o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	w := startWriter(tables, log, o)
	return &Store{memory: tables.Store(w), path: path, tables: tables, writer: w}, nil
}

// open opens the data file and reads it into tables. A file of an older format is rewritten in the current one.
func (k formats) open(path string, tables *memstore.Tables, o Options) (*fileLog, error) {
	path, err := resolve(path)
	if err != nil {
		return nil, err
	}
	file, err := openFile(path, k.base)
	if err != nil {
		return nil, err
	}
	var l loaded
	err = tables.Load(func(log memstore.Log) (err error) {
		l, err = k.load(file, log)
		return err
	})
	log := &fileLog{
		path: path, version: k.base, compactAfter: o.CompactAfter, now: o.Now, logger: o.Logger,
		fsync: (*os.File).Sync, recordFile: recordFile{file, l.header, l.end}, stop: make(chan struct{}),
	}
	if err == nil {
		err = log.prepare(l, tables)
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	log.size.Store(log.end)
	return log, nil
}

// Path returns the absolute path of the data file.
func (s *Store) Path() string { return s.path }

// Close flushes accepted writes and closes the file. An error means that some of them may not be in the file.
func (s *Store) Close() error { return errors.Join(s.memory.Close(), s.writer.close()) }

// Ready returns nil unless the store is closed, the last flush failed, or the one in progress hangs.
func (s *Store) Ready(ctx context.Context) error {
	err := s.memory.Ready(ctx)
	s.writer.mu.Lock()
	defer s.writer.mu.Unlock()
	return cmp.Or(err, s.writer.failed, s.writer.stalled())
}

// Load implements [store.Store]. It rises to 0.5 with the time for which the flush in progress holds writes back. Reads
// do not wait for the disk.
func (s *Store) Load() float64 {
	s.writer.mu.Lock()
	defer s.writer.mu.Unlock()
	return s.writer.load()
}

// flushError returns the error of a flush as callers see it.
func flushError(err error) error {
	meaning := store.ErrUnavailable
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG) {
		meaning = store.ErrFull
	}
	return fmt.Errorf("%w: %w", meaning, err)
}

// Stats describes the data file and what is not in it yet.
type Stats struct {
	Users       int64     // in the store
	Dirty       int64     // users whose change is not on disk yet, at most: one who changed twice counts twice
	LastFlush   time.Time // when the last flush succeeded; at first when the store was opened
	Failures    int64     // flushes that failed since the store was opened
	Size        int64     // bytes of the data file
	Live        int64     // about how many bytes a compacted file would have
	Compactions int64     // that finished since the store was opened
}

// Stats returns the current statistics. It does not wait for the disk.
func (s *Store) Stats() Stats {
	users, live := s.tables.Size()
	w := s.writer
	w.mu.Lock()
	defer w.mu.Unlock()
	return Stats{
		Users: users, Dirty: int64(w.pending.users + w.flushing), LastFlush: w.flushed, Failures: w.failures,
		Size: w.log.size.Load(), Live: live, Compactions: w.log.compacted.Load(),
	}
}
