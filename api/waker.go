package api

import (
	"context"
	"sync"
)

// waker wakes those who wait. The zero value is ready to use, and its methods may be called concurrently.
type waker struct {
	mu      sync.Mutex
	ctx     context.Context //nolint:containedctx // it is the round, for others to wait for; nil before the first use
	endThis func()
}

// round returns a context that ends when wake is called next.
func (w *waker) round() context.Context {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ctx == nil {
		w.begin()
	}
	return w.ctx
}

// wait returns a context that ends with its parent, and when wake is called. Look for what there is to do after wait,
// not before: what was noted before a wake is then not missed.
func (w *waker) wait(parent context.Context) (ctx context.Context, done func()) {
	ctx, cancel := context.WithCancel(parent)
	stop := context.AfterFunc(w.round(), cancel)
	return ctx, func() { stop(); cancel() }
}

// wake wakes all who wait. What there is to do must have been noted before.
func (w *waker) wake() {
	w.mu.Lock()
	end := w.endThis
	w.begin()
	w.mu.Unlock()
	if end != nil {
		end()
	}
}

// begin begins a round. The caller holds the mutex.
func (w *waker) begin() { w.ctx, w.endThis = context.WithCancel(context.Background()) }
