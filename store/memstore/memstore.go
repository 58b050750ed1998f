// Package memstore keeps presence in memory: the tables of users, their devices, availability, contacts and calls, and
// the rules by which writes change them. With a [Journal], which keeps what writes change, it is the memory of a store
// that survives restarts: filestore is one.
package memstore

import (
	"cmp"
	"context"
	"crypto/rand"
	"log/slog"
	"time"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/clock"
)

// Options configures a store.
type Options struct {
	MaxNamespaces int // at which writes stop creating namespaces; 0 for no limit

	// Gap is called for one in 16 calls of Ping, if its first user was present before, with the time since that user's
	// previous ping; default nil. It must return quickly.
	Gap func(namespace string, gap time.Duration)

	Now       func() time.Time     // the machine's clock; default time.Now
	Monotonic func() time.Duration // time since some moment, unaffected by that clock; default since NewTables
	Logger    *slog.Logger         // default slog.Default()
}

// Store is a [store.Store] in memory.
type Store struct {
	tables      *Tables
	journal     Journal
	disconnects disconnects
	calls       calls
	signals     store.SignalHub
	notes       notes
	secret      [32]byte
}

var _ store.Store = (*Store)(nil)

// NewTables returns empty tables.
func NewTables(o Options) *Tables {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Monotonic == nil {
		began := time.Now()
		o.Monotonic = func() time.Duration { return time.Since(began) }
	}
	o.Logger = cmp.Or(o.Logger, slog.Default())
	x := &Tables{
		options: o, clock: clock.New(clock.Options{Name: "machine", Monotonic: o.Monotonic, Logger: o.Logger}),
	}
	x.index = index{none: newUsers(), feeds: newFeeds(x.readClock, o.Monotonic)}
	x.readClock()
	return x
}

// Store returns the store of the tables, which has to be the only one.
func (x *Tables) Store(j Journal) *Store {
	s := &Store{
		tables: x, journal: j,
		disconnects: disconnects{
			monotonic: x.options.Monotonic, epoch: newEpoch(), last: map[lastseen.UserKey]uint64{}, next: 1,
		},
		calls: calls{clock: x.readClock, monotonic: x.options.Monotonic},
		notes: notes{of: map[string]map[string]store.Note{}},
	}
	_, _ = rand.Read(s.secret[:]) // it never fails
	return s
}

// Close makes all calls fail with [store.ErrClosed], except those in progress. It returns nil.
func (s *Store) Close() error {
	s.tables.mu.Lock()
	s.tables.closed = true
	s.tables.mu.Unlock()
	s.expireFeeds()
	return nil
}

// Ready returns nil unless the store is closed.
func (s *Store) Ready(ctx context.Context) error { return s.read(ctx, func(*index) {}) }

// Secret implements [store.Store]. It is kept as long as the feeds are: until the process ends.
func (s *Store) Secret(ctx context.Context) (secret [32]byte, err error) {
	return s.secret, s.read(ctx, func(*index) {})
}

// Load implements [store.Store]. It is 0.
func (s *Store) Load() float64 { return 0 }

// Now implements [store.Store] with the machine's clock, which is read on demand, at most every few seconds.
func (s *Store) Now(context.Context) (now lastseen.Instant, err error) {
	err = s.read(context.Background(), func(*index) { now = s.tables.readClock() })
	return now, err
}

// ClockStats returns statistics of the machine's clock.
func (s *Store) ClockStats() clock.Stats { return s.tables.clock.Stats() }

// Signal implements [store.Store]. All listeners are in this process.
func (s *Store) Signal(ctx context.Context, signal store.Signal) error {
	if err := s.Ready(ctx); err != nil {
		return err
	}
	s.signals.Send(signal)
	return nil
}

// Listen implements [store.Store].
func (s *Store) Listen(ctx context.Context, receive func(store.Signal)) {
	l := s.signals.Join()
	defer s.signals.Leave(l)
	l.Lose() // what was sent before
	l.Run(ctx, receive)
}

// read runs f on the index, which does not change during the call.
func (s *Store) read(ctx context.Context, f func(*index)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.tables.mu.RLock()
	defer s.tables.mu.RUnlock()
	if s.tables.closed {
		return store.ErrClosed
	}
	f(&s.tables.index)
	return nil
}

// readIn runs f on a namespace, if it exists.
func (s *Store) readIn(ctx context.Context, name string, f func(*namespace)) error {
	return s.read(ctx, func(x *index) {
		if n, ok := x.namespaces.Get(name); ok {
			f(n)
		}
	})
}

// List implements [store.Store].
func (s *Store) List(ctx context.Context, name string, q store.ListQuery) (page []store.Record, err error) {
	var failed error
	err = s.readIn(ctx, name, func(n *namespace) { page, failed = n.list(q) })
	return page, cmp.Or(err, failed)
}

// Count implements [store.Store].
func (s *Store) Count(ctx context.Context, name string, ranges []lastseen.Range) ([]int64, error) {
	counts := make([]int64, len(ranges))
	err := s.readIn(ctx, name, func(n *namespace) {
		for i, r := range ranges {
			counts[i] = n.count(r)
		}
	})
	return counts, err
}

// Newest implements [store.Store].
func (s *Store) Newest(ctx context.Context, name string) (newest lastseen.Instant, err error) {
	err = s.readIn(ctx, name, func(n *namespace) { newest = n.newest() })
	return newest, err
}

// Namespaces implements [store.Store].
func (s *Store) Namespaces(ctx context.Context, after string, limit int) (infos []store.NamespaceInfo, err error) {
	err = s.read(ctx, func(x *index) {
		x.namespaces.Ascend(after, func(name string, n *namespace) bool {
			if name != after {
				infos = append(infos, store.NamespaceInfo{Name: name, Newest: n.newest()})
			}
			return len(infos) < limit
		})
	})
	return infos, err
}
