package filestore

import (
	"context"
	"time"

	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/memstore"
)

// This file is the writer with Sync zero: every write returns after its flush, and a flush serves many writes.

// request is a write that waits for the writer's goroutine.
type request struct {
	memstore.Write
	ctx  context.Context //nolint:containedctx // of the caller that waits
	done chan error
}

const (
	maxRequests = 4096 // that are queued; more callers wait to get in
	maxGroup    = 4096 // requests of one flush
)

// submit queues a write and returns after its flush. While the disk hangs it fails at once, and writes that wait fail
// after a while.
func (w *writer) submit(ctx context.Context, c memstore.Write) error {
	w.mu.Lock()
	stalled := w.stalled()
	w.mu.Unlock()
	if stalled != nil {
		return stalled
	}
	late := time.NewTimer(w.patience())
	defer late.Stop()
	r := &request{Write: c, ctx: ctx, done: make(chan error, 1)}
	select {
	case w.requests <- r:
	case <-ctx.Done():
		return ctx.Err()
	case <-late.C:
		return errStalled
	case <-w.stop:
		return store.ErrClosed
	}
	select {
	case err := <-r.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-late.C:
		return errStalled
	case <-w.stopped:
	}
	select {
	case err := <-r.done: // completed just before the end
		return err
	default:
		return store.ErrClosed // queued just after it
	}
}

// retryEvery is how long to wait after a failed flush before the file is tried again.
const retryEvery = time.Second

// runImmediate flushes requests until the store is closed. Requests that arrive during a flush are the next group.
// After a failed flush it retries without requests, too: a server that is not ready gets none.
func (w *writer) runImmediate() {
	retry := time.NewTicker(retryEvery)
	defer retry.Stop()
	for {
		select {
		case r := <-w.requests:
			w.flushGroup(r)
		case <-retry.C:
			w.commitGroup(nil)
		case <-w.stop:
			for len(w.requests) > 0 {
				w.flushGroup(<-w.requests)
			}
			return
		}
	}
}

// flushGroup writes a request and the ones that wait behind it in one flush. A request that has to be alone ends the
// group and is written after it.
func (w *writer) flushGroup(first *request) {
	group := []*request{first}
	for !group[0].Alone && len(group) < maxGroup && len(w.requests) > 0 {
		r := <-w.requests
		if r.Alone {
			w.commitGroup(group)
			group = nil
		}
		group = append(group, r)
	}
	w.commitGroup(group)
	w.compactIfDue()
}

// commitGroup writes requests to the file, applies them to the tables, and completes them. It drops those whose callers
// are gone. After a failed flush it writes at least an empty record, which replaces what may be in the file.
func (w *writer) commitGroup(group []*request) {
	log := changes{}
	staged := w.tables.Stage(&log)
	kept := group[:0]
	for _, r := range group {
		if r.ctx.Err() != nil {
			r.done <- r.ctx.Err()
			continue
		}
		staged.Do(r.Write)
		kept = append(kept, r)
	}
	var err error
	if !log.empty() || w.failed != nil {
		if log.empty() {
			log.parts = [][]byte{nil}
		}
		w.mu.Lock()
		w.begun, w.flushing = time.Now(), log.users
		w.mu.Unlock()
		err = w.commit(log)
		if err == nil {
			staged.Make()
		}
		w.mu.Lock()
		err = w.finish(newFlush(), err)
		w.mu.Unlock()
	}
	for _, r := range kept {
		r.done <- err
	}
}
