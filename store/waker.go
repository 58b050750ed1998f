package store

import (
	"context"
	"time"
)

// Waker ends the wait of one goroutine. Waking is remembered until the next wait. The zero value is never woken: it can
// only wait.
type Waker chan struct{}

// NewWaker returns a waker.
func NewWaker() Waker { return make(Waker, 1) }

// Wake ends the wait in progress, or else the next one. It returns at once.
func (w Waker) Wake() {
	select {
	case w <- struct{}{}:
	default: // it is remembered already
	}
}

// Wait waits for a time, until Wake is called, or until the context ends, whichever is first.
func (w Waker) Wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w:
	case <-ctx.Done():
	}
}

// Pause waits for a time. It returns false if the context ends.
func Pause(ctx context.Context, d time.Duration) bool {
	Waker(nil).Wait(ctx, d)
	return ctx.Err() == nil
}
