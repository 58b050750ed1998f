package redisstore_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/storetest"
	"github.com/lastseen/lastseen/store/storetest/kit"
	"github.com/lastseen/lastseen/store/storetest/presence"
	"github.com/lastseen/lastseen/store/storetest/redistest"
	"github.com/lastseen/lastseen/store/storetest/servers"
)

func TestMain(m *testing.M) {
	logging.Disable() // the client's own log of servers that tests stop
	testenv.WaitInParallel()
	walks := 60
	if testenv.Race { // which takes ten times as long, and finds nothing in more of the same
		walks = 15
	}
	testenv.LimitWalks(walks)
	code := m.Run()
	if code == 0 {
		code = checkLeaks()
	}
	os.Exit(code)
}

// checkLeaks returns an exit code. It waits for goroutines of the client that sleep for a second between attempts to
// connect, even after the client is closed. A toxic can hang for ever when its connection ends: that is Toxiproxy's.
func checkLeaks() int {
	var err error
	for range 10 {
		err = goleak.Find(goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2/toxics.(*ToxicStub).Run"))
		if err == nil {
			return 0
		}
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// longTimeout is a timeout that no busy test machine exceeds.
const longTimeout = 30 * time.Second

// failoverTimeout is one for what waits for a failover: a Sentinel that got no processor time for two seconds does
// nothing for the next 30 (TILT mode: https://redis.io/docs/latest/operate/oss_and_stack/management/sentinel).
const failoverTimeout = 75 * time.Second

// discardLog returns a logger that writes nothing.
func discardLog() *slog.Logger { return slog.New(slog.DiscardHandler) }

// opener returns a constructor of empty stores, all on one Redis.
func opener(url string, shards int) kit.Open {
	servers := serversOn(url, shards)
	return func(t testing.TB) store.Store {
		_, open := servers(t)
		return open()
	}
}

// pairs returns a constructor of two stores with the same data, as two servers have them.
func pairs(url string, shards int) servers.OpenPair {
	servers := serversOn(url, shards)
	return func(t testing.TB) (one, two store.Store) {
		_, open := servers(t)
		return open(), open()
	}
}

// serversOn returns a function that returns an unused prefix, and a constructor of stores that have it. Users become
// invisible without waiting for other servers.
func serversOn(url string, shards int) func(testing.TB) (prefix string, open func() store.Store) {
	var n atomic.Int64
	return func(t testing.TB) (string, func() store.Store) {
		prefix := fmt.Sprintf("presence:%d-%d:", shards, n.Add(1))
		return prefix, func() store.Store {
			s, err := redisstore.Open(redisstore.Options{
				URL: url, Prefix: prefix, Shards: shards, Logger: discardLog(),
				Timeout: longTimeout, DialTimeout: longTimeout,
			})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, s.Close()) })
			return s
		}
	}
}

// TestConformance runs as a Redis user who has the rights in docs/operations.md, and no others.
func TestConformance(t *testing.T) {
	_, url, client := start(t)
	restrict(t, client)
	suite := storetest.Run
	if testenv.Race { // the rest is about what Redis does; the races of calls, feeds and details have tests here
		suite = storetest.RunCore
	}
	suite(t, opener(asApp(url), 1))
}

// TestConformanceInContainer tests a Redis as tests use it where there is no redis-server.
func TestConformanceInContainer(t *testing.T) {
	testenv.RequireFull(t)
	t.Parallel()
	storetest.RunCore(t, opener(redistest.StartContainer(t), 1))
}

// TestConformanceOfShards has an odd number of shards. A Cluster has 16 of them in TestOnCluster.
func TestConformanceOfShards(t *testing.T) {
	testenv.RequireFull(t)
	t.Parallel()
	storetest.RunCore(t, opener(redistest.Start(t), 7))
}

const base lastseen.Instant = 1_700_000_000_000

// newStore opens a store with the default prefix and a long timeout.
func newStore(t *testing.T, o redisstore.Options) *redisstore.Store {
	t.Helper()
	o.Logger = discardLog()
	if o.Timeout == 0 {
		o.Timeout, o.DialTimeout = longTimeout, longTimeout
	}
	s, err := redisstore.Open(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// newClient returns a client that sees what the store writes.
func newClient(t *testing.T, url string) *redis.Client {
	t.Helper()
	options, err := redis.ParseURL(url)
	require.NoError(t, err)
	options.DialTimeout, options.ReadTimeout, options.WriteTimeout = longTimeout, longTimeout, longTimeout
	client := redis.NewClient(options)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client
}

// start starts a Redis, and returns a client of it. The test runs in parallel with others.
func start(t *testing.T) (ctx context.Context, url string, client *redis.Client) {
	t.Helper()
	t.Parallel()
	url = redistest.Start(t)
	return context.Background(), url, newClient(t, url)
}

// startStore is start with a store on it.
func startStore(t *testing.T) (context.Context, *redis.Client, *redisstore.Store) {
	t.Helper()
	ctx, url, client := start(t)
	return ctx, client, newStore(t, redisstore.Options{URL: url})
}

func ping(s store.Store, namespace string, users ...string) error {
	batch := make([]store.Sighting, len(users))
	for i, user := range users {
		batch[i] = store.Sighting{User: user, At: base}
	}
	_, err := s.Ping(context.Background(), namespace, batch)
	return err
}

// trim deletes everyone in the namespace chat last seen longer ago than an age.
func trim(s store.Store, age time.Duration) (store.TrimResult, error) {
	now, err := s.Now(context.Background())
	if err != nil {
		return store.TrimResult{}, err
	}
	return s.Trim(context.Background(), "chat", store.TrimQuery{Age: age, Now: now, All: true})
}

func everyone() []lastseen.Range {
	return []lastseen.Range{
		{From: lastseen.MinInstant, To: lastseen.MaxInstant},
		{From: lastseen.MinInstant, To: lastseen.MaxInstant, Left: true},
	}
}

// calls is every method that asks about or changes the namespace chat, except those of devices, of contacts and of
// calls.
func calls(s store.Store) map[string]func() error {
	return bound(storetest.MethodsOf(s, "chat").Presence)
}

// allCalls is calls with the methods of devices, of contacts and of calls.
func allCalls(s store.Store, namespace string) map[string]func() error {
	m := storetest.MethodsOf(s, namespace)
	return bound(storetest.All(m.Presence, m.Devices, m.Contacts, m.Calls))
}

// bound returns methods without their context.
func bound(methods map[string]kit.Method) map[string]func() error {
	all := make(map[string]func() error)
	for name, call := range methods {
		all[name] = func() error { return call(context.Background()) }
	}
	return all
}

func TestGaps(t *testing.T) {
	for _, unit := range []redisstore.Unit{redisstore.Milliseconds, redisstore.Seconds} {
		t.Run(string(unit), func(t *testing.T) {
			presence.Gaps(t, func(gap func(string, time.Duration)) store.Store {
				return newStore(t, redisstore.Options{
					URL: redistest.Start(t), Unit: unit, Gap: gap, Timeout: longTimeout, DialTimeout: longTimeout,
				})
			})
		})
	}
}

// startProxy starts a proxy in front of a server, whose toxics spoil the connection.
func startProxy(t *testing.T, upstream string) *toxiproxy.Proxy {
	t.Helper()
	server := callWithZero(toxiproxy.NewServer, toxiproxy.NewMetricsContainer(nil))
	proxy := toxiproxy.NewProxy(server, "redis", "127.0.0.1:0", upstream)
	require.NoError(t, proxy.Start())
	t.Cleanup(proxy.Stop)
	return proxy
}

// callWithZero calls a function with the zero value of a type that need not be imported: a logger that writes nothing.
func callWithZero[A, Z, R any](f func(A, Z) R, a A) R {
	var z Z
	return f(a, z)
}

// spoil adds a toxic until the returned function is called.
func spoil(t *testing.T, proxy *toxiproxy.Proxy, toxic string) (heal func()) {
	t.Helper()
	added, err := proxy.Toxics.AddToxicJson(strings.NewReader(toxic))
	require.NoError(t, err)
	return func() { require.NoError(t, proxy.Toxics.RemoveToxic(context.Background(), added.Name)) }
}
