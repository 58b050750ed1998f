// Package redisstore keeps presence in Redis sorted sets, so that any number of servers can share it. A namespace is
// one sorted set, or several (shards): the member is the user ID, the score the last-seen time.
//
// Every operation is one command or one script per shard, so it is atomic for each user. Lists and counts that span
// several shards ask all of them in one round trip, but not at one moment. This process keeps only the connection pool,
// the offset of Redis' clock, the namespaces that it has checked, and which side keys their shards have.
package redisstore

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
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

// Options selects a Redis and sets how it is used. The zero value of a field means its default.
type Options struct {
	URL    string // of one Redis, of Sentinels or of a Cluster: see docs/decisions/redis-topologies.md
	Prefix string // begins every key; default "presence:"
	Shards int    // sorted sets per namespace, 1 to 64; default 1
	Unit   Unit   // of scores; default Milliseconds

	Layouts map[string]Layout // of namespaces that are stored differently from the fields above

	// MaxNamespaces limits the namespaces that exist; default 0, no limit. Register is exempt. When a namespace is
	// removed while another server writes to it, there may be one more than the limit.
	MaxNamespaces int

	// Timeout bounds a batch of pings, leaves or lookups, connecting and retrying included; default 250 ms. Other
	// operations take at most twice as long.
	Timeout      time.Duration
	DialTimeout  time.Duration // of one attempt to connect; default 200 ms
	PoolSize     int           // connections at most, to each Redis; default 10 per processor, 5 in a Cluster
	MinIdleConns int           // connections kept open when idle, to each Redis; default 0
	MaxRetries   int           // times a call is repeated after a network error; default 1, -1 for none

	// Wait is the number of replicas that must confirm pings, leaves, deletions, availabilities, contacts and steps of
	// calls within half of Timeout, 0 to MaxWait; default 0. Otherwise the call fails with [store.ErrUnavailable], and
	// its outcome is unknown.
	Wait int

	// MaxLag has Store be a [store.ReplicaReader] that reads from replicas which are at most this far behind, 100 ms to
	// a minute; default 0, never. A Cluster cannot have it.
	MaxLag time.Duration

	// ObserveReplica is called with the time of each read that a replica answered, or failed to answer, and its error;
	// default nil. The operation is lookup, count, newest, list or read_details. It must return quickly.
	ObserveReplica func(operation string, took time.Duration, err error)

	// Gap is called for one in 16 commands with pings, if their first user was present before, with the time since that
	// user's previous ping; default nil. It must return quickly.
	Gap func(namespace string, gap time.Duration)

	Now       func() time.Time     // this machine's clock; default time.Now
	Monotonic func() time.Duration // time since some moment, unaffected by that clock; default since Open
	Logger    *slog.Logger         // default slog.Default()

	// Instrument, if set, adds hooks to the client before it is used.
	Instrument func(redis.UniversalClient) error
}

// Store is a [store.Store] on Redis.
type Store struct {
	client  redis.UniversalClient
	guard   *guard // of the client
	url     string // redacted
	keys    keyspace
	timeout time.Duration

	maxNamespaces int
	gap           func(namespace string, gap time.Duration) // nil for none

	clock        *sampledClock
	log          onceLogger
	replicas     *replicas // nil to read from the primary alone
	holder       string    // identifies this process in leases
	agreements   agreements
	sides        knownSides
	evicts       atomic.Bool           // a server may evict any key when its memory is full
	status       atomic.Pointer[error] // why every call is refused, if it is; nil until the first server was checked
	feedRights   atomic.Int32          // whether this server may use feeds
	monitoring   sync.Mutex            // while monitor runs
	signals      signaller
	walks        contactWalks
	manyContacts chan struct{} // holds an element for each large change of contacts in progress
	replaced     atomic.Int64  // times that Redis replaced by its own since that was last logged
	closed       atomic.Bool
	stop         context.CancelFunc
	stopped      sync.WaitGroup
}

var _ store.Store = (*Store)(nil)

// Open returns a store on the Redis at the given URL. It does not wait for Redis: until Redis responds, calls fail with
// [store.ErrUnavailable]. An error means that the options are invalid.
func Open(o Options) (*Store, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	g := newGuard(o)
	client, err := newClient(o, g)
	if err != nil {
		return nil, err
	}
	if o.Instrument != nil {
		if err := o.Instrument(client); err != nil {
			return nil, errors.Join(err, client.Close())
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &Store{
		client: client, guard: g, url: Redact(o.URL), timeout: o.Timeout, maxNamespaces: o.MaxNamespaces, gap: o.Gap,
		keys: keyspace{prefix: o.Prefix, shards: o.Shards, unit: o.Unit, layouts: maps.Clone(o.Layouts)},
		log:  onceLogger{Logger: o.Logger}, holder: rand.Text(), stop: cancel,
		manyContacts: make(chan struct{}, maxManyContacts),
	}
	a, _ := parseAddress(o.URL) // newClient has parsed it, too
	s.signals.channel, s.signals.checkEvery = s.keys.signalChannel(a.database), signalCheckEvery
	s.clock = &sampledClock{
		Clock: clock.New(clock.Options{Name: "Redis", Monotonic: o.Monotonic, Logger: o.Logger}),
		local: o.Now, sample: s.redisTime, log: &s.log,
	}
	s.replicas = newReplicas(s, o)
	if strings.ContainsAny(o.Prefix, "{}") {
		s.log.Error("there are no changes feeds, devices, availability and contacts: redis-prefix contains braces",
			"redis-prefix", o.Prefix)
	}
	s.stopped.Go(func() { repeat(ctx, sampleEvery, s.monitor, s.agreements.nextRound) })
	s.stopped.Go(func() { repeat(ctx, time.Minute, s.confirmNames, func() {}) })
	s.stopped.Go(func() { repeat(ctx, lookEvery, s.clock.refresh, func() {}) })
	s.replicas.run(ctx)
	return s, nil
}

// Validate returns the error that [Open] would return for the options. It neither connects nor logs.
func (o Options) Validate() error {
	o, err := o.withDefaults()
	if err != nil {
		return err
	}
	o.Logger = slog.New(slog.DiscardHandler)
	o.MinIdleConns = 0 // those are opened with the client
	client, err := newClient(o, newGuard(o))
	if err != nil {
		return err
	}
	return client.Close()
}

// repeat calls work at once and then at every interval, each time but the first after before, until the context ends.
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

func (o Options) withDefaults() (Options, error) {
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
	if o.Monotonic == nil {
		begun := time.Now()
		o.Monotonic = func() time.Duration { return time.Since(begun) }
	}
	if o.ObserveReplica == nil {
		o.ObserveReplica = func(string, time.Duration, error) {}
	}
	if o.Wait < 0 || o.Wait > MaxWait {
		return o, fmt.Errorf("%d is not a number of replicas to wait for: use 0 to %d", o.Wait, MaxWait)
	}
	return o, cmp.Or(o.checkLag(), o.checkLayouts())
}

// Load implements [store.Store]. It is 0: this store queues nothing. Package coalesce measures the load of Redis.
func (*Store) Load() float64 { return 0 }

// Close stops the clock and closes the connections. No accepted write is lost: every call waits for Redis' reply.
func (s *Store) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	s.stop()
	s.stopped.Wait()
	return errors.Join(s.replicas.close(), s.client.Close())
}

// begin starts an operation and bounds it in time, however many round trips it makes. It refuses operations after Close
// and while a server is too old. The first one checks the servers.
func (s *Store) begin(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc, error) {
	if s.closed.Load() {
		return nil, nil, store.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	if err := s.refusal(ctx); err != nil {
		cancel()
		return nil, nil, err
	}
	return ctx, cancel, nil
}

// open begins an operation on one namespace, after checking that this server can serve it.
func (s *Store) open(ctx context.Context, name string) (context.Context, context.CancelFunc, namespace, error) {
	ns := s.keys.namespace(name)
	ctx, cancel, err := s.begin(ctx, 2*s.timeout)
	if err != nil {
		return nil, nil, ns, err
	}
	c := &candidate{namespace: ns}
	if s.verify(ctx, []*candidate{c}); c.err != nil {
		cancel()
		return nil, nil, ns, c.err
	}
	return ctx, cancel, ns, nil
}
