package coalesce

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lastseen/lastseen/store"
)

// node queues the calls of one kind for one server behind the store, and sends them one batch at a time.
type node[T any] struct {
	parent *coalescer[T]
	queued atomic.Int64 // members in the queues, or about to be
	waited atomic.Int64 // nanoseconds that a call of the last batch waited; 0 if nothing is in progress, or down

	mu         sync.Mutex
	queues     map[string]*queue[T] // by namespace; none is empty
	roundRobin []*queue[T]          // the same, in the order of their turns
	busy       bool                 // run is in progress
}

// queue holds the waiting calls of one namespace, the oldest first.
type queue[T any] struct {
	namespace string
	calls     []*call[T]
}

// reserve makes room in the queue and reports whether there is enough. A call about more users than NamespaceSize
// leaves a quarter of it to others; one larger than the queue is accepted when nothing else waits.
func (n *node[T]) reserve(members int) bool {
	room := n.parent.QueueSize
	if members > n.parent.NamespaceSize {
		room -= room / 4
	}
	queued := n.queued.Add(int64(members))
	if queued > int64(room) && queued > int64(members) {
		n.release(members)
		return false
	}
	return true
}

func (n *node[T]) release(members int) { n.queued.Add(-int64(members)) }

// push queues calls that have room reserved, and starts sending.
func (n *node[T]) push(namespace string, calls []*call[T]) {
	n.mu.Lock()
	defer n.mu.Unlock()
	q := n.queues[namespace]
	if q == nil {
		q = &queue[T]{namespace: namespace}
		n.queues[namespace] = q
		n.roundRobin = append(n.roundRobin, q)
	}
	q.calls = append(q.calls, calls...)
	if !n.busy {
		n.busy = true
		n.parent.running.Add(1)
		go n.run()
	}
}

// errOverdue fails calls that waited in the queue for longer than maxWait.
var errOverdue = fmt.Errorf("%w: the call waited too long for those before it", store.ErrUnavailable)

// run sends batches until the queues are empty. Calls behind a batch that timed out fail with it: the next batch would
// time out, too.
func (n *node[T]) run() {
	defer n.parent.running.Done()
	for {
		b := n.next()
		fail(b.overdue, errOverdue)
		if b.members == 0 {
			return
		}
		err := b.send(n.parent)
		n.waited.Store(int64(b.waited(n.parent.maxWait())))
		if err != nil {
			fail(n.drop(), fmt.Errorf("%w: the batch before timed out: %w", store.ErrUnavailable, err))
		}
	}
}

// fail completes calls that are not sent.
func fail[T any](calls []*call[T], err error) {
	for _, call := range calls {
		call.err = err
		call.done <- struct{}{}
	}
}

func (n *node[T]) drop() (dropped []*call[T]) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, q := range n.roundRobin {
		for _, call := range q.calls {
			n.release(len(call.items))
		}
		dropped = append(dropped, q.calls...)
	}
	n.roundRobin = nil
	clear(n.queues)
	return dropped
}

// next takes the next batch from the queues. An empty batch means that the queues are empty and that run ends.
func (n *node[T]) next() *batch[T] {
	n.mu.Lock()
	defer n.mu.Unlock()
	b := &batch[T]{begun: n.parent.Now()}
	for full := false; len(n.roundRobin) > 0 && !full; {
		q := n.roundRobin[0]
		var left int
		var turn bool
		left, turn, full = b.take(q, n.parent.Options)
		n.release(left)
		switch {
		case len(q.calls) == 0:
			n.roundRobin = n.roundRobin[1:]
			delete(n.queues, q.namespace)
		case turn:
			n.roundRobin = append(n.roundRobin[1:], q)
		}
	}
	n.busy = b.members > 0
	if !n.busy {
		n.waited.Store(0)
	}
	return b
}

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
