package api

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// callReads reads the calls of users that go on, for many at once: in each namespace, one read runs at a time, and the
// users who are asked for meanwhile share the next one. A user never joins a read that runs, so the result has all that
// was stored before the user was asked for. Its methods may be called concurrently.
type callReads struct {
	read func(ctx context.Context, namespace string, users []string) ([]lastseen.Call, error)

	mu    sync.Mutex
	waits map[string][]*callRead // by namespace: those who wait; there is an entry as long as a read runs
}

// callRead is what one caller asks for.
type callRead struct {
	user string
	call lastseen.Call
	err  error
	done chan struct{} // closed when there is a result
}

func newCallReads(
	read func(ctx context.Context, namespace string, users []string) ([]lastseen.Call, error),
) *callReads {
	return &callReads{read: read, waits: map[string][]*callRead{}}
}

// of returns the call of a user that goes on; an empty one for none.
func (r *callReads) of(ctx context.Context, p person) (lastseen.Call, error) {
	asked := &callRead{user: p.user, done: make(chan struct{})}
	r.mu.Lock()
	waiting, runs := r.waits[p.namespace]
	r.waits[p.namespace] = append(waiting, asked)
	r.mu.Unlock()
	if !runs {
		go r.work(p.namespace)
	}
	select {
	case <-asked.done:
		return asked.call, asked.err
	case <-ctx.Done():
		return lastseen.Call{}, ctx.Err()
	}
}

// work reads until nobody waits.
func (r *callReads) work(namespace string) {
	for {
		r.mu.Lock()
		waiting := r.waits[namespace]
		batch := waiting[:min(len(waiting), store.MaxCallBatch)]
		if len(batch) == 0 {
			delete(r.waits, namespace)
			r.mu.Unlock()
			return
		}
		r.waits[namespace] = waiting[len(batch):]
		r.mu.Unlock()
		r.complete(namespace, batch)
	}
}

// complete reads the calls of a batch, and gives each caller the result. A defect is an error of these callers alone.
func (r *callReads) complete(namespace string, batch []*callRead) {
	ctx, cancel := context.WithTimeout(context.Background(), rereadTimeout)
	defer cancel()
	users := make([]string, len(batch))
	for i, asked := range batch {
		users[i] = asked.user
	}
	calls, err := r.readSafely(ctx, namespace, users)
	for i, asked := range batch {
		if asked.err = err; err == nil {
			asked.call = calls[i]
		}
		close(asked.done)
	}
}

func (r *callReads) readSafely(
	ctx context.Context, namespace string, users []string,
) (calls []lastseen.Call, err error) {
	defer func() {
		if panicked := recover(); panicked != nil {
			err = fmt.Errorf("panic: %v\n%s", panicked, debug.Stack())
		}
	}()
	if calls, err = r.read(ctx, namespace, users); err == nil && len(calls) != len(users) {
		err = fmt.Errorf("the store returned %d calls for %d users", len(calls), len(users))
	}
	return calls, err
}
