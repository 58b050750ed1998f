package api

import (
	"context"
	"sync"
)

// interruption lets other goroutines end the waiting of one. The zero value is ready to use.
type interruption struct {
	mu     sync.Mutex
	cancel func() // nil while nobody waits
}

// turn returns a context for the next waiting, which ends with its parent, and when another goroutine calls wakeUp.
// Look for what there is to do after turn, not before: what was noted before a wakeUp is then not missed.
func (i *interruption) turn(ctx context.Context) (turn context.Context, done func()) {
	turn, cancel := context.WithCancel(ctx)
	i.mu.Lock()
	defer i.mu.Unlock()
	i.cancel = cancel
	return turn, func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.cancel = nil
		cancel()
	}
}

// wakeUp ends the waiting. What there is to do must have been noted before.
func (i *interruption) wakeUp() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.cancel != nil {
		i.cancel()
	}
}
