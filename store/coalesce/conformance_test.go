package coalesce_test

import (
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/coalesce"
	"github.com/lastseen/lastseen/store/filestore"
	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/storetest"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// TestConformance wraps the file store with batches so small that calls are taken apart, and Redis with batches so
// large that none is.
func TestConformance(t *testing.T) {
	t.Parallel()
	wrap := func(t testing.TB, s store.Batcher, err error, size int) store.Store {
		t.Helper()
		require.NoError(t, err)
		wrapped := coalesce.New(s, coalesce.Options{Timeout: time.Minute, BatchSize: size, NamespaceSize: size})
		t.Cleanup(func() { require.NoError(t, wrapped.Close()) })
		return wrapped
	}
	t.Run("file, small batches", func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, func(t testing.TB) store.Store {
			s, err := filestore.Open(filestore.Options{Path: storetest.DataFile(t), Sync: time.Second})
			return wrap(t, storetest.OneByOne{Store: s}, err, 2)
		})
	})
	t.Run("redis, large batches", func(t *testing.T) {
		testenv.RequireFull(t)
		t.Parallel()
		url := redistest.Start(t)
		var n atomic.Int64
		storetest.RunCore(t, func(t testing.TB) store.Store {
			o := redisstore.Options{URL: url, Prefix: fmt.Sprintf("test%d:", n.Add(1)), Shards: 3}
			s := openRedis(t, o, time.Minute)
			return wrap(t, s, nil, 512)
		})
	})
}

// openRedis opens a store on a Redis, with one timeout for everything.
func openRedis(tb testing.TB, o redisstore.Options, timeout time.Duration) *redisstore.Store {
	tb.Helper()
	o.Timeout, o.DialTimeout, o.Logger = timeout, timeout, slog.New(slog.DiscardHandler)
	s, err := redisstore.Open(o)
	require.NoError(tb, err)
	return s
}
