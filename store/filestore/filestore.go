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
	"sync"
	"syscall"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/clock"
	"github.com/lastseen/lastseen/store/signals"
)

// DefaultSync is the usual time between flushes: that of Redis' appendfsync everysec.
const DefaultSync = time.Second

// defaultCompactAfter is how much room superseded records may take in any file.
const defaultCompactAfter = 16 << 20

// Options configures a store.
type Options struct {
	Path string        // of the data file, which is created if it does not exist
	Sync time.Duration // between flushes; 0 makes every write wait for its flush

	// CompactAfter is the least number of bytes of superseded records at which the file is rewritten; default 16 MiB.
	// A file in which they take less room than the live data is never rewritten.
	CompactAfter int64

	// MaxNamespaces is the number of namespaces at which writes stop creating others; 0 for no limit.
	MaxNamespaces int

	// ObserveFlush is called with the time that each flush took, whether it succeeded or not; default nil. It must
	// return quickly.
	ObserveFlush func(time.Duration)

	// Gap is called for one in 16 calls of Ping, if its first user was present before, with the time since that user's
	// previous ping; default nil. It must return quickly.
	Gap func(namespace string, gap time.Duration)

	Now       func() time.Time     // the machine's clock; default time.Now
	Monotonic func() time.Duration // time since some moment, unaffected by that clock; default since Open
	Logger    *slog.Logger         // default slog.Default()
}

// Store is a [store.Store] in one file.
type Store struct {
	path   string // as the caller knows it
	now    func() time.Time
	clock  *clock.Clock // never without a reading
	writer *writer
	gap    func(namespace string, gap time.Duration) // nil for none

	closings *closings
	calls    calls
	signals  signals.Hub

	mu    sync.RWMutex
	index index // guarded by mu
}

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
	if o.Monotonic == nil {
		opened := time.Now()
		o.Monotonic = func() time.Duration { return time.Since(opened) }
	}
	s := &Store{path: path, now: o.Now, gap: o.Gap, closings: newClosings(o.Monotonic)}
	s.calls.clock, s.calls.monotonic = s.readClock, o.Monotonic
	s.index.feeds = feeds{clock: s.readClock, monotonic: o.Monotonic}
	s.clock = clock.New(clock.Options{Name: "machine", Monotonic: o.Monotonic, Logger: o.Logger})
	s.readClock()
	log, err := s.load(k, o)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	s.writer = startWriter(s, log, o)
	return s, nil
}

// load opens the data file and reads it into the index. A file of an older format is rewritten in the current one.
func (s *Store) load(k formats, o Options) (*fileLog, error) {
	path, err := resolve(s.path)
	if err != nil {
		return nil, err
	}
	file, err := openFile(path, k.base)
	if err != nil {
		return nil, err
	}
	l, err := k.load(file)
	log := &fileLog{
		path: path, version: k.base, compactAfter: o.CompactAfter, now: o.Now, logger: o.Logger,
		fsync: (*os.File).Sync, recordFile: recordFile{file, l.header, l.end}, stop: make(chan struct{}),
	}
	if err == nil {
		for name, users := range l.data {
			s.index.load(name, users)
		}
		err = log.prepare(l, &s.index)
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
func (s *Store) Close() error {
	defer s.endFeeds()
	return s.writer.close()
}

// Ready returns nil unless the store is closed, the last flush failed, or the one in progress hangs.
func (s *Store) Ready(ctx context.Context) error {
	var failed error
	err := s.read(ctx, func(*index) { failed = cmp.Or(s.writer.failed, s.writer.stalled()) })
	return cmp.Or(err, failed)
}

// Load implements [store.Store]. It rises to 0.5 with the time for which the flush in progress holds writes back. Reads
// do not wait for the disk.
func (s *Store) Load() float64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.writer.load()
}

// Now implements [store.Store] with the machine's clock, which is read on demand, at most every few seconds.
func (s *Store) Now(context.Context) (now lastseen.Instant, err error) {
	err = s.read(context.Background(), func(*index) { now = s.readClock() })
	return now, err
}

func (s *Store) readClock() lastseen.Instant {
	_ = s.clock.Refresh(func() (time.Time, error) { return s.now(), nil }) // s.now cannot fail
	at, _ := s.clock.Now()
	return at
}

// ClockStats returns statistics of the machine's clock since Open.
func (s *Store) ClockStats() clock.Stats { return s.clock.Stats() }

// Lease implements [store.Store]. It is always granted: the data file is locked against other processes.
func (s *Store) Lease(ctx context.Context, _ string, _ time.Duration) (bool, error) {
	err := s.read(ctx, func(*index) {})
	return err == nil, err
}

// flushError returns the error of a flush as callers see it.
func flushError(err error) error {
	meaning := store.ErrUnavailable
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG) {
		meaning = store.ErrFull
	}
	return fmt.Errorf("%w: %w", meaning, err)
}
