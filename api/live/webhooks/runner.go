package webhooks

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lastseen/lastseen/store"
)

// runner delivers for one webhook while this server has the lease for it.
type runner struct {
	o       Options
	logger  *slog.Logger
	name    string // of the webhook
	current atomic.Pointer[entry]
	slots   chan struct{} // one for each request that is open
	held    atomic.Int64  // users whose changes are held
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu       sync.Mutex
	holding  bool
	streams  map[string]*stream // by namespace, while holding
	noted    noted              // the webhook's own note, as it was read or written last
	version  string             // of that; "" before it was read
	known    bool               // there was one when this server began to deliver, or places are kept by now
	recent   recent             // what is noted next
	nextNote time.Time          // when it is written again; without the lease, when it is read
	nextWarn time.Time          // when dropped events are logged again
}

// entry is a webhook of the configuration, and its client.
type entry struct {
	*Webhook
	*client
}

func newRunner(ctx context.Context, o Options, w *Webhook) *runner {
	ctx, cancel := context.WithCancel(ctx)
	r := &runner{
		o: o, logger: o.Logger.With("webhook", w.Name), name: w.Name,
		slots: make(chan struct{}, maxRequests), cancel: cancel, streams: map[string]*stream{},
	}
	r.use(w)
	r.running.Go(func() { r.run(ctx) })
	return r
}

// use has the next requests sent by other settings, if they changed.
func (r *runner) use(w *Webhook) {
	old := r.current.Load()
	if old != nil && old.Webhook == w {
		return
	}
	r.current.Store(&entry{w, newClient(r.o.Transport(w))})
	if old != nil {
		old.CloseIdleConnections()
	}
}

// end stops delivering.
func (r *runner) end() {
	r.cancel()
	r.running.Wait()
	r.current.Load().CloseIdleConnections()
}

// run renews the lease, and delivers while it is held, until the context ends.
func (r *runner) run(ctx context.Context) {
	var granted, list time.Time
	for ctx.Err() == nil {
		asked, next := time.Now(), lookEvery
		ok, err := r.lease(ctx)
		switch {
		case ok:
			granted = asked
		case err == nil:
			granted = time.Time{}
		default:
			next = renewRetry
		}
		until := granted.Add(holdTime)
		switch now := time.Now(); {
		case !r.setHolding(ctx, until):
			r.stop(ctx, func(*stream) bool { return true })
			list = time.Time{}
		case !now.Before(list):
			r.list(ctx, until, list.IsZero())
			list = now.Add(max(listEvery, time.Since(now)*listShare))
		}
		store.Pause(ctx, next)
	}
	r.stop(ctx, func(*stream) bool { return true })
	if r.setHolding(ctx, time.Time{}); time.Since(granted) < leaseTime { // so that the next server need not wait
		store.Release(ctx, r.o.Store, notePrefix+r.name)
	}
}

func (r *runner) lease(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, renewTimeout)
	defer cancel()
	return r.o.Store.Lease(ctx, notePrefix+r.name, leaseTime)
}

// setHolding notes whether this server delivers until a time, and returns whether there is anything to deliver to.
func (r *runner) setHolding(ctx context.Context, until time.Time) bool {
	ctx, cancel := context.WithTimeout(ctx, renewTimeout)
	defer cancel()
	holding := time.Now().Before(until) && r.keepNote(ctx)
	r.mu.Lock()
	r.holding = holding
	if !holding {
		r.version, r.known = "", false
	}
	delivers := holding && !r.disabled()
	r.mu.Unlock()
	if !holding {
		r.compare(ctx)
	}
	return delivers
}

// disabled reports whether the receiver said that it is gone. The caller holds the lock.
func (r *runner) disabled() bool { return r.noted.Gone != "" && r.noted.Gone == r.current.Load().Entry }

// disable ends delivering until the entry changes, or somebody enables the webhook. It returns false if the entry of
// the request has changed already.
func (r *runner) disable(e *entry) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.Entry != r.current.Load().Entry {
		return false
	}
	if !r.disabled() { // several requests can be open
		r.noted.Gone, r.nextNote = e.Entry, time.Time{}
		r.logger.Error("the receiver answered 410: the webhook is disabled until its entry changes, or until it is " +
			"enabled")
	}
	return true
}

// list has the namespaces delivered that exist now. If the store does not say which by a time, those before are. The
// first time, those of which a place is kept are as well, since they may have been deleted meanwhile.
func (r *runner) list(ctx context.Context, until time.Time, first bool) {
	inTime, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	wanted, err := r.wanted(inTime)
	if err == nil && first {
		wanted, err = r.addKept(inTime, wanted)
	}
	if err != nil {
		return
	}
	if most := r.o.MaxNamespaces(); len(wanted) > most {
		r.warn("the webhook matches too many namespaces; those with the last names are left out",
			"namespaces", len(wanted), "limit", most)
		wanted = wanted[:most]
	}
	r.follow(ctx, wanted)
}

// wanted returns the namespaces to deliver that exist, in order.
func (r *runner) wanted(ctx context.Context) (all []string, err error) {
	w := r.current.Load()
	for after := ""; ; {
		page, err := r.o.Store.Namespaces(ctx, after, listPage)
		if err != nil {
			return nil, err
		}
		for _, n := range page {
			if w.Namespaces(n.Name) {
				all = append(all, n.Name)
			}
		}
		if len(page) < listPage {
			return all, nil
		}
		after = page[len(page)-1].Name
	}
}

// addKept adds the namespaces of which a place is kept. What is kept of others is deleted.
func (r *runner) addKept(ctx context.Context, wanted []string) ([]string, error) {
	kept, err := r.o.Store.Notes(ctx, notePrefix+r.name)
	if err != nil {
		return nil, err
	}
	for _, namespace := range kept {
		if namespace == ownNote {
			continue
		}
		if r.current.Load().Namespaces(namespace) {
			wanted = append(wanted, namespace)
		} else if s := newStream(r, namespace, false, time.Time{}); s.load(ctx) == nil {
			s.forget(ctx)
		}
	}
	slices.Sort(wanted)
	return slices.Compact(wanted), nil
}

// follow has exactly these namespaces delivered, each in a stream of its own. One that was deleted is followed for
// another minute, to report that everybody is gone.
func (r *runner) follow(ctx context.Context, wanted []string) {
	now := time.Now()
	r.stop(ctx, func(s *stream) bool {
		if _, ok := slices.BinarySearch(wanted, s.namespace); ok {
			s.listed = now
		}
		select {
		case <-s.ended: // the receiver was gone
			return true
		default:
		}
		s.forgets = now.Sub(s.listed) >= endAfter || !r.current.Load().Namespaces(s.namespace)
		return s.forgets
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, namespace := range wanted {
		if r.streams[namespace] == nil {
			s := newStream(r, namespace, !r.known, now)
			r.streams[namespace] = s
			ctx, cancel := context.WithCancel(ctx)
			s.cancel = cancel
			go s.run(ctx)
		}
	}
	r.known = true
}

// stop ends streams, and waits for them.
func (r *runner) stop(ctx context.Context, ends func(*stream) bool) {
	var ended []*stream
	r.mu.Lock()
	for namespace, s := range r.streams {
		if ends(s) {
			s.cancel()
			delete(r.streams, namespace)
			ended = append(ended, s)
		}
	}
	r.mu.Unlock()
	for _, s := range ended { // without the lock, which they use
		<-s.ended
	}
	for _, s := range ended {
		if s.forgets {
			s.forget(ctx)
		}
	}
}

func (r *runner) stats() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := Stats{
		Webhook: r.current.Load().Name, Holding: r.holding, Disabled: r.disabled(), Namespaces: len(r.streams),
	}
	for _, stream := range r.streams {
		if since := stream.failing.Load(); since != nil {
			s.Behind = max(s.Behind, time.Since(*since))
		}
	}
	return s
}

// warn logs a warning, at most once a minute: a receiver can refuse each event.
func (r *runner) warn(message string, args ...any) {
	r.mu.Lock()
	now := time.Now()
	due := !now.Before(r.nextWarn)
	if due {
		r.nextWarn = now.Add(time.Minute)
	}
	r.mu.Unlock()
	if due {
		r.logger.Warn(message, args...)
	}
}
