package session

import (
	"context"
	"sync"
)

// Waker wakes those who wait. The zero value is ready to use, and its methods may be called concurrently.
type Waker struct {
	mu      sync.Mutex
	ctx     context.Context //nolint:containedctx // it is the round, for others to wait for; nil before the first use
	endThis func()
}

// Wait returns a context that ends with its parent, and when Wake is called. Look for what there is to do after Wait,
// not before: what was noted before a Wake is then not missed.
func (w *Waker) Wait(parent context.Context) (ctx context.Context, done func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ctx == nil {
		w.begin()
	}
	ctx, cancel := context.WithCancel(parent)
	stop := context.AfterFunc(w.ctx, cancel)
	return ctx, func() { stop(); cancel() }
}

// Wake wakes all who wait. What there is to do must have been noted before.
func (w *Waker) Wake() {
	w.mu.Lock()
	end := w.endThis
	w.begin()
	w.mu.Unlock()
	if end != nil {
		end()
	}
}

// begin begins a round. The caller holds the mutex.
func (w *Waker) begin() { w.ctx, w.endThis = context.WithCancel(context.Background()) }
