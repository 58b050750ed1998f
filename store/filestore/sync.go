package filestore

import (
	"context"
	"slices"
	"time"

	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/memstore"
)

// This file is the writer with Sync zero: every write returns after its flush, and a flush serves many writes.

// queued is a write that waits for the writer's goroutine.
type queued struct {
	memstore.Write
	ctx context.Context //nolint:containedctx // of the caller that waits
}

// queue queues a write, and returns the flush that the caller has to wait for. While the disk hangs it fails at once.
func (w *writer) queue(ctx context.Context, c memstore.Write) (*flush, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil, store.ErrClosed
	}
	if err := w.stalled(); err != nil {
		return nil, err
	}
	w.queued = append(w.queued, queued{c, ctx})
	signal(w.dirty)
	if w.failed != nil {
		signal(w.flushNow) // it is tried again without a pause
	}
	return w.next, nil
}

// flushQueued makes the writes that are queued. A write that has to be alone has a record of its own.
func (w *writer) flushQueued() error {
	w.mu.Lock()
	rest, f := w.queued, w.next
	w.queued, w.next = nil, newFlush()
	w.mu.Unlock()
	err := error(nil)
	for first := true; err == nil && (first || len(rest) > 0); first = false {
		alone := slices.IndexFunc(rest, func(q queued) bool { return q.Alone })
		switch {
		case alone < 0:
			alone = len(rest)
		case alone == 0:
			alone = 1
		}
		err = w.commitGroup(rest[:alone])
		rest = rest[alone:]
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.begun.IsZero() { // nothing has changed
		close(f.done)
		return nil
	}
	return w.finish(f, err)
}

// commitGroup writes changes to the file and then to the tables. It drops those whose callers are gone. After a failed
// flush it writes at least an empty record, which replaces what may be in the file.
func (w *writer) commitGroup(group []queued) error {
	log := changes{}
	staged := w.tables.Stage(&log)
	for _, q := range group {
		if q.ctx.Err() == nil {
			staged.Do(q.Write)
		}
	}
	if log.empty() {
		if w.failed == nil { // this goroutine alone sets it
			return nil
		}
		log.parts = [][]byte{nil}
	}
	w.mu.Lock()
	if w.begun.IsZero() {
		w.begun = time.Now()
	}
	w.flushing = log.users
	w.mu.Unlock()
	if err := w.commit(log); err != nil {
		return err
	}
	staged.Make()
	return nil
}
