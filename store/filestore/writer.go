package filestore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/lastseen/lastseen/store"
)

// op changes the data.
type op interface{ do(t *transaction) }

// opFunc is an op that is a function.
type opFunc func(*transaction)

func (f opFunc) do(t *transaction) { f(t) }

// write is one change to the data.
type write struct {
	op
	durable bool // answer only after the flush, whatever Sync is
	alone   bool // op looks at the index itself: nothing may be staged beside it
}

// request is a write that waits for the goroutine to take it.
type request struct {
	write
	ctx  context.Context //nolint:containedctx // of the caller who waits
	done chan error
}

// flush is one transaction of the file, begun or to come, that callers wait for.
type flush struct {
	done chan struct{}
	err  error // once done is closed
}

func newFlush() *flush { return &flush{done: make(chan struct{})} }

// wait returns when the flush is done, with its error, or when the context ends.
func (f *flush) wait(ctx context.Context) error {
	select {
	case <-f.done:
		return f.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// writer brings changes into the file. One goroutine writes the log; nothing else does.
//
// With sync > 0, callers change the index themselves and leave the log entries in pending; the
// goroutine writes those out. With sync = 0, callers hand their write to the goroutine, which changes
// the index after the flush.
type writer struct {
	s      *Store
	sync   time.Duration
	logger *slog.Logger
	log    *fileLog

	maxNamespaces int
	commit        func(run [][]byte) error // log.append; tests make it fail

	requests chan *request // sync = 0
	dirty    chan struct{} // sync > 0: there is something to flush; holds one signal
	flushNow chan struct{} // sync > 0: a caller waits for the flush; holds one signal
	stop     chan struct{}
	stopped  chan struct{} // closed when the goroutine has ended
	closing  sync.Once
	closeErr error

	// Guarded by s.mu.
	closed  bool
	pending changes
	direct  transaction // of the write being made, if sync > 0; kept here to save an allocation
	next    *flush      // will write pending
	current *flush      // being written; nil if none is
	begun   time.Time   // when the flush under way began; zero if none is
	failed  error       // of the last flush; nil if it succeeded
}

// queueLength bounds the writes that wait with sync = 0; more callers wait to get in.
const queueLength = 4096

func newWriter(s *Store, log *fileLog, o Options) *writer {
	return &writer{
		s: s, sync: o.Sync, logger: o.Logger, log: log, commit: log.append, maxNamespaces: o.MaxNamespaces,
		requests: make(chan *request, queueLength),
		dirty:    make(chan struct{}, 1),
		flushNow: make(chan struct{}, 1),
		stop:     make(chan struct{}),
		stopped:  make(chan struct{}),
		next:     newFlush(),
	}
}

func (w *writer) start() {
	run := w.runDelayed
	if w.sync == 0 {
		run = w.runImmediate
	}
	go func() {
		defer close(w.stopped)
		run()
	}()
}

// failure returns why writes are refused now; s.mu is held.
func (w *writer) failure() error {
	if w.closed {
		return store.ErrClosed
	}
	return w.failed
}

// stallAfter is how long a flush may take before the store says that it is not ready.
const stallAfter = 5 * time.Second

// stalled returns an error when the flush under way does not come to an end, as with a disk that
// hangs; s.mu is held.
func (w *writer) stalled() error {
	if w.begun.IsZero() {
		return nil
	}
	if age := w.s.now().Sub(w.begun); age > w.sync+stallAfter {
		return fmt.Errorf("%w: a flush has taken %s so far", store.ErrUnavailable, age.Round(time.Second))
	}
	return nil
}

// do makes one write and returns when it is as safe as promised.
func (w *writer) do(ctx context.Context, c write) error {
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
	return f.wait(ctx)
}

// apply changes the index, unless writes are refused, and returns the flush that the caller has to
// wait for, if any.
func (w *writer) apply(ctx context.Context, c write) (*flush, error) {
	mu := &w.s.mu
	mu.Lock()
	defer mu.Unlock()
	for w.failure() == nil && w.current != nil && w.behind() {
		slow := w.current
		mu.Unlock()
		err := slow.wait(ctx)
		mu.Lock()
		if err != nil {
			return nil, err
		}
	}
	if err := w.failure(); err != nil {
		return nil, err
	}
	w.direct = transaction{index: &w.s.index, log: &w.pending, maxNamespaces: w.maxNamespaces}
	c.do(&w.direct)
	if !w.pending.empty() {
		signal(w.dirty)
	}
	if len(w.pending.parts) > 0 {
		signal(w.flushNow) // memory is worth more than the rest of the time until the next flush
	}
	if !c.durable {
		return nil, nil
	}
	return w.lastFlush(), nil
}

// maxPending is the number of full parts that wait for the flush in progress before writes wait, too.
const maxPending = 4

// behind reports whether the flush in progress takes so long, or so much came in since it began, that writes have
// to wait for it; s.mu is held.
func (w *writer) behind() bool {
	return w.s.now().Sub(w.begun) > w.sync || len(w.pending.parts) >= maxPending
}

// lastFlush returns the flush that ends with all that was written so far in the file, and has it
// begin soon; nil if all is there already. A durable write waits for it also when it changed nothing:
// what made it needless may not be in the file yet. s.mu is held.
func (w *writer) lastFlush() *flush {
	if w.pending.empty() {
		return w.current
	}
	signal(w.flushNow)
	return w.next
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // one is there already
	}
}

// runDelayed flushes what is pending, at most once in every sync unless somebody waits for it. After a failed flush it
// tries again soon.
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
			signal(w.dirty) // it is still pending
			rest = min(rest, retryEvery)
		}
		w.compactIfDue()
		w.pause(rest - time.Since(begun))
	}
}

// pause waits, but not while somebody waits for a flush, nor at the end.
func (w *writer) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.flushNow:
	case <-w.stop:
	}
}

// flushPending writes out what is pending, and keeps it when that fails.
func (w *writer) flushPending() error {
	mu := &w.s.mu
	mu.Lock()
	if w.pending.empty() {
		mu.Unlock()
		return nil
	}
	run, f := w.pending.all(), w.next
	w.pending, w.next = changes{}, newFlush()
	w.current, w.begun = f, w.s.now()
	mu.Unlock()

	err := w.commit(run)

	mu.Lock()
	defer mu.Unlock()
	if err != nil {
		w.pending.parts = append(run, w.pending.parts...)
	}
	w.finish(f, err)
	return err
}

// finish notes how a flush ended and tells those who wait; s.mu is held.
func (w *writer) finish(f *flush, err error) {
	switch {
	case err != nil && w.failed == nil:
		w.logger.Error("cannot write to the data file; pings and leaves are refused until it works again", "error", err)
	case err == nil && w.failed != nil:
		w.logger.Info("the data file can be written to again")
	}
	w.failed = nil
	if err != nil {
		w.failed = fileError(err)
	}
	f.err = w.failed
	w.current, w.begun = nil, time.Time{}
	close(f.done)
}

// compactIfDue starts a compaction when too much of the file no longer counts. All that is in the file is in the index
// by now.
func (w *writer) compactIfDue() {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	if w.log.compactionDue(w.s.index.live, errors.Is(w.failed, store.ErrFull)) {
		w.log.startCompaction(w.s.index.freeze())
	}
}

// close ends the goroutine, which flushes first, and closes the file.
func (w *writer) close() error {
	w.closing.Do(func() {
		w.s.mu.Lock()
		w.closed = true
		w.s.mu.Unlock()
		close(w.stop)
		<-w.stopped
		w.closeErr = errors.Join(w.lost(), w.log.close())
	})
	return w.closeErr
}

// lost returns why what is still pending could not be written; nil if nothing is.
func (w *writer) lost() error {
	w.s.mu.RLock()
	defer w.s.mu.RUnlock()
	if w.pending.empty() {
		return nil
	}
	return w.failed
}
