package webhooks

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// leasePrefix begins the names of leases, which are those of webhooks.
const leasePrefix = "webhook-"

// runner delivers for one webhook while this server has the lease for it.
type runner struct {
	o       Options
	logger  *slog.Logger
	current atomic.Pointer[entry]
	slots   chan struct{} // one for each request that is open
	held    atomic.Int64  // users whose changes are held
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu       sync.Mutex
	holding  bool
	streams  map[string]*stream // by namespace, while holding
	gone     string             // the entry whose receiver is gone
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
		o: o, logger: o.Logger.With("webhook", w.Name), slots: make(chan struct{}, maxRequests), cancel: cancel,
		streams: map[string]*stream{},
	}
	r.use(w)
	r.running.Go(func() { r.run(ctx, leasePrefix+w.Name) })
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
func (r *runner) run(ctx context.Context, lease string) {
	var granted, list time.Time
	for ctx.Err() == nil {
		asked, next := time.Now(), lookEvery
		ok, err := r.lease(ctx, lease, leaseTime)
		switch {
		case ok:
			granted = asked
		case err == nil:
			granted = time.Time{}
		default:
			next = renewRetry
		}
		switch now := time.Now(); {
		case !r.setHolding(now.Before(granted.Add(holdTime))):
			r.stop(func(*stream) bool { return true })
			list = time.Time{}
		case !now.Before(list):
			r.list(ctx, granted.Add(holdTime))
			list = now.Add(max(listEvery, time.Since(now)*listShare))
		}
		pause(ctx, next)
	}
	r.stop(func(*stream) bool { return true })
	if r.setHolding(false); time.Since(granted) < leaseTime { // so that the next server does not have to wait
		_, _ = r.lease(context.WithoutCancel(ctx), lease, time.Millisecond)
	}
}

func (r *runner) lease(ctx context.Context, name string, ttl time.Duration) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, renewTimeout)
	defer cancel()
	return r.o.Store.Lease(ctx, name, ttl)
}

// setHolding notes whether this server delivers, and returns whether there is anything to deliver to.
func (r *runner) setHolding(holding bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.holding = holding
	return holding && !r.disabled()
}

// disabled reports whether the receiver said that it is gone. The caller holds the lock.
func (r *runner) disabled() bool { return r.gone != "" && r.gone == r.current.Load().Entry }

// disable ends delivering until the entry changes. It returns false if the entry of the request has changed already.
func (r *runner) disable(e *entry) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.Entry != r.current.Load().Entry {
		return false
	}
	if !r.disabled() { // several requests can be open
		r.gone = e.Entry
		r.logger.Error("the receiver answered 410: the webhook is disabled until its entry changes, or another " +
			"server takes over")
	}
	return true
}

// list has the namespaces delivered that exist now. If the store does not say which by a time, those before are.
func (r *runner) list(ctx context.Context, until time.Time) {
	inTime, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	w, most := r.current.Load(), r.o.MaxNamespaces()
	var wanted []string
	for after := ""; ; {
		page, err := r.o.Store.Namespaces(inTime, after, listPage)
		if err != nil {
			return
		}
		for _, n := range page {
			if w.Namespaces(n.Name) {
				wanted = append(wanted, n.Name)
			}
		}
		if len(page) < listPage {
			break
		}
		after = page[len(page)-1].Name
	}
	if len(wanted) > most {
		r.warn("the webhook matches too many namespaces; those with the last names are left out",
			"namespaces", len(wanted), "limit", most)
		wanted = wanted[:most]
	}
	r.follow(ctx, wanted)
}

// follow has exactly these namespaces delivered, each in a stream of its own. One that was deleted is followed for
// another minute, to report that everybody is gone.
func (r *runner) follow(ctx context.Context, wanted []string) {
	now := time.Now()
	r.stop(func(s *stream) bool {
		if _, ok := slices.BinarySearch(wanted, s.namespace); ok {
			s.listed = now
		}
		select {
		case <-s.ended: // the receiver was gone
			return true
		default:
		}
		return now.Sub(s.listed) >= endAfter || !r.current.Load().Namespaces(s.namespace)
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, namespace := range wanted {
		if r.streams[namespace] == nil {
			s := newStream(r, namespace, now)
			r.streams[namespace] = s
			ctx, cancel := context.WithCancel(ctx)
			s.cancel = cancel
			go s.run(ctx)
		}
	}
}

// stop ends streams, and waits for them.
func (r *runner) stop(ends func(*stream) bool) {
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
