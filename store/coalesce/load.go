package coalesce

import (
	"context"
	"errors"
	"time"

	"github.com/lastseen/lastseen/store"
)

// down is the wait of a node whose last batch failed because the server did not respond.
const down time.Duration = -1

// Load implements [store.Store]. It is that of the busiest node: the time that the oldest call of the last batch waited
// in its queue as a part of the time after which calls fail, or the part of the queue that is taken, whichever is more.
// It is 0 while nothing is queued or in progress, and for a node whose last batch failed because its server was
// unavailable.
func (s *Store) Load() float64 { return max(s.pings.load(), s.lookups.load(), s.devices.load()) }

func (c *coalescer[T]) load() (load float64) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, n := range c.nodes {
		load = max(load, n.load())
	}
	return load
}

func (n *node[T]) load() float64 {
	waited := time.Duration(n.waited.Load())
	if waited == down {
		return 0
	}
	o := n.parent.Options
	return min(1, max(float64(waited)/float64(o.maxWait()), float64(n.queued.Load())/float64(o.QueueSize)))
}

// waited returns how long the oldest call of a batch that was sent waited before it, or down.
func (b *batch[T]) waited(maxWait time.Duration) time.Duration {
	for _, nb := range b.namespaces {
		if errors.Is(nb.Err, store.ErrUnavailable) || errors.Is(nb.Err, context.DeadlineExceeded) {
			return down
		}
	}
	if len(b.overdue) > 0 {
		return maxWait
	}
	return b.begun.Sub(b.oldest)
}
