// Package stores opens stores on the servers of package redistest, and has what several rooms of their tests share.
package stores

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/storetest/kit"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// Run runs the tests of a package and ends the process.
func Run(m *testing.M) {
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

// LongTimeout is a timeout that no busy test machine exceeds.
const LongTimeout = 30 * time.Second

// FailoverTimeout is one for what waits for a failover: a Sentinel that got no processor time for two seconds does
// nothing for the next 30 (TILT mode: https://redis.io/docs/latest/operate/oss_and_stack/management/sentinel).
const FailoverTimeout = 75 * time.Second

// New opens a store, with the default prefix and a long timeout if the options have none. By default it logs nothing.
func New(t testing.TB, o redisstore.Options) *redisstore.Store {
	t.Helper()
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Timeout == 0 {
		o.Timeout, o.DialTimeout = LongTimeout, LongTimeout
	}
	s, err := redisstore.Open(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// NewLogged is New with a log.
func NewLogged(t testing.TB, o redisstore.Options) (*redisstore.Store, *testenv.Log) {
	t.Helper()
	log := &testenv.Log{}
	o.Logger = slog.New(slog.NewTextHandler(log, nil))
	return New(t, o), log
}

// NewClient returns a client that sees what a store writes.
func NewClient(t testing.TB, url string) *redis.Client {
	t.Helper()
	options, err := redis.ParseURL(url)
	require.NoError(t, err)
	options.DialTimeout, options.ReadTimeout, options.WriteTimeout = LongTimeout, LongTimeout, LongTimeout
	client := redis.NewClient(options)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client
}

// StartRedis starts a Redis, and returns a client of it. The test runs in parallel with others.
func StartRedis(t *testing.T) (ctx context.Context, url string, client *redis.Client) {
	t.Helper()
	t.Parallel()
	url = redistest.Start(t)
	return context.Background(), url, NewClient(t, url)
}

// Start is StartRedis with a store on it.
func Start(t *testing.T) (context.Context, *redis.Client, *redisstore.Store) {
	t.Helper()
	ctx, url, client := StartRedis(t)
	return ctx, client, New(t, redisstore.Options{URL: url})
}

// Opener returns a constructor of empty stores, all on one Redis.
func Opener(url string, shards int) kit.Open {
	servers := Servers(url, shards)
	return func(t testing.TB) store.Store {
		_, open := servers(t)
		return open()
	}
}

// Pairs returns a constructor of two stores with the same data, as two servers have them.
func Pairs(url string, shards int) func(testing.TB) (one, two store.Store) {
	servers := Servers(url, shards)
	return func(t testing.TB) (one, two store.Store) {
		_, open := servers(t)
		return open(), open()
	}
}

// Servers returns a function that returns an unused prefix, and a constructor of stores that have it.
func Servers(url string, shards int) func(testing.TB) (prefix string, open func() store.Store) {
	var n atomic.Int64
	return func(t testing.TB) (string, func() store.Store) {
		prefix := fmt.Sprintf("presence:%d-%d:", shards, n.Add(1))
		o := redisstore.Options{URL: url, Prefix: prefix, Shards: shards}
		return prefix, func() store.Store { return New(t, o) }
	}
}
