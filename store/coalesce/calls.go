package coalesce

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// coalescer batches one kind of call, with a queue for each node.
type coalescer[T any] struct {
	Options
	kind   string
	send   func(context.Context, []*store.Batch[T])
	userOf func(item T) string
	nodeOf func(namespace string) (of func(user string) string)
	merge  func(before, next lastseen.State) lastseen.State // of a user who is in a request twice; nil if not needed

	mu     sync.RWMutex
	nodes  map[string]*node[T] // by name; none is ever removed
	closed bool

	running sync.WaitGroup // nodes that are sending
	pool    sync.Pool      // of *call[T]

	refused atomic.Int64 // members
}

func newCoalescer[T any](
	kind string, o Options, send func(context.Context, []*store.Batch[T]), nodeOf func(string) func(string) string,
	userOf func(T) string,
) *coalescer[T] {
	c := &coalescer[T]{
		Options: o, kind: kind, send: send, userOf: userOf, nodeOf: nodeOf, nodes: map[string]*node[T]{},
	}
	c.pool.New = func() any { return &call[T]{done: make(chan struct{}, 1)} }
	return c
}

// call is a request to one node, or a part of one: at most NamespaceSize items.
type call[T any] struct {
	ctx     context.Context //nolint:containedctx // of the caller that waits
	arrived time.Time
	items   []T   // a copy: the caller may be gone before they are sent
	at      []int // the positions of their states in the response

	// The outcome, once done.
	outcome
	err  error
	done chan struct{} // holds one signal
}

// outcome is what the store returned.
type outcome struct {
	states  []lastseen.State
	details map[string]store.Details // of lookups
}

// nodeCalls are the calls of one request to one node.
type nodeCalls[T any] struct {
	node    *node[T]
	calls   []*call[T]
	members int
}

// do sends items through their nodes' queues and returns the result.
func (c *coalescer[T]) do(ctx context.Context, namespace string, items []T) (outcome, error) {
	if err := ctx.Err(); err != nil {
		return outcome{}, err
	}
	arrived := c.Now() // first: finding the nodes may take time, too
	if len(items) == 1 {
		return c.doOne(ctx, arrived, namespace, items[0])
	}
	split := c.split(ctx, arrived, namespace, items)
	if err := c.enqueue(namespace, split...); err != nil {
		return outcome{}, err
	}
	r := outcome{states: make([]lastseen.State, len(items))}
	var failed error
	for _, nc := range split {
		for _, call := range nc.calls {
			at := call.at // wait recycles the call
			found, err := c.wait(call)
			if err != nil {
				failed = err
			}
			r.add(found, at)
		}
	}
	if failed != nil {
		return outcome{}, failed
	}
	if c.merge != nil && len(items) > c.NamespaceSize {
		c.mergeDuplicates(items, r.states)
	}
	return r, nil
}

// mergeDuplicates gives every occurrence of a user in a request that was split the same state.
func (c *coalescer[T]) mergeDuplicates(items []T, states []lastseen.State) {
	final := make(map[string]lastseen.State, len(items))
	for i, item := range items {
		user := c.userOf(item)
		final[user] = c.merge(final[user], states[i])
	}
	for i, item := range items {
		states[i] = final[c.userOf(item)]
	}
}

// add adds a part whose states are at the given positions.
func (r *outcome) add(part outcome, at []int) {
	for i, state := range part.states {
		r.states[at[i]] = state
	}
	if r.details == nil {
		r.details = part.details
		return
	}
	maps.Copy(r.details, part.details)
}

// doOne is do for a single item, the most frequent request.
func (c *coalescer[T]) doOne(
	ctx context.Context, arrived time.Time, namespace string, item T,
) (outcome, error) {
	only := c.newCall(ctx, arrived)
	only.items = append(only.items, item)
	n := c.node(c.nodeOf(namespace)(c.userOf(item)))
	if err := c.enqueue(namespace, nodeCalls[T]{n, []*call[T]{only}, 1}); err != nil {
		return outcome{}, err
	}
	return c.wait(only)
}

func (c *coalescer[T]) newCall(ctx context.Context, arrived time.Time) *call[T] {
	made := c.pool.Get().(*call[T])
	made.ctx, made.arrived = ctx, arrived
	return made
}

// wait returns the outcome of a call, or an error once its context ends. It recycles the call.
func (c *coalescer[T]) wait(done *call[T]) (outcome, error) {
	select {
	case <-done.done:
	case <-done.ctx.Done():
		return outcome{}, done.ctx.Err() // not recycled: the node may still have it
	}
	r, err := done.outcome, done.err
	clear(done.items)
	*done = call[T]{items: done.items[:0], done: done.done} // not at, which the caller still needs
	c.pool.Put(done)
	return r, err
}

// split divides items among nodes, in calls of at most NamespaceSize items.
func (c *coalescer[T]) split(ctx context.Context, arrived time.Time, namespace string, items []T) []nodeCalls[T] {
	var split []nodeCalls[T]
	position := map[string]int{} // in split, by the node's name
	nodeOf := c.nodeOf(namespace)
	for i, item := range items {
		name := nodeOf(c.userOf(item))
		k, ok := position[name]
		if !ok {
			k = len(split)
			position[name] = k
			split = append(split, nodeCalls[T]{node: c.node(name)})
		}
		nc := &split[k]
		if nc.members%c.NamespaceSize == 0 {
			nc.calls = append(nc.calls, c.newCall(ctx, arrived))
		}
		nc.members++
		last := nc.calls[len(nc.calls)-1]
		last.items, last.at = append(last.items, item), append(last.at, i)
	}
	return split
}

// node returns the node of a name, creating it if necessary.
func (c *coalescer[T]) node(name string) *node[T] {
	c.mu.RLock()
	found := c.nodes[name]
	c.mu.RUnlock()
	if found != nil {
		return found
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.nodes[name] == nil {
		c.nodes[name] = &node[T]{parent: c, queues: map[string]*queue[T]{}}
	}
	return c.nodes[name]
}

// enqueue queues all calls of a request, or none.
func (c *coalescer[T]) enqueue(namespace string, split ...nodeCalls[T]) error {
	c.mu.RLock() // close waits for it
	defer c.mu.RUnlock()
	if c.closed {
		return store.ErrClosed
	}
	for i, nc := range split {
		if nc.node.reserve(nc.members) {
			continue
		}
		for _, reserved := range split[:i] {
			reserved.node.release(reserved.members)
		}
		c.refused.Add(int64(nc.members))
		return fmt.Errorf("%w: %d are queued already", store.ErrOverloaded, nc.node.queued.Load())
	}
	for _, nc := range split {
		nc.node.push(namespace, nc.calls)
	}
	return nil
}

func (c *coalescer[T]) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
}
