package coalesce

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/lastseen/lastseen/store"
)

// batch is what a lane sends together.
type batch[T any] struct {
	groups  []*group[T]
	members int
}

// group is the part of a batch that is about one namespace.
type group[T any] struct {
	store.Group[T]
	jobs    []*job[T]
	members int
}

// take moves jobs from the head of a queue into one group of the batch, as long as both have room, and
// drops those whose callers are gone. It returns how many members left the queue, whether it has had its
// turn, and whether the batch is full.
func (b *batch[T]) take(q *queue[T], groupSize, batchSize int) (left int, turn, full bool) {
	g := &group[T]{Group: store.Group[T]{Namespace: q.namespace}}
	n := 0
	for _, j := range q.jobs {
		size := len(j.items)
		if j.ctx.Err() == nil {
			turn, full = g.members+size > groupSize, b.members+g.members+size > batchSize
			if turn || full {
				break
			}
			g.jobs = append(g.jobs, j)
			g.members += size
		}
		left += size
		n++
	}
	q.jobs = q.jobs[n:]
	if g.members > 0 {
		b.groups = append(b.groups, g)
		b.members += g.members
	}
	return left, turn, full
}

// send has the store answer the batch, and answers its callers.
func (b *batch[T]) send(l *lanes[T]) {
	groups := make([]*store.Group[T], len(b.groups))
	for i, g := range b.groups {
		g.Items = make([]T, 0, g.members)
		for _, j := range g.jobs {
			g.Items = append(g.Items, j.items...)
		}
		groups[i] = &g.Group
	}
	ctx, cancel := context.WithTimeout(context.Background(), l.Timeout)
	defer cancel()
	err := guard(func() { l.send(ctx, groups) })
	l.counters.sent(b.members)
	for _, g := range b.groups {
		g.answer(err)
	}
}

// guard returns a panic as an error, which would otherwise end the process, as it is not in a request.
func guard(f func()) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	f()
	return nil
}

// answer gives each caller their part of the group's answer, or its error.
func (g *group[T]) answer(err error) {
	err = errors.Join(err, outcome(g.Err))
	if err == nil && len(g.States) != g.members {
		err = fmt.Errorf("the store answered %d states for %d users", len(g.States), g.members)
	}
	at := 0
	for _, j := range g.jobs {
		if j.err = err; err == nil {
			end := at + len(j.items)
			j.states = g.States[at:end:end]
			at = end
		}
		j.done <- struct{}{}
	}
}

// outcome says of a batch that was late what it means to callers, whose own time is not up.
func outcome(err error) error {
	if errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, store.ErrUnavailable) {
		return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	}
	return err
}
