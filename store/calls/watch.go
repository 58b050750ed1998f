package calls

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/lastseen/lastseen/store"
)

const (
	leaseName  = "calls"
	leaseTime  = 6 * time.Second
	leaseRenew = 2 * time.Second

	visitEvery = store.MaxCallGap / 2   // each namespace, at least
	visitPause = 100 * time.Millisecond // between two visits of a namespace because of signals
	// shortestWait is the time between two visits of a namespace because of calls that are due. A visit ends all that
	// are.
	shortestWait = 20 * time.Millisecond
	idleSpread   = 5 * time.Millisecond // each namespace adds it to the time between visits of those without calls
	maxVisits    = 8                    // at the same time
	maxBatches   = 16                   // of calls that were ended, and are signalled at the same time
)

// watch ends calls whose time has passed, while this server has the lease. It asks for the lease only if there may be
// calls.
type watch struct {
	*Manager
	wake store.Waker

	list    time.Duration // when to list namespaces again
	asked   time.Duration // when the lease was last requested; 0 if it was not
	running sync.WaitGroup
	batches chan struct{}

	mu         sync.Mutex
	listed     bool          // the last list had namespaces
	expected   time.Duration // when calls were last reported to have begun; 0 for never
	held       time.Duration // until when this server has the lease; 0 if it does not
	namespaces map[string]*watched
	due        schedule[string]
	visits     int // that run
	calls      int // that go on
	warnings   warnings
}

// watched is what is known of a namespace.
type watched struct {
	calls   int           // that go on
	visited time.Duration // when the last visit ended
	visit   bool          // one runs
	again   bool          // calls may have begun since then
}

// expect has a namespace visited soon: a call may be due earlier than all others that are known.
func (w *watch) expect(namespace string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.monotonic()
	first := w.expected == 0
	w.expected = max(1, now)
	if w.held == 0 {
		if first && !w.listed {
			w.wake.Wake()
		}
		return
	}
	n := w.add(namespace)
	if n.visit {
		n.again = true
		return
	}
	w.due.advance(namespace, max(now, n.visited+visitPause))
	w.wake.Wake()
}

// add returns what is known of a namespace. The caller holds the mutex.
func (w *watch) add(namespace string) *watched {
	n := w.namespaces[namespace]
	if n == nil {
		n = &watched{}
		w.namespaces[namespace] = n
	}
	return n
}

// work renews the lease and begins the visits that are due. It returns the time until it has more to do.
func (w *watch) work(ctx context.Context) time.Duration {
	if w.monotonic() >= w.list {
		w.listNamespaces(ctx)
	}
	now := w.monotonic()
	if !w.wanted(now) {
		w.release(ctx)
		return w.list - now
	}
	if w.asked == 0 || now >= w.asked+leaseRenew {
		w.renew(ctx, now)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	now = w.monotonic()
	rest := min(w.asked+leaseRenew, w.list) - now
	for w.held != 0 && w.visits < maxVisits && ctx.Err() == nil {
		name, ok := w.due.pop(now)
		if !ok {
			return max(0, w.due.rest(now, rest))
		}
		w.begin(ctx, name)
	}
	return max(0, rest)
}

// wanted reports whether there may be calls.
func (w *watch) wanted(now time.Duration) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.expected != 0 && now >= w.expected+2*listEvery {
		w.expected = 0 // the list has what began
	}
	return w.listed || w.expected != 0
}

// begin visits a namespace. The caller holds the mutex.
func (w *watch) begin(ctx context.Context, name string) {
	n := w.add(name)
	n.visit, n.again = true, false
	w.visits++
	w.running.Go(func() {
		result, err := w.expire(ctx, name)
		w.end(ctx, name, result, err)
	})
}

// expire ends the calls of a namespace whose time has passed, and returns the last result. What follows takes longer.
func (w *watch) expire(ctx context.Context, name string) (store.ExpiredCalls, error) {
	for {
		result, err := w.store.ExpireCalls(ctx, name)
		if err != nil {
			return result, err
		}
		if len(result.Steps) > 0 {
			w.observe(ctx, result.Steps)
			w.batches <- struct{}{}
			w.running.Go(func() {
				defer func() { <-w.batches }()
				w.postprocessor.finish(ctx, name, result.Steps)
			})
		}
		if result.Next > 0 || len(result.Steps) == 0 || ctx.Err() != nil {
			return result, nil
		}
	}
}

// observe reports how late calls were ended, by the one that was due first.
func (w *watch) observe(ctx context.Context, steps []store.CallStep) {
	now, err := w.store.Now(ctx)
	if err != nil {
		return
	}
	first := now
	for _, step := range steps {
		first = min(first, step.Call.Over)
	}
	w.Late(now.Sub(first))
}

// end plans the next visit of a namespace.
func (w *watch) end(ctx context.Context, name string, result store.ExpiredCalls, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.visits--
	w.wake.Wake()
	n := w.namespaces[name]
	if n == nil {
		return // the lease was lost
	}
	w.report(ctx, name, err)
	now := w.monotonic()
	n.visit, n.visited = false, now
	if err == nil || !passes(err) { // otherwise those that went on do
		w.calls += result.Calls - n.calls
		n.calls = result.Calls
	}
	wait := visitEvery
	if many := time.Duration(len(w.namespaces)) * idleSpread; many > visitEvery {
		wait = many/2 + rand.N(many) // so that not all are visited at once
	}
	switch {
	case err != nil && passes(err):
		wait = retryAfter
	case err == nil && (n.calls > 0 || result.Next == 0):
		wait = max(shortestWait, min(result.Next, visitEvery))
	}
	if n.again {
		wait = min(wait, visitPause)
	}
	w.due.set(name, now+wait)
}

// report logs an error that passes. The caller holds the mutex.
func (w *watch) report(ctx context.Context, name string, err error) {
	if !passes(err) {
		err = nil
	}
	w.warn(ctx, &w.warnings, "cannot end calls whose time has passed; trying again", name, err)
}

// ongoing returns how many calls continue; false if another server knows that.
func (w *watch) ongoing() (watching bool, calls int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.held != 0, w.calls
}

// warningsPause is the shortest time between two warnings: while a part of a Cluster is away, some namespaces fail and
// others do not, many times a second.
const warningsPause = time.Minute

// warnings limits how often errors are logged. The zero value has logged nothing.
type warnings struct {
	failing bool // the last result was an error
	last    time.Duration
}

// warn takes the result of work in a namespace, and logs the first of a series of errors, unless another one was logged
// a short time ago.
func (k *Manager) warn(ctx context.Context, w *warnings, message, namespace string, err error) {
	if ctx.Err() != nil {
		return
	}
	now := k.monotonic()
	if err != nil && !w.failing && (w.last == 0 || now >= w.last+warningsPause) {
		w.last = max(1, now)
		k.logger.Warn(message, "namespace", namespace, "error", err)
	}
	w.failing = err != nil
}
