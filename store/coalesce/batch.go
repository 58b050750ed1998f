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

// batch is what a lane sends together.
type batch[T any] struct {
	groups  []*group[T]
	members int
	begun   time.Time
	oldest  time.Time // when the first of its callers arrived
	overdue []*job[T] // callers that waited too long to be sent
}

// group is the part of a batch that is about one namespace.
type group[T any] struct {
	store.Batch[T]
	jobs    []*job[T]
	members int
}

// take moves jobs from the head of a queue into one group of the batch, as long as both have room, and
// drops those whose callers are gone or have waited longer than patience. It returns how many members left the
// queue, whether it has had its turn, and whether the batch is full.
func (b *batch[T]) take(q *queue[T], o Options) (left int, turn, full bool) {
	g := &group[T]{Batch: store.Batch[T]{Namespace: q.namespace}}
	n := 0
	for _, j := range q.jobs {
		size := len(j.items)
		switch {
		case j.ctx.Err() != nil:
		case b.begun.Sub(j.arrived) > o.patience():
			b.overdue = append(b.overdue, j)
		default:
			turn, full = g.members+size > o.GroupSize, b.members+g.members+size > o.BatchSize
			if !turn && !full {
				g.jobs = append(g.jobs, j)
				g.members += size
				b.since(j.arrived)
			}
		}
		if turn || full {
			break
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

// since notes when a caller arrived.
func (b *batch[T]) since(arrived time.Time) {
	if b.oldest.IsZero() || arrived.Before(b.oldest) {
		b.oldest = arrived
	}
}

// limit returns how long the batch may take, so that each of its callers waits for two timeouts at most.
func (b *batch[T]) limit(timeout time.Duration) time.Duration {
	return min(timeout, 2*timeout-b.begun.Sub(b.oldest))
}

// send has the store answer the batch, and answers its callers. It returns an error if the batch timed out.
func (b *batch[T]) send(l *lanes[T]) error {
	groups := make([]*store.Batch[T], len(b.groups))
	for i, g := range b.groups {
		g.Items = make([]T, 0, g.members)
		for _, j := range g.jobs {
			g.Items = append(g.Items, j.items...)
		}
		groups[i] = &g.Batch
	}
	limit := b.limit(l.Timeout)
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	err := guard(func() { l.send(ctx, groups) })
	late := l.Now().Sub(b.begun) >= limit
	l.counters.sent(b.members)
	var failed error
	for _, g := range b.groups {
		failed = cmp.Or(failed, g.Err)
		g.answer(err)
	}
	if late && failed != nil {
		return failed
	}
	return nil
}

// fail answers jobs that are not sent.
func fail[T any](jobs []*job[T], err error) {
	for _, j := range jobs {
		j.err = err
		j.done <- struct{}{}
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
