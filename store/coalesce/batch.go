package coalesce

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/lastseen/lastseen/store"
)

// batch is what a node sends together.
type batch[T any] struct {
	namespaces []*namespaceBatch[T]
	members    int
	begun      time.Time
	oldest     time.Time  // when the first of its calls was made
	overdue    []*call[T] // calls that waited too long to be sent
}

// namespaceBatch is the part of a batch that is about one namespace.
type namespaceBatch[T any] struct {
	store.Batch[T]
	calls []*call[T]
}

// take moves calls from the front of a queue to the batch until one does not fit. It returns the number of members that
// left the queue, and what was exhausted: the namespace's turn, the room in the batch, or neither.
func (b *batch[T]) take(q *queue[T], o Options) (left int, turn, full bool) {
	nb := &namespaceBatch[T]{Batch: store.Batch[T]{Namespace: q.namespace}}
	for ; len(q.calls) > 0; q.calls = q.calls[1:] {
		call := q.calls[0]
		size := len(call.items)
		if !b.skip(call, o.maxWait()) {
			turn, full = len(nb.Items)+size > o.NamespaceSize, b.members+size > o.BatchSize
			if turn || full {
				break
			}
			if nb.calls == nil {
				nb.Items = make([]T, 0, max(size, min(len(q.calls), o.NamespaceSize)))
				b.namespaces = append(b.namespaces, nb)
			}
			nb.calls, nb.Items = append(nb.calls, call), append(nb.Items, call.items...)
			b.members += size
			if b.oldest.IsZero() || call.arrived.Before(b.oldest) {
				b.oldest = call.arrived
			}
		}
		left += size
	}
	return left, turn, full
}

// skip reports whether a call is not sent, because its caller is gone or it waited too long.
func (b *batch[T]) skip(c *call[T], maxWait time.Duration) bool {
	if c.ctx.Err() != nil {
		return true
	}
	late := b.begun.Sub(c.arrived) > maxWait
	if late {
		b.overdue = append(b.overdue, c)
	}
	return late
}

// send sends the batch to the store and completes its calls. It returns an error if the batch timed out.
func (b *batch[T]) send(c *coalescer[T]) error {
	batches := make([]*store.Batch[T], len(b.namespaces))
	for i, nb := range b.namespaces {
		batches[i] = &nb.Batch
	}
	limit := min(c.Timeout, 2*c.Timeout-b.begun.Sub(b.oldest)) // each caller waits for two timeouts at most
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if c.Observe != nil {
		c.Observe(c.kind, b.members, b.begun.Sub(b.oldest))
	}
	ctx, end := b.trace(ctx, c)
	err := catchPanic(func() { c.send(ctx, batches) })
	late := c.Now().Sub(b.begun) >= limit
	var failed error
	for _, nb := range b.namespaces {
		failed = cmp.Or(failed, nb.Err)
		nb.complete(err, c.userOf)
	}
	end(cmp.Or(err, failed))
	if !late {
		return nil
	}
	return failed
}

// trace begins the batch's span, if batches are traced. It returns the context of the batch, and what ends the span.
func (b *batch[T]) trace(ctx context.Context, c *coalescer[T]) (context.Context, func(error)) {
	if c.Trace == nil {
		return ctx, func(error) {}
	}
	var calls []context.Context
	for _, nb := range b.namespaces {
		for _, call := range nb.calls {
			calls = append(calls, call.ctx)
		}
	}
	return c.Trace(ctx, c.kind, calls)
}

// catchPanic returns a panic of f as an error. Outside a request it would end the process.
func catchPanic(f func()) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	f()
	return nil
}

// complete gives each call its part of the states and details, or the error.
func (nb *namespaceBatch[T]) complete(err error, userOf func(T) string) {
	err = errors.Join(err, callerError(nb.Err))
	if err == nil && len(nb.States) != len(nb.Items) {
		err = fmt.Errorf("the store returned %d states for %d users", len(nb.States), len(nb.Items))
	}
	at, described := 0, nb.Details
	for _, call := range nb.calls {
		if call.err = err; err == nil {
			end := at + len(call.items)
			call.states = nb.States[at:end:end]
			for ; len(described) > 0 && described[0].At < end; described = described[1:] {
				if call.details == nil {
					call.details = map[string]store.Details{}
				}
				call.details[userOf(nb.Items[described[0].At])] = described[0].Details
			}
			at = end
		}
		call.done <- struct{}{}
	}
}

// callerError returns the error of a batch as its callers see it: the deadline that passed is not theirs.
func callerError(err error) error {
	if errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, store.ErrUnavailable) {
		return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	}
	return err
}
