package feed

import (
	"context"
	"errors"
	"time"

	"github.com/lastseen/lastseen/store"
)

// Next returns the next batch, of at most limit users unless it is a snapshot, one of its pages, a reset, or the first
// one of a namespace that is new. If there is none, ok is false; call Next again then when [Query.Wake] is called, and
// after some time.
//
// The first change is returned at once; after that, at most four batches a second are, so that changes of one user
// merge, unless the batch before had More. A reset is delayed by up to ten seconds, at random, so that watchers do not
// all read at once. Next may have to read from the store. Once there was a batch, a failure of the store is no error,
// and Next is to be called again. If it returns an error because the context ended, the next call returns the same
// batch.
func (w *Watcher) Next(ctx context.Context, limit int) (b Batch, ok bool, again time.Duration, err error) {
	w.delays.Store(false)
	for {
		if err := w.endErr(ctx); err != nil {
			return Batch{}, false, 0, err
		}
		if again = w.delay(); again > 0 {
			w.delays.Store(true)
			return Batch{}, false, again, nil
		}
		b, ok, err = w.step(ctx, limit)
		switch {
		case err != nil && w.retryable(ctx, err):
			w.delayed, w.notBefore = true, w.hub.monotonic()+resetRetry+w.jitter(resetRetry)
		case err != nil:
			return Batch{}, false, 0, err
		case ok || b.Positions != nil:
			return b, ok, lookAgain, nil
		}
	}
}

// Poll is Next without waiting: if nothing changed, the batch has no users. It may have to read from the store.
func (w *Watcher) Poll(ctx context.Context, limit int) (Batch, error) {
	for {
		b, ok, err := w.step(ctx, limit)
		if ok || err != nil || b.Positions != nil {
			return b, err
		}
	}
}

// notify has Next called again, unless that is to be called after a time in any case.
func (w *Watcher) notify() {
	if w.wake != nil && !w.delays.Load() {
		w.wake()
	}
}

// notifyNow has Next called again.
func (w *Watcher) notifyNow() {
	w.delays.Store(false)
	w.notify()
}

// endErr returns the error that ends the watcher; nil if it continues.
func (w *Watcher) endErr(ctx context.Context) error {
	select {
	case <-w.hub.ended:
		return store.ErrClosed
	default:
		return ctx.Err()
	}
}

// lookAgain is when to call Next again if there is no other reason.
const lookAgain = time.Hour

// delay returns for how long Next has nothing to do. A watcher that has to read what it watches, since its feed
// began or began again, waits for a random time.
func (w *Watcher) delay() time.Duration {
	if spread := w.spread(); w.started && !w.delayed && spread > 0 {
		w.delayed, w.notBefore = true, w.hub.monotonic()+w.jitter(spread)
	}
	return max(0, w.notBefore-w.hub.monotonic())
}

// spread returns the time over which watchers that have to read for the same reason do so; 0 if this one does not.
func (w *Watcher) spread() time.Duration {
	w.f.mu.Lock()
	defer w.f.mu.Unlock()
	switch {
	case w.f.err != nil:
	case w.needsReset:
		return resetSpread
	case w.created():
		return createdSpread
	}
	return 0
}

func (w *Watcher) jitter(limit time.Duration) time.Duration {
	return time.Duration(w.hub.o.Random() * float64(limit))
}

// retryable reports whether a waiting watcher tries again after the error.
func (w *Watcher) retryable(ctx context.Context, err error) bool {
	ends := errors.Is(err, store.ErrNoFeed) || errors.Is(err, store.ErrClosed) || errors.Is(err, ErrTooManyWatches)
	return w.started && ctx.Err() == nil && !ends
}

// step returns the changes for the watcher now, and whether there are any. If not, the batch has the positions at which
// it waits, or none if there is more to do at once.
func (w *Watcher) step(ctx context.Context, limit int) (b Batch, ok bool, err error) {
	limit = max(limit, 1)
	w.f.mu.Lock()
	err, positions, attached, lost, arrives := w.f.err, w.positions, w.attached, w.needsReset, w.created()
	w.f.mu.Unlock()
	switch {
	case err != nil:
		return Batch{}, false, err
	// Any client can claim that it waited for the namespace, so those that did not wait here get a reset, which is
	// charged.
	case lost, arrives && !w.started:
		b, err = w.begin(ctx, true)
		ok = err == nil
	case positions == nil:
		b, err = w.begin(ctx, false)
		ok = err == nil
	case arrives:
		b, ok, err = w.beginCreated(ctx)
	case !attached:
		b, ok, err = w.catchUp(ctx, limit)
	}
	if !ok && err == nil {
		b, ok, err = w.fromMemory(ctx, limit)
	}
	if err == nil && w.scan.more && b.Positions != nil && !b.More {
		b, ok, err = w.page(ctx, b, ok, limit)
	}
	if ok || b.Positions != nil {
		w.started, w.delayed = true, false
		b.Positions = w.scan.positions(b.Positions)
	}
	if ok {
		w.notBefore = 0
		if !b.More && !b.Snapshot && !b.Reset && len(b.Users) > 0 {
			w.notBefore = w.hub.monotonic() + batchEvery
		}
	}
	return b, ok, err
}
