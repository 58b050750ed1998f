package coalesce

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// lanes are the lanes of one kind of call.
type lanes[T any] struct {
	Options
	send   func(context.Context, []*store.Batch[T])
	user   func(T) string                                       // whom an item is about
	nodeOf func(namespace string) (of func(user string) string) // the names of users' lanes
	settle func([]T, []lastseen.State)                          // brings the answers of several jobs in line; nil if they are

	mu     sync.RWMutex
	byName map[string]*lane[T] // grows only
	closed bool

	running  sync.WaitGroup // lanes with something to do
	jobs     sync.Pool      // of *job[T]
	counters counters
}

func newLanes[T any](o Options, send func(context.Context, []*store.Batch[T]), user func(T) string) *lanes[T] {
	l := &lanes[T]{Options: o, send: send, user: user, nodeOf: oneLane, byName: map[string]*lane[T]{}}
	l.jobs.New = func() any { return &job[T]{done: make(chan struct{}, 1)} }
	return l
}

// oneLane is where all goes that is kept by one server.
func oneLane(string) (of func(user string) string) { return func(string) string { return "" } }

// job is what one call wants of one lane: at most a group's worth of items.
type job[T any] struct {
	ctx     context.Context //nolint:containedctx // of the caller who waits
	arrived time.Time       // when the call was made
	items   []T             // the job's own: the caller may be gone before they are sent
	at      []int           // where in the call's answer their states belong

	// The outcome, once done.
	states []lastseen.State
	err    error
	done   chan struct{} // holds one signal
}

// part is what one call wants of one lane.
type part[T any] struct {
	lane    *lane[T]
	jobs    []*job[T]
	members int
}

// do has the lanes send the items and returns their states.
func (l *lanes[T]) do(ctx context.Context, namespace string, items []T) ([]lastseen.State, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	arrived := l.Now() // finding the lanes may take time, too
	if len(items) == 1 {
		return l.one(ctx, arrived, namespace, items[0])
	}
	parts := l.split(ctx, arrived, namespace, items)
	if err := l.enter(namespace, parts...); err != nil {
		return nil, err
	}
	states := make([]lastseen.State, len(items))
	var failed error
	for _, p := range parts {
		for _, j := range p.jobs {
			at := j.at
			found, err := l.wait(j)
			if err != nil {
				failed = err
			}
			for i, state := range found {
				states[at[i]] = state
			}
		}
	}
	if failed != nil {
		return nil, failed
	}
	if l.settle != nil && len(items) > l.GroupSize {
		l.settle(items, states)
	}
	return states, nil
}

// one is do for a single item, the commonest call.
func (l *lanes[T]) one(ctx context.Context, arrived time.Time, namespace string, item T) ([]lastseen.State, error) {
	j := l.job(ctx, arrived)
	j.items = append(j.items, item)
	if err := l.enter(namespace, part[T]{lane: l.lane(l.nodeOf(namespace)(l.user(item))), jobs: []*job[T]{j}, members: 1}); err != nil {
		return nil, err
	}
	return l.wait(j)
}

// job returns an empty job.
func (l *lanes[T]) job(ctx context.Context, arrived time.Time) *job[T] {
	j := l.jobs.Get().(*job[T])
	j.ctx, j.arrived = ctx, arrived
	return j
}

// wait returns the outcome of a job, or an error once its context ends. The job is done with.
func (l *lanes[T]) wait(j *job[T]) ([]lastseen.State, error) {
	select {
	case <-j.done:
	case <-j.ctx.Done():
		return nil, j.ctx.Err() // the lane may still have it
	}
	states, err := j.states, j.err
	clear(j.items)
	*j = job[T]{items: j.items[:0], done: j.done} // not at: the call still goes by it
	l.jobs.Put(j)
	return states, err
}

// split divides items over the lanes, in jobs of at most a group's worth.
func (l *lanes[T]) split(ctx context.Context, arrived time.Time, namespace string, items []T) []part[T] {
	var parts []part[T]
	place := map[string]int{} // in parts, by the lane's name
	laneOf := l.nodeOf(namespace)
	for i, item := range items {
		name := laneOf(l.user(item))
		k, ok := place[name]
		if !ok {
			k = len(parts)
			place[name] = k
			parts = append(parts, part[T]{lane: l.lane(name)})
		}
		p := &parts[k]
		if p.members%l.GroupSize == 0 {
			p.jobs = append(p.jobs, l.job(ctx, arrived))
		}
		p.members++
		j := p.jobs[len(p.jobs)-1]
		j.items, j.at = append(j.items, item), append(j.at, i)
	}
	return parts
}

// lane returns the lane of a name, which is made if there is none.
func (l *lanes[T]) lane(name string) *lane[T] {
	l.mu.RLock()
	found := l.byName[name]
	l.mu.RUnlock()
	if found != nil {
		return found
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byName[name] == nil {
		l.byName[name] = &lane[T]{lanes: l, queues: map[string]*queue[T]{}}
	}
	return l.byName[name]
}

// enter queues all jobs, or none.
func (l *lanes[T]) enter(namespace string, parts ...part[T]) error {
	l.mu.RLock() // closing waits for those who are in here
	defer l.mu.RUnlock()
	if l.closed {
		return store.ErrClosed
	}
	for i, p := range parts {
		if p.lane.reserve(p.members) {
			continue
		}
		for _, reserved := range parts[:i] {
			reserved.lane.release(reserved.members)
		}
		l.counters.refused.Add(int64(p.members))
		return fmt.Errorf("%w: %d wait already", store.ErrOverloaded, p.lane.queued.Load())
	}
	for _, p := range parts {
		p.lane.push(namespace, p.jobs)
	}
	return nil
}

// refuse lets no more calls in.
func (l *lanes[T]) refuse() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
}

// stats returns what went through the lanes.
func (l *lanes[T]) stats() LaneStats {
	l.mu.RLock()
	defer l.mu.RUnlock()
	stats := l.counters.read()
	for _, lane := range l.byName {
		stats.Queued += lane.queued.Load()
	}
	return stats
}
