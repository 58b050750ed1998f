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

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore/redisclient"
	"github.com/lastseen/lastseen/store/redisstore/replica"
)

// ErrTooOld is [redisclient.ErrTooOld].
var ErrTooOld = redisclient.ErrTooOld

// Redact is [redisclient.Redact].
func Redact(rawURL string) string { return redisclient.Redact(rawURL) }

// sampleEvery is how often servers and namespaces are checked again.
const sampleEvery = redisclient.ReadClockEvery

// The bounds of [Options.MaxLag].
const (
	MinLag = 100 * time.Millisecond
	MaxLag = time.Minute
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

	// See [redisclient.Options]. Timeout bounds a batch of pings or lookups; default 250 ms. Other operations
	// take at most twice as long. Wait is for pings, leaves, deletions, availabilities, contacts and changes of calls.
	Timeout      time.Duration
	DialTimeout  time.Duration // default 200 ms
	PoolSize     int
	MinIdleConns int
	MaxRetries   int // default 1
	Wait         int

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
	*signals

	client        *redisclient.Client
	keys          keyspace
	holder        string // identifies this process, in leases and feeds
	maxNamespaces int    // 0 for no limit
	replicas      *replica.Set
	gap           func(namespace string, gap time.Duration) // nil for none

	sides        knownSides
	metaCache    metaCache
	feedRights   atomic.Int32  // whether this server may use feeds
	contactWalks sync.Map      // name → contactWalk, of those that are not at their beginning, as after a start
	manyContacts chan struct{} // holds an element for each large change of contacts in progress
	monitoring   sync.Mutex    // while monitor runs
	replaced     atomic.Int64  // times that Redis replaced since that was last logged
}

type signals = redisclient.Signals

var _ store.Store = (*Store)(nil)

// Open returns a store on the Redis at the given URL. It does not wait for Redis: until Redis responds, calls fail with
// [store.ErrUnavailable]. An error means that the options are invalid.
func Open(o Options) (*Store, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	client, err := redisclient.Open(o.client())
	if err != nil {
		return nil, err
	}
	s := &Store{
		client: client, keys: o.keyspace(), holder: rand.Text(), maxNamespaces: o.MaxNamespaces,
		gap: o.Gap, replicas: &replica.Set{}, manyContacts: make(chan struct{}, maxManyContacts),
	}
	s.signals = redisclient.NewSignals(client, o.Prefix, s.holder)
	if strings.ContainsAny(o.Prefix, "{}") {
		client.Log.Error("there are no changes feeds, devices, availability and contacts: redis-prefix contains braces",
			"redis-prefix", o.Prefix)
	}
	client.Every(sampleEvery, s.monitor)
	client.Every(sampleEvery, s.metaCache.expire())
	client.Every(time.Minute, s.confirmNames)
	client.Every(redisclient.ClockEvery, client.Clock.Refresh)
	if o.MaxLag > 0 {
		s.replicas = replica.Open(client, s, replica.Options{
			MaxLag: o.MaxLag, HeartbeatKey: s.keys.heartbeat(s.holder), Client: o.client(), Observe: o.ObserveReplica,
		})
	}
	return s, nil
}

// Validate returns the error that [Open] would return for the options. It neither connects nor logs.
func (o Options) Validate() error {
	o, err := o.withDefaults()
	if err != nil {
		return err
	}
	return o.client().Validate()
}

func (o Options) keyspace() keyspace {
	return keyspace{prefix: o.Prefix, shards: o.Shards, unit: o.Unit, layouts: maps.Clone(o.Layouts)}
}

// client returns the options of the client.
func (o Options) client() redisclient.Options {
	keys := o.keyspace()
	return redisclient.Options{
		URL: o.URL, ProbeKey: keys.probe(), ClockKey: keys.registry(),
		Timeout: o.Timeout, DialTimeout: o.DialTimeout, PoolSize: o.PoolSize, MinIdleConns: o.MinIdleConns,
		MaxRetries: o.MaxRetries, Wait: o.Wait,
		Now: o.Now, Monotonic: o.Monotonic, Logger: o.Logger, Instrument: o.Instrument,
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
	if o.Wait < 0 || o.Wait > redisclient.MaxWait {
		return o, fmt.Errorf("%d is not a number of replicas to wait for: use 0 to %d", o.Wait, redisclient.MaxWait)
	}
	return o, cmp.Or(o.checkLag(), o.checkLayouts())
}

// checkLag returns an error if replicas cannot be read from.
func (o Options) checkLag() error {
	if o.MaxLag == 0 {
		return nil
	}
	if o.MaxLag < MinLag || o.MaxLag > MaxLag {
		return fmt.Errorf("%s is not a lag of replicas: use %s to %s",
			o.MaxLag, MinLag, MaxLag)
	}
	if redisclient.IsCluster(o.URL) {
		return errors.New("the replicas of a Cluster cannot be read from: set redis-read-from to primary, " +
			"or use redis:// or redis+sentinel://")
	}
	return nil
}

// Client returns the client of this store.
func (s *Store) Client() *redisclient.Client { return s.client }

// Replicas returns the replicas that are read from.
func (s *Store) Replicas() *replica.Set { return s.replicas }

var _ store.ReplicaReader = (*Store)(nil)

// FromReplica implements [store.ReplicaReader]. All calls of the result use the same replica.
func (s *Store) FromReplica(primary store.Store, namespace string) (store.ReplicaReads, bool) {
	return s.replicas.From(primary, namespace)
}

// Load implements [store.Store]. It is 0: this store queues nothing. Package coalesce measures the load of Redis.
func (*Store) Load() float64 { return 0 }

// Now implements [store.Store].
func (s *Store) Now(ctx context.Context) (lastseen.Instant, error) {
	if s.client.Closed() {
		return 0, store.ErrClosed
	}
	return s.client.Clock.Read(ctx)
}

// ClockStats returns statistics of Redis' clock since Open.
func (s *Store) ClockStats() redisclient.ClockStats { return s.client.Clock.Stats() }

// Close stops the clock and closes the connections. No accepted write is lost: every call waits for Redis' reply.
func (s *Store) Close() error { return errors.Join(s.client.Close(), s.replicas.Close()) }
