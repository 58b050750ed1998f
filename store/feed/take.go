package feed

import (
	"context"
	"errors"
	"time"

	"github.com/lastseen/lastseen/store"
)

// Next returns the next batch, of at most limit users unless it is a snapshot, one of its pages, a reset, or the first
// one of a namespace that is new. It waits until there is one or the context ends. The first change is returned at
// once; after that, at most four batches a second are, so that changes of one user merge, unless the batch before had
// More. A reset of a watcher that waits comes after up to ten seconds, at random, so that not all watchers ask at once.
// After the first batch, errors of the store are no errors of Next: it tries again. If it returns an error because the
// context ended, the next call returns what it would have.
func (w *Watcher) Next(ctx context.Context, limit int) (Batch, error) {
	for {
		b, ok, again, err := w.Take(ctx, limit)
		switch {
		case ok || err != nil:
			return b, err
		case again > 0:
			err = w.wait(ctx, again, nil)
		default:
			err = w.wait(ctx, time.Hour, w.wake)
		}
		if err != nil {
			return Batch{}, err
		}
	}
}

// Take is Next without waiting. It returns whether there is a batch. If not, it can be called again after a time; if
// this is 0, when something changes. It may have to read from the store.
func (w *Watcher) Take(ctx context.Context, limit int) (b Batch, ok bool, again time.Duration, err error) {
	for {
		if err := w.over(ctx); err != nil {
			return Batch{}, false, 0, err
		}
		if again = w.rest(); again > 0 {
			return Batch{}, false, again, nil
		}
		b, ok, err = w.step(ctx, limit)
		switch {
		case err != nil && w.retries(ctx, err):
			w.delayed, w.notBefore = true, w.hub.monotonic()+resetRetry+w.random(resetRetry)
		case err != nil:
			return Batch{}, false, 0, err
		case ok || b.Places != nil:
			return b, ok, 0, nil
		}
	}
}

// Poll is Next without waiting: if nothing changed, the batch has no users. It may have to read from the store.
func (w *Watcher) Poll(ctx context.Context, limit int) (Batch, error) {
	for {
		b, ok, err := w.step(ctx, limit)
		if ok || err != nil || b.Places != nil {
			return b, err
		}
	}
}

// over returns why the watcher cannot go on.
func (w *Watcher) over(ctx context.Context) error {
	select {
	case <-w.hub.ended:
		return store.ErrClosed
	default:
		return ctx.Err()
	}
}

// rest returns for how long Take has nothing to do. A watcher that has to read what it watches, since its feed began or
// began again, gets its turn at random.
func (w *Watcher) rest() time.Duration {
	if spread := w.spread(); w.told && !w.delayed && spread > 0 {
		w.delayed, w.notBefore = true, w.hub.monotonic()+w.random(spread)
	}
	return max(0, w.notBefore-w.hub.monotonic())
}

// spread returns within which time those read who have to as the watcher has; 0 if it has not.
func (w *Watcher) spread() time.Duration {
	w.f.mu.Lock()
	defer w.f.mu.Unlock()
	switch {
	case w.f.err != nil:
	case w.lost:
		return resetSpread
	case w.arrives():
		return arriveSpread
	}
	return 0
}

func (w *Watcher) random(most time.Duration) time.Duration {
	return time.Duration(w.hub.o.Random() * float64(most))
}

// retries reports whether a watcher that waits lives through the error.
func (w *Watcher) retries(ctx context.Context, err error) bool {
	ends := errors.Is(err, store.ErrNoFeed) || errors.Is(err, store.ErrClosed) || errors.Is(err, ErrTooManyWatches)
	return w.told && ctx.Err() == nil && !ends
}

// wait returns after a time, or when the channel is ready. Otherwise it returns why the watcher ends.
func (w *Watcher) wait(ctx context.Context, d time.Duration, early <-chan struct{}) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-early:
	case <-ctx.Done():
		return ctx.Err()
	case <-w.hub.ended:
		return store.ErrClosed
	}
	return nil
}

// step returns what there is for the watcher now, and whether that is anything. If not, the batch has the places at
// which it waits, or none if there is more to do at once.
func (w *Watcher) step(ctx context.Context, limit int) (b Batch, ok bool, err error) {
	limit = max(limit, 1)
	w.f.mu.Lock()
	err, places, attached, lost, arrives := w.f.err, w.places, w.attached, w.lost, w.arrives()
	w.f.mu.Unlock()
	switch {
	case err != nil:
		return Batch{}, false, err
	// Anyone can say that they waited for the namespace, so for those who did not wait here it is a reset, which is
	// charged.
	case lost, arrives && !w.told:
		b, err = w.begin(ctx, true)
		ok = err == nil
	case places == nil:
		b, err = w.begin(ctx, false)
		ok = err == nil
	case arrives:
		b, ok, err = w.arrive(ctx)
	case !attached:
		b, ok, err = w.catchUp(ctx, limit)
	}
	if !ok && err == nil {
		b, ok, err = w.fromMemory(ctx, limit)
	}
	if err == nil && w.scan.going && b.Places != nil && !b.More {
		b, ok, err = w.page(ctx, b, ok, limit)
	}
	if ok || b.Places != nil {
		w.told, w.delayed = true, false
		b.Places = w.scan.places(b.Places)
	}
	if ok {
		w.notBefore = 0
		if !b.More && !b.Snapshot && !b.Reset && len(b.Users) > 0 {
			w.notBefore = w.hub.monotonic() + batchEvery
		}
	}
	return b, ok, err
}
