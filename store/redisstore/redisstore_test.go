package redisstore_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/storetest"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

func TestMain(m *testing.M) {
	logging.Disable() // the client's own log of servers that tests stop
	testenv.WaitInParallel()
	testenv.LimitWalks(60)
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

// opener returns a constructor of empty stores, all on one Redis: each has a prefix of its own. Users become invisible
// without waiting for other servers.
func opener(url string, shards int) storetest.Open {
	var n atomic.Int64
	return func(t testing.TB) store.Store {
		s, err := redisstore.Open(redisstore.Options{
			URL: url, Prefix: fmt.Sprintf("test%d-%d:", shards, n.Add(1)), Shards: shards,
			Timeout: longTimeout, DialTimeout: longTimeout, Logger: discardLog(),
		})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		s.SettleAtOnce()
		return s
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	storetest.Run(t, opener(redistest.Start(t), 1))
}

// TestConformanceInContainer tests a Redis as tests use it where there is no redis-server.
func TestConformanceInContainer(t *testing.T) {
	testenv.RequireFull(t)
	t.Parallel()
	storetest.RunCore(t, opener(redistest.StartContainer(t), 1))
}

// TestConformanceOfShards has an odd number of shards. The whole suite runs on a Cluster, with 16 of them.
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

func ping(s store.Store, namespace string, users ...string) error {
	batch := make([]store.Sighting, len(users))
	for i, user := range users {
		batch[i] = store.Sighting{User: user, At: base}
	}
	_, err := s.Ping(context.Background(), namespace, batch)
	return err
}

// trim deletes everyone last seen longer ago than an age.
func trim(s store.Store, namespace string, age time.Duration) (store.TrimResult, error) {
	now, err := s.Now(context.Background())
	if err != nil {
		return store.TrimResult{}, err
	}
	return s.Trim(context.Background(), namespace, store.TrimQuery{Age: age, Now: now, All: true})
}

func everyone() []lastseen.Range {
	return []lastseen.Range{
		{From: lastseen.MinInstant, To: lastseen.MaxInstant},
		{From: lastseen.MinInstant, To: lastseen.MaxInstant, Left: true},
	}
}

// calls is every method that asks about or changes a namespace, except those of devices, of contacts and of calls.
func calls(s store.Store, namespace string) map[string]func() error {
	ctx := context.Background()
	sighting := []store.Sighting{{User: "alice", At: base}}
	return map[string]func() error{
		"Ping":   func() error { _, err := s.Ping(ctx, namespace, sighting); return err },
		"Leave":  func() error { _, err := s.Leave(ctx, namespace, sighting); return err },
		"Lookup": func() error { _, err := s.Lookup(ctx, namespace, []string{"alice"}); return err },
		"List": func() error {
			_, err := s.List(ctx, namespace, store.ListQuery{Ranges: everyone(), Limit: 5})
			return err
		},
		"Count":  func() error { _, err := s.Count(ctx, namespace, everyone()); return err },
		"Newest": func() error { _, err := s.Newest(ctx, namespace); return err },
		"Forget": func() error { return s.Forget(ctx, namespace, "alice") },
		"Trim":   func() error { _, err := trim(s, namespace, time.Hour); return err },

		"DeleteNamespace": func() error { return s.DeleteNamespace(ctx, namespace) },
	}
}

// allCalls is calls with the methods of devices, of contacts and of calls.
func allCalls(s store.Store, namespace string) map[string]func() error {
	ctx, all := context.Background(), calls(s, namespace)
	maps.Copy(all, contactCalls(s, namespace))
	maps.Copy(all, callCalls(s, namespace))
	all["RecordDevices"] = func() error {
		_, err := s.RecordDevices(ctx, namespace, time.Minute, []store.DeviceSighting{onDevice("alice", "tab", base)})
		return err
	}
	all["ReadDevices"] = func() error { _, err := s.ReadDevices(ctx, namespace, "alice"); return err }
	return all
}
