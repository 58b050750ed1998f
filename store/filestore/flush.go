package filestore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/memstore"
)

// flush is a batch of changes on its way to the file, which callers can wait for.
type flush struct {
	done chan struct{}
	err  error // once done is closed
}

func newFlush() *flush { return &flush{done: make(chan struct{})} }

// wait returns the error of the flush when it is done, that of the context when it ends first, or errStalled when
// patience runs out first.
func (f *flush) wait(ctx context.Context, patience time.Duration) error {
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case <-f.done:
		return f.err
	case <-ctx.Done():
		return ctx.Err()
	case <-late.C:
		return errStalled
	}
}

// writer writes changes to the file. It is the [memstore.Journal] of the store. Only its goroutine writes to the log.
//
// With sync > 0, callers change the tables themselves and leave the changes in pending, which the goroutine flushes.
// With sync = 0, callers queue requests for the goroutine, which changes the tables after the flush: see sync.go.
type writer struct {
	tables *memstore.Tables
	sync   time.Duration
	logger *slog.Logger
	log    *fileLog
	now    func() time.Time

	observe func(time.Duration)     // is called after each flush; may be nil
	commit  func(run changes) error // log.append; tests make it fail

	requests chan *request // sync = 0
	dirty    store.Waker   // sync > 0: there is something to flush
	flushNow store.Waker   // sync > 0: a caller waits for the flush
	stop     chan struct{}
	stopped  chan struct{} // closed when the goroutine has ended
	closing  sync.Once
	closeErr error

	mu sync.Mutex // taken before the lock of the tables

	// Guarded by mu.
	pending  changes
	next     *flush    // will write pending
	current  *flush    // in progress; nil if none is
	begun    time.Time // when the flush in progress began, by a clock that cannot be set; zero if none is
	flushing int       // users in the flush in progress
	failed   error     // of the last flush; nil if it succeeded
	flushed  time.Time // when the last flush succeeded; at first when the store was opened
	failures int64     // flushes that failed
}

func startWriter(tables *memstore.Tables, log *fileLog, o Options) *writer {
	w := &writer{
		tables: tables, sync: o.Sync, logger: o.Logger, log: log, commit: log.append, now: o.Now,
		observe: o.ObserveFlush, flushed: o.Now(),
		requests: make(chan *request, maxRequests),
		dirty:    store.NewWaker(),
		flushNow: store.NewWaker(),
		stop:     make(chan struct{}),
		stopped:  make(chan struct{}),
		next:     newFlush(),
	}
	run := w.runDelayed
	if w.sync == 0 {
		run = w.runImmediate
	}
	go func() {
		defer close(w.stopped)
		run()
	}()
	return w
}

// stallAfter is how much longer than sync a flush may take.
const stallAfter = 5 * time.Second

// patience returns how long a flush may take before writes fail and the store is not ready.
func (w *writer) patience() time.Duration { return w.sync + stallAfter }

// errStalled is the error of writes that waited too long for a flush. They may still be made.
var errStalled = fmt.Errorf("%w: the disk does not respond", store.ErrUnavailable)

// stalled returns an error when the flush in progress takes too long, as on a disk that hangs; mu is held.
func (w *writer) stalled() error {
	if w.begun.IsZero() {
		return nil
	}
	if age := time.Since(w.begun); age > w.patience() {
		return fmt.Errorf("%w: a flush has taken %s so far", errStalled, age.Round(time.Second))
	}
	return nil
}

// load returns for how long the flush in progress has held writes back, as a part of twice stallAfter; 0 if the disk
// fails or hangs. It is at most 0.5, because callers refuse requests at more: that would not help a disk, for which
// reads do not wait and imports do. mu is held.
func (w *writer) load() float64 {
	if w.begun.IsZero() || w.failed != nil || w.stalled() != nil {
		return 0
	}
	return min(1, max(0, float64(time.Since(w.begun)-w.sync)/float64(2*stallAfter)))
}

// Outlasts implements [memstore.Journal].
func (w *writer) Outlasts() bool { return w.sync == 0 }

// Do implements [memstore.Journal].
func (w *writer) Do(ctx context.Context, c memstore.Write) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if w.sync == 0 {
		return w.submit(ctx, c)
	}
	f, err := w.apply(ctx, c)
	if err != nil || f == nil {
		return err
	}
	return f.wait(ctx, w.patience())
}

// apply changes the tables, unless writes are refused, and returns the flush that the caller has to wait for, if any.
func (w *writer) apply(ctx context.Context, c memstore.Write) (*flush, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.failed == nil && w.current != nil && w.behind() {
		if err := w.stalled(); err != nil {
			return nil, err
		}
		slow := w.current
		w.mu.Unlock()
		err := slow.wait(ctx, w.patience())
		w.mu.Lock()
		if err != nil {
			return nil, err
		}
	}
	if w.failed != nil {
		return nil, w.failed
	}
	if err := w.tables.Run(c, &w.pending); err != nil {
		return nil, err
	}
	if !w.pending.empty() {
		w.dirty.Wake()
	}
	if len(w.pending.parts) > 0 {
		w.flushNow.Wake() // pending takes too much memory to wait
	}
	if !c.Durable {
		return nil, nil
	}
	return w.lastFlush(), nil
}

// maxPending is the number of full parts in pending at which writes wait for the flush in progress.
const maxPending = 4

// behind reports whether writes have to wait for the flush in progress, because it takes too long or too much is
// pending; mu is held.
func (w *writer) behind() bool {
	return time.Since(w.begun) > w.sync || len(w.pending.parts) >= maxPending
}

// lastFlush returns the flush after which all writes so far are in the file, and makes it begin soon; nil if they are
// there already. A durable write waits for it even if it changed nothing, because the change that made it unnecessary
// may not be in the file yet. mu is held.
func (w *writer) lastFlush() *flush {
	if w.pending.empty() {
		return w.current
	}
	w.flushNow.Wake()
	return w.next
}

// runDelayed flushes pending changes until the store is closed, at most once in every sync unless a caller waits. It
// retries soon after a failed flush.
func (w *writer) runDelayed() {
	for {
		select {
		case <-w.dirty:
		case <-w.stop:
			_ = w.flushPending() // close reports what is still pending
			return
		}
		begun, rest := time.Now(), w.sync
		if w.flushPending() != nil {
			w.dirty.Wake() // the changes are still pending
			rest = min(rest, retryEvery)
		}
		w.compactIfDue()
		timer := time.NewTimer(rest - time.Since(begun))
		select {
		case <-timer.C:
		case <-w.flushNow:
		case <-w.stop:
		}
		timer.Stop()
	}
}

// flushPending writes the pending changes. If that fails they stay pending.
func (w *writer) flushPending() error {
	w.mu.Lock()
	if w.pending.empty() {
		w.mu.Unlock()
		return nil
	}
	run, f := w.pending, w.next
	w.current, w.begun, w.flushing = f, time.Now(), run.users
	w.pending, w.next = changes{}, newFlush()
	w.mu.Unlock()

	err := w.commit(run)

	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.pending.parts = append(run.all(), w.pending.parts...)
		w.pending.users += run.users
		w.pending.version = max(w.pending.version, run.version)
	}
	return w.finish(f, err)
}

// finish ends a flush with the error of its commit, wakes those who wait, and returns the error for callers; s.mu is
// held.
func (w *writer) finish(f *flush, err error) error {
	switch {
	case err != nil && w.failed == nil:
		w.logger.Error("cannot write to the data file; pings and leaves are refused until it works again", "error", err)
	case err == nil && w.failed != nil:
		w.logger.Info("the data file can be written to again")
	}
	if w.observe != nil {
		w.observe(time.Since(w.begun))
	}
	if err != nil {
		err = flushError(err)
		w.failures++
	} else {
		w.flushed = w.now()
	}
	w.failed, f.err = err, err
	w.current, w.begun, w.flushing = nil, time.Time{}, 0
	close(f.done)
	return err
}

// compactIfDue starts a compaction when too much of the file is superseded. All changes in the file are in the tables
// by now.
func (w *writer) compactIfDue() {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, live := w.tables.Size()
	if w.log.compactionDue(live, errors.Is(w.failed, store.ErrFull)) {
		w.log.startCompaction(w.tables.Snapshot())
	}
}

// close ends the goroutine, which flushes first, and closes the file. Its error includes that of pending changes that
// could not be written.
func (w *writer) close() error {
	w.closing.Do(func() {
		close(w.stop)
		<-w.stopped
		var lost error
		if !w.pending.empty() { // it no longer changes
			lost = w.failed
		}
		w.mu.Lock()
		w.failed = store.ErrClosed // of writes from now on
		w.mu.Unlock()
		w.closeErr = errors.Join(lost, w.log.close())
	})
	return w.closeErr
}
