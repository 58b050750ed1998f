// Package coalesce wraps a store and sends concurrent calls to it together, so that one round trip serves many pings.
//
// While a batch is in progress, arriving calls queue; when it returns, the queued calls become the next batch. No timer
// is involved: a call that finds nothing in progress is sent at once. Each server behind the store has a queue of its
// own (a node, see NodeOf of [store.Batcher]), so one that hangs does not hold up the others. Lookups have separate
// queues and never join a batch that was already sent: they see every write that returned before them. Events of
// devices have their own queues, too.
//
// # Promises
//
//   - A call returns after the store has completed it, with the store's result.
//   - No call takes longer than twice [Options.Timeout], however many wait before it. A call that waited for three
//     quarters of that is not sent. When a batch times out, all calls behind it fail with it. Both errors match
//     [store.ErrUnavailable].
//   - A batch is bounded in time by [Options.Timeout], not by the contexts of its callers. When a caller's context
//     ends, the caller gets its error; a call that is still queued is not sent, one that was sent may have been done.
//   - A batch takes calls from the namespaces in turn, at most [Options.NamespaceSize] members each: a namespace that
//     imports millions of users does not hold up the others.
//   - Errors have the scope the store reports: a key of the wrong type fails the calls of its namespace, a lost
//     connection the whole batch.
//   - Queues are bounded. A call that does not fit fails at once with [store.ErrOverloaded], and no part of it is done.
//     Calls about more than [Options.NamespaceSize] users leave a quarter of the queue to others.
//   - Close rejects new calls, sends the queued ones, and then closes the store.
//
// All other methods go straight to the store. Writes commute (see package store), so a leave may overtake a ping that
// has not returned yet. Everything that returned is in the store, so a later Forget is not undone by a queued call.
package coalesce

import (
	"cmp"
	"context"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// Options bounds batches and queues. The zero value of a field means its default.
type Options struct {
	Timeout       time.Duration // of one batch; default 5 s
	BatchSize     int           // most members of one batch; default 4,096
	NamespaceSize int           // most members of one namespace in a batch before its next turn; default 512
	QueueSize     int           // most members in the queue of one node; default 262,144

	// Observe, if set, is called once for each batch just before it is sent, from many goroutines at once: with its
	// kind, the number of its members, and how long the first of its calls waited in the queue.
	Observe func(kind string, members int, wait time.Duration)

	// Trace, if set, is called before each batch with its kind and the contexts of the calls in it. It returns the
	// context of the batch, derived from ctx, and a function that is called with the batch's error when it is done.
	Trace func(ctx context.Context, kind string, calls []context.Context) (context.Context, func(err error))

	Now func() time.Time // default time.Now
}

// The kinds of batches.
const (
	Pings   = "ping"
	Lookups = "lookup"
	Devices = "device"
)

// maxWait is how long a call may wait in a queue. It leaves half a timeout for the batch.
func (o Options) maxWait() time.Duration { return o.Timeout + o.Timeout/2 }

func (o Options) withDefaults() Options {
	o.Timeout = cmp.Or(o.Timeout, 5*time.Second)
	o.BatchSize = cmp.Or(o.BatchSize, 4096)
	o.NamespaceSize = min(cmp.Or(o.NamespaceSize, 512), o.BatchSize)
	o.QueueSize = cmp.Or(o.QueueSize, 1<<18)
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

// Store is a [store.Store] that sends concurrent calls together.
type Store struct {
	store.Store
	pings   *coalescer[store.PresenceEvent]
	lookups *coalescer[string]
	devices *coalescer[deviceItem]
}

var _ store.Store = (*Store)(nil)

// New returns a store that batches the calls to s. Closing it closes s.
func New(s store.Batcher, o Options) *Store {
	o = o.withDefaults()
	pings := newCoalescer(Pings, o, s.PingBatches, s.NodeOf, func(s store.PresenceEvent) string { return s.User })
	pings.merge = lastseen.Merge // a store that retries may finish batches in another order than they were sent
	lookups := newCoalescer(Lookups, o, s.LookupBatches, s.NodeOf, func(user string) string { return user })
	devices := newCoalescer(Devices, o, func(ctx context.Context, batches []*store.Batch[deviceItem]) {
		recordBatches(ctx, s, batches)
	}, s.NodeOf, func(i deviceItem) string { return i.User })
	// A node takes the parts of a call in order.
	devices.merge = func(_, last lastseen.State) lastseen.State { return last }
	return &Store{Store: s, pings: pings, lookups: lookups, devices: devices}
}

// Unwrap returns the store that the batches are sent to; see [store.As].
func (s *Store) Unwrap() store.Store { return s.Store }

// Ping implements [store.Store].
func (s *Store) Ping(ctx context.Context, namespace string, batch []store.PresenceEvent) ([]lastseen.State, error) {
	r, err := s.pings.do(ctx, namespace, batch)
	return r.states, err
}

// Describe implements [store.Store]. It joins lookups, which have the details of users who have some.
func (s *Store) Describe(
	ctx context.Context, namespace string, users []string,
) ([]lastseen.State, map[string]store.Details, error) {
	r, err := s.lookups.do(ctx, namespace, users)
	return r.states, r.details, err
}

// Close implements [store.Store].
func (s *Store) Close() error {
	s.pings.close()
	s.lookups.close()
	s.devices.close()
	s.pings.running.Wait()
	s.lookups.running.Wait()
	s.devices.running.Wait()
	return s.Store.Close()
}

// Stats describes the queues.
type Stats struct {
	Pings, Lookups, Devices CallStats
}

// Stats returns the statistics since New.
func (s *Store) Stats() Stats {
	return Stats{Pings: s.pings.stats(), Lookups: s.lookups.stats(), Devices: s.devices.stats()}
}

// CallStats describes the queues of one kind of call.
type CallStats struct {
	Queued  int64 // members in queues now
	Refused int64 // members refused because a queue was full
}

func (c *coalescer[T]) stats() CallStats {
	stats := CallStats{Refused: c.refused.Load()}
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, n := range c.nodes {
		stats.Queued += n.queued.Load()
	}
	return stats
}
