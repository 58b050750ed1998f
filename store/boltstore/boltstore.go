// Package boltstore keeps presence in one file, for a service that runs as a single process with
// nothing else to install. It answers from memory; the file holds the truth.
//
// Every write becomes part of a flush: one transaction that appends one record to a log in the file
// and syncs it to the disk. In the background the log is folded into a snapshot whenever it has
// outgrown it, so the file stays in proportion to the number of users.
//
// # What a crash can lose
//
// With Options.Sync above zero (the default is a second), pings and leaves are answered at once and
// are part of the next flush, which begins at most Sync later. A crash loses at most those of the
// flush in progress and of the time since it began; when a flush takes longer than Sync, writes wait
// for it. With Sync zero every write is answered, and shows in reads, only after its flush; one
// flush serves all that wait. Forget and DeleteNamespace always answer after their flush. Close
// flushes.
//
// When a flush fails, nothing that was answered is dropped: it is tried again, and until it succeeds
// writes fail with [store.ErrUnavailable] or [store.ErrFull], and so does Ready. Reads go on.
//
// # What is refused
//
// Open refuses a file that is in use, is damaged, is of a newer version or is something else. It
// never changes such a file.
package boltstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	boltErrors "go.etcd.io/bbolt/errors"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// DefaultSync is the usual time between flushes: that of Redis' appendfsync everysec.
const DefaultSync = time.Second

// defaultFoldAfter is the least size of log that is folded.
const defaultFoldAfter = 16 << 20

// Options says where the data is and how safe a write is when it is answered.
type Options struct {
	Path string        // of the data file; it is made if it does not exist
	Sync time.Duration // between flushes; 0 answers every write after its flush

	// FoldAfter is the size in bytes that the log has at least when it is folded into the snapshot;
	// default 16 MiB. A log smaller than the snapshot is left alone in any case.
	FoldAfter int64

	Now    func() time.Time // the clock; default time.Now
	Logger *slog.Logger     // default slog.Default()
}

// Store is a [store.Store] in one file.
type Store struct {
	path   string
	now    func() time.Time
	clock  clock
	writer *writer

	mu    sync.RWMutex
	index index // guarded by mu
}

var _ store.Store = (*Store)(nil)

// Open loads the data file, which may take a second for a million users. Its errors include
// [ErrLocked], [ErrDamaged], [ErrForeign] and [ErrNewer].
func Open(o Options) (*Store, error) {
	if o.Sync < 0 {
		return nil, fmt.Errorf("sync is %s: it cannot be negative", o.Sync)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.FoldAfter == 0 {
		o.FoldAfter = defaultFoldAfter
	}
	path, err := filepath.Abs(o.Path)
	if err != nil {
		return nil, err
	}
	db, l, err := openFile(path)
	if err != nil {
		return nil, err
	}
	s := &Store{path: path, now: o.Now}
	for name, users := range l.data {
		s.index.namespaces.Set(name, newNamespace(users))
	}
	s.writer = newWriter(s, newFileLog(db, l, o.FoldAfter, o.Logger), o)
	s.writer.start()
	return s, nil
}

// Path returns the absolute path of the data file.
func (s *Store) Path() string { return s.path }

// Close flushes what was accepted and closes the file. Its error means that something accepted may
// not be in the file.
func (s *Store) Close() error { return s.writer.close() }

// Ready returns nil unless the store is closed, the last flush failed, or the one under way hangs.
func (s *Store) Ready(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if err := s.writer.failure(); err != nil {
		return err
	}
	return s.writer.stalled()
}

// clock keeps time from running backwards when the machine's clock is set back.
type clock struct {
	mu     sync.Mutex
	latest lastseen.Instant
}

// Now implements [store.Store] with the machine's clock.
func (s *Store) Now(context.Context) (lastseen.Instant, error) {
	if err := s.open(); err != nil {
		return 0, err
	}
	s.clock.mu.Lock()
	defer s.clock.mu.Unlock()
	s.clock.latest = max(s.clock.latest, lastseen.InstantOf(s.now()))
	return s.clock.latest, nil
}

// open returns an error when the store is closed.
func (s *Store) open() error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.writer.closed {
		return store.ErrClosed
	}
	return nil
}

// fileError wraps the reason why a flush failed in what it means to a caller.
func fileError(err error) error {
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), errors.Is(err, boltErrors.ErrMaxSizeReached):
		return fmt.Errorf("%w: %w", store.ErrFull, err)
	default:
		return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	}
}

// Lease implements [store.Store]. The data file is locked: no other process is on this store.
func (s *Store) Lease(ctx context.Context, _ string, _ time.Duration) (bool, error) {
	err := s.read(ctx, func(*index) error { return nil })
	return err == nil, err
}
