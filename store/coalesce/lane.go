package coalesce

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/lastseen/lastseen/store"
)

// lane is the way to one server behind the store. One batch is on it at a time.
type lane[T any] struct {
	lanes  *lanes[T]
	queued atomic.Int64 // members that wait, or are about to

	mu     sync.Mutex
	queues map[string]*queue[T] // by namespace; those with something in them
	turns  []*queue[T]          // the same, whose turn it is first
	busy   bool                 // a batch is on its way
}

// queue is what waits in one namespace, first come, first served.
type queue[T any] struct {
	namespace string
	jobs      []*job[T]
}

// reserve makes room in the queue, and reports whether there is any. Whoever brings more than a group leaves
// a quarter of it free, so that imports do not have everyone else refused. What is larger than the whole
// queue has room when nothing else waits.
func (l *lane[T]) reserve(members int) bool {
	room := l.lanes.QueueSize
	if members > l.lanes.GroupSize {
		room -= room / 4
	}
	queued := l.queued.Add(int64(members))
	if queued > int64(room) && queued > int64(members) {
		l.release(members)
		return false
	}
	return true
}

func (l *lane[T]) release(members int) { l.queued.Add(-int64(members)) }

// push queues jobs for whom room was reserved, and sets the lane going.
func (l *lane[T]) push(namespace string, jobs []*job[T]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.queues[namespace]
	if q == nil {
		q = &queue[T]{namespace: namespace}
		l.queues[namespace] = q
		l.turns = append(l.turns, q)
	}
	q.jobs = append(q.jobs, jobs...)
	if !l.busy {
		l.busy = true
		l.lanes.running.Add(1)
		go l.run()
	}
}

// run sends batches until nothing is queued. What waits behind a batch that timed out fails with it: the next one
// would time out as well.
func (l *lane[T]) run() {
	defer l.lanes.running.Done()
	for {
		b := l.next()
		fail(b.overdue, errOverdue)
		if len(b.groups) == 0 {
			return
		}
		if err := b.send(l.lanes); err != nil {
			fail(l.drop(), fmt.Errorf("%w: the batch before timed out: %w", store.ErrUnavailable, err))
		}
	}
}

// errOverdue is the error of calls that waited in the queue for longer than patience.
var errOverdue = fmt.Errorf("%w: the call waited too long for those before it", store.ErrUnavailable)

// drop empties the queues and returns what was in them.
func (l *lane[T]) drop() (dropped []*job[T]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, q := range l.turns {
		for _, j := range q.jobs {
			l.release(len(j.items))
		}
		dropped = append(dropped, q.jobs...)
	}
	l.turns = nil
	clear(l.queues)
	return dropped
}

// next takes the next batch out of the queues. When it has no groups nothing is queued, and the lane comes to
// rest.
func (l *lane[T]) next() *batch[T] {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := &batch[T]{begun: l.lanes.Now()}
	for full := false; len(l.turns) > 0 && !full; {
		q := l.turns[0]
		var left int
		var turn bool
		left, turn, full = b.take(q, l.lanes.Options)
		l.release(left)
		switch {
		case len(q.jobs) == 0:
			l.turns = l.turns[1:]
			delete(l.queues, q.namespace)
		case turn:
			l.turns = append(l.turns[1:], q)
		}
	}
	if len(b.groups) == 0 {
		l.busy = false
	}
	return b
}
