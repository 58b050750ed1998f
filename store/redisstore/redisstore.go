// Package redisstore keeps presence in Redis sorted sets, so that any number of servers can share
// it. A namespace is one sorted set, or N of them (shards): member is the user ID, score the
// last-seen time.
//
// Every operation is one command or one script a shard, so each is atomic for each user; lists and
// counts that span several shards ask them in one round trip, not at one moment. Nothing is kept in this process but
// the connection pool, the offset of Redis' clock, and which namespaces were already checked.
//
// Where things are: url.go and client.go know how to get at one Redis, at Sentinels and at a Cluster;
// inspect.go and ready.go what to expect of the servers there; encoding.go alone knows how a state is a
// score; shard.go how users spread over keys; paging.go how a place in a list is found again; registry.go
// which namespaces exist; the .lua files what runs inside Redis, each on one key.
package redisstore

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/clock"
)

// The bounds of [Options.Shards].
const (
	MinShards = 1
	MaxShards = 64
)

// Options says which Redis to use, and how. The zero value of a field means its default.
type Options struct {
	URL    string // of one Redis, of Sentinels or of a Cluster: see docs/decisions/redis-topologies.md
	Prefix string // begins every key; default "presence:"
	Shards int    // sorted sets a namespace is spread over, 1 to 64; default 1
	Unit   Unit   // of scores; default Milliseconds

	Layouts map[string]Layout // of namespaces that are stored otherwise than the fields above say

	// MaxNamespaces limits the namespaces that exist; default 0, no limit. Register is exempt. When a namespace
	// is removed while another server writes to it, there may be one more than the limit.
	MaxNamespaces int

	Timeout      time.Duration // of one call, connecting and retrying included; default 250 ms
	DialTimeout  time.Duration // of one attempt to connect; default 200 ms
	PoolSize     int           // connections at most, to each Redis; default 10 a processor, 5 in a Cluster
	MinIdleConns int           // connections kept open when idle, to each Redis; default 0
	MaxRetries   int           // times a call is repeated after a network error; default 1, -1 for none

	Now       func() time.Time     // this machine's clock; default time.Now
	Monotonic func() time.Duration // time since some moment, whatever that clock does; default since Open
	Logger    *slog.Logger         // default slog.Default()
}

// Store is a [store.Store] on Redis.
type Store struct {
	client  redis.UniversalClient
	where   string // the URL, redacted
	keys    keyspace
	timeout time.Duration

	maxNamespaces int

	clock  *sampledClock
	logger *slog.Logger
	holder string // who this process is, for leases

	checked   sync.Map     // namespace → struct{}: its meta agreed at most sampleEvery ago, and it is registered
	agreed    sync.Map     // in a Cluster: namespace → the round in which its meta last agreed or was taken to
	rounds    atomic.Int64 // of checking
	sightings sync.Map     // what was strange in which namespace, and logged
	servers   servers      // what was found out about them
	replaced  atomic.Int64 // times that Redis did not take since that was last logged
	closed    atomic.Bool
	stop      context.CancelFunc
	stopped   sync.WaitGroup
}

var _ store.Store = (*Store)(nil)

// Open returns a store on the Redis at the given URL. It does not wait for Redis: until it answers,
// calls fail with [store.ErrUnavailable]. An error means that the options are wrong.
func Open(o Options) (*Store, error) {
	o = o.withDefaults()
	if err := o.checkLayouts(); err != nil {
		return nil, err
	}
	client, err := newClient(o)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &Store{
		client:  client,
		where:   Redact(o.URL),
		keys:    keyspace{prefix: o.Prefix, shards: o.Shards, unit: o.Unit, layouts: maps.Clone(o.Layouts)},
		timeout: o.Timeout,

		maxNamespaces: o.MaxNamespaces,

		logger: o.Logger,
		holder: rand.Text(),
		stop:   cancel,
	}
	s.clock = &sampledClock{
		Clock: clock.New(clock.Options{Name: "Redis", Monotonic: o.Monotonic, Logger: o.Logger}),
		local: o.Now, sample: s.redisTime, logger: o.Logger,
	}
	s.servers.logger = o.Logger
	s.stopped.Go(func() { repeat(ctx, sampleEvery, s.watch, s.checkAgain) })
	s.stopped.Go(func() { repeat(ctx, lookEvery, s.clock.refresh, func() {}) })
	return s, nil
}

// watch looks after the servers.
func (s *Store) watch(ctx context.Context) {
	s.patrol(ctx)
	s.reportReplaced()
}

// repeat does some work at once and then at every interval, something else before each repetition, until
// the context ends.
func repeat(ctx context.Context, every time.Duration, work func(context.Context), before func()) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		work(ctx)
		select {
		case <-ticker.C:
			before()
		case <-ctx.Done():
			return
		}
	}
}

func (o Options) withDefaults() Options {
	o.Prefix = cmp.Or(o.Prefix, "presence:")
	o.Shards = cmp.Or(o.Shards, 1)
	o.Unit = cmp.Or(o.Unit, Milliseconds)
	o.Timeout = cmp.Or(o.Timeout, 250*time.Millisecond)
	o.DialTimeout = cmp.Or(o.DialTimeout, 200*time.Millisecond)
	o.MaxRetries = cmp.Or(o.MaxRetries, 1)
	o.Logger = cmp.Or(o.Logger, slog.Default())
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

// Close stops the clock and closes the connections. Nothing accepted is left undone: every call
// waits for Redis' answer.
func (s *Store) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	s.stop()
	s.stopped.Wait()
	return s.client.Close()
}

// alive returns an error when a call would be in vain.
func (s *Store) alive(ctx context.Context) error {
	if s.closed.Load() {
		return store.ErrClosed
	}
	if err := ctx.Err(); err != nil && errors.Is(context.Cause(ctx), errTimeout) {
		return fmt.Errorf("%w: %w", store.ErrUnavailable, errTimeout)
	}
	return ctx.Err()
}

// batch bounds in time a batch of writes or lookups, with all that belongs to it, as one call.
func (s *Store) batch(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, s.timeout, errTimeout)
}

// operation bounds in time what takes several calls to Redis, one after the other: together they take twice
// [Options.Timeout] at most.
func (s *Store) operation(ctx context.Context) (context.Context, context.CancelFunc, error) {
	if err := s.alive(ctx); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, 2*s.timeout, errTimeout)
	return ctx, cancel, nil
}

// begin bounds one call to Redis in time, and refuses it after Close, and while a server is too old. The
// first one inspects the servers.
func (s *Store) begin(ctx context.Context) (context.Context, context.CancelFunc, error) {
	if err := s.alive(ctx); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, s.timeout, errTimeout)
	if err := s.inspected(ctx); err != nil {
		cancel()
		return nil, nil, err
	}
	return ctx, cancel, nil
}
