// Package coalesce wraps a store so that calls which come at the same time reach it together. A store
// over a network then answers many pings for the price of few.
//
// While one batch is on its way to the store, arriving pings queue; when it returns, what has queued
// becomes the next batch. No timer is involved: with nothing on its way a call is sent at once. There
// is one such lane for each server behind the store (see [store.Batcher]), so that one which hangs
// does not hold up the others. Lookups have lanes of their own and never join a batch already sent:
// they see every write answered before they were made.
//
// # Promises
//
//   - A call is answered after the store has answered it, and as the store has.
//   - No call takes longer than twice [Options.Timeout], however much waits before it. A call that waited for
//     three quarters of that is not sent. When a batch times out, all calls that wait behind it fail with it.
//     Both fail with [store.ErrUnavailable].
//   - A batch is bounded in time by [Options.Timeout], never by a caller's context. A caller whose
//     context ends while the call waits in the queue is left out of the batch; one whose call is on its
//     way gets the context's error, and the call may have been done.
//   - The members of a batch are taken from the namespaces in turn, at most [Options.GroupSize] of each
//     at a time: one that is loaded with millions does not hold up the others.
//   - An error befalls those whom the store says it befell: a key of the wrong type only the callers of
//     its namespace, a lost connection the whole batch.
//   - The queue is bounded. When it is full, calls fail at once with [store.ErrOverloaded], and nothing
//     of them was done. Calls about more than [Options.GroupSize] users leave a quarter of it to others.
//   - Close refuses new calls, sends what is queued, and then closes the store.
//
// All else goes straight to the store. Writes commute (see package store), so it does not matter that a
// leave may overtake a ping that is not answered yet. What was answered is in the store: nothing that is
// asked of it afterwards, to forget a user included, is undone by what waits here.
package coalesce

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// Options bounds batches and queues. The zero value of a field means its default.
type Options struct {
	Timeout   time.Duration // of one batch; default 5 s
	BatchSize int           // members of one batch, at most; default 4,096
	GroupSize int           // members of one namespace in a batch before others have their turn; default 512
	QueueSize int           // members that wait in one lane, at most; default 262,144

	Now func() time.Time // default time.Now
}

// patience is how long a call waits in the queue at most. Half a timeout is left for its batch.
func (o Options) patience() time.Duration { return o.Timeout + o.Timeout/2 }

func (o Options) withDefaults() Options {
	o.Timeout = cmp.Or(o.Timeout, 5*time.Second)
	o.BatchSize = cmp.Or(o.BatchSize, 4096)
	o.GroupSize = min(cmp.Or(o.GroupSize, 512), o.BatchSize)
	o.QueueSize = cmp.Or(o.QueueSize, 1<<18)
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

// Store is a [store.Store] that sends what comes at the same time together.
type Store struct {
	store.Store
	pings   *lanes[store.Sighting]
	lookups *lanes[string]
	closing sync.Once
	err     error // of closing the store
}

var _ store.Store = (*Store)(nil)

// New returns a store that merges the calls to s. Closing it closes s.
func New(s store.Store, o Options) *Store {
	o = o.withDefaults()
	pings := newLanes(o, each(s.Ping), func(sighting store.Sighting) string { return sighting.User })
	pings.settle = settle
	lookups := newLanes(o, each(s.Lookup), func(user string) string { return user })
	if g, ok := s.(store.Batcher); ok {
		pings.send, lookups.send = g.PingBatches, g.LookupBatches
		pings.nodeOf, lookups.nodeOf = g.NodeOf, g.NodeOf
	}
	return &Store{Store: s, pings: pings, lookups: lookups}
}

// each sends groups one by one, to a store that knows no groups.
func each[T any](
	call func(context.Context, string, []T) ([]lastseen.State, error),
) func(context.Context, []*store.Batch[T]) {
	return func(ctx context.Context, groups []*store.Batch[T]) {
		for _, g := range groups {
			g.States, g.Err = call(ctx, g.Namespace, g.Items)
		}
	}
}

// Ping implements [store.Store].
func (s *Store) Ping(ctx context.Context, namespace string, batch []store.Sighting) ([]lastseen.State, error) {
	return s.pings.do(ctx, namespace, batch)
}

// Lookup implements [store.Store].
func (s *Store) Lookup(ctx context.Context, namespace string, users []string) ([]lastseen.State, error) {
	return s.lookups.do(ctx, namespace, users)
}

// Close implements [store.Store].
func (s *Store) Close() error {
	s.closing.Do(func() {
		s.pings.refuse()
		s.lookups.refuse()
		s.pings.running.Wait()
		s.lookups.running.Wait()
		s.err = s.Store.Close()
	})
	return s.err
}

// settle gives everyone who is named more than once the greatest of their states: a store may do groups in
// another order than they were given, when it has to send some of them again.
func settle(batch []store.Sighting, states []lastseen.State) {
	final := make(map[string]lastseen.State, len(batch))
	for i, sighting := range batch {
		final[sighting.User] = lastseen.Merge(final[sighting.User], states[i])
	}
	for i, sighting := range batch {
		states[i] = final[sighting.User]
	}
}

// Stats tells what has gone through the lanes, and what waits in them.
type Stats struct {
	Pings, Lookups LaneStats
}

// Stats returns what has gone through the lanes so far.
func (s *Store) Stats() Stats {
	return Stats{Pings: s.pings.stats(), Lookups: s.lookups.stats()}
}
