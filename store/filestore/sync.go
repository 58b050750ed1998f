package filestore

import (
	"context"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// This file is the writer with sync = 0: a write is answered after its flush, many a flush.

// maxGroup bounds the writes of one flush.
const maxGroup = 4096

// submit hands a write to the goroutine and waits for its answer.
func (w *writer) submit(ctx context.Context, c write) error {
	if err := w.s.open(); err != nil {
		return err
	}
	r := &request{write: c, ctx: ctx, done: make(chan error, 1)}
	select {
	case w.requests <- r:
	case <-ctx.Done():
		return ctx.Err()
	case <-w.stop:
		return store.ErrClosed
	}
	select {
	case err := <-r.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-w.stopped:
	}
	select {
	case err := <-r.done: // answered just before the end
		return err
	default:
		return store.ErrClosed // queued just after it
	}
}

// retryEvery is how long after a failed flush the file is tried again when nobody writes.
const retryEvery = time.Second

// runImmediate takes what waits, flushes it, and answers. What arrives meanwhile is the next group.
// After a failed flush it tries by itself, too: a server that is not ready gets no writes.
func (w *writer) runImmediate() {
	retry := time.NewTicker(retryEvery)
	defer retry.Stop()
	for {
		select {
		case r := <-w.requests:
			w.flushGroup(r)
		case <-retry.C:
			w.probe()
		case <-w.stop:
			w.drain()
			return
		}
	}
}

// probe writes an empty record if the last flush failed.
func (w *writer) probe() {
	w.s.mu.RLock()
	failed := w.failed
	w.s.mu.RUnlock()
	if failed == nil {
		return
	}
	err := w.commit(orEmpty(nil))
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	w.finish(newFlush(), err)
}

// drain flushes what was queued before the end.
func (w *writer) drain() {
	for {
		select {
		case r := <-w.requests:
			w.flushGroup(r)
		default:
			return
		}
	}
}

// flushGroup makes a request and those that wait behind it, in one flush. A request that has to be
// alone ends the group and is made after it.
func (w *writer) flushGroup(first *request) {
	group := []*request{first}
	var alone *request
	for !first.alone && alone == nil && len(group) < maxGroup {
		select {
		case r := <-w.requests:
			if r.alone {
				alone = r
			} else {
				group = append(group, r)
			}
			continue
		default:
		}
		break
	}
	w.commitGroup(group)
	if alone != nil {
		w.commitGroup([]*request{alone})
	}
	w.compactIfDue()
}

// orEmpty returns a run, or one of an empty record, which only shows whether the file can be written to.
func orEmpty(run [][]byte) [][]byte {
	if len(run) == 0 {
		return [][]byte{nil}
	}
	return run
}

// commitGroup brings requests into the file, then into the index, and answers them. Those whose caller has
// gone are dropped.
func (w *writer) commitGroup(group []*request) {
	log := changes{}
	t := &transaction{
		index: &w.s.index, log: &log, maxNamespaces: w.maxNamespaces,
		staged: map[userKey]lastseen.State{}, adds: map[string]struct{}{},
	}
	kept := group[:0]
	for _, r := range group {
		if r.ctx.Err() != nil {
			r.done <- r.ctx.Err()
			continue
		}
		r.do(t) // only this goroutine changes the index, so reading it takes no lock
		kept = append(kept, r)
	}
	var err error
	if !log.empty() || w.failed != nil { // after a failure, what was refused may be in the file until another record is
		w.s.mu.Lock()
		w.begun = w.s.now()
		w.s.mu.Unlock()
		err = w.commit(orEmpty(log.all()))
		w.s.mu.Lock()
		if err == nil {
			t.apply()
		}
		w.finish(newFlush(), err)
		err = w.failed
		w.s.mu.Unlock()
	}
	for _, r := range kept {
		r.done <- err
	}
}
