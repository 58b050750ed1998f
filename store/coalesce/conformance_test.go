package coalesce_test

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/boltstore"
	"github.com/lastseen/lastseen/store/coalesce"
	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/storetest"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// TestConformance wraps both stores, with batches so small that every call is taken apart, and with
// batches so large that none is.
func TestConformance(t *testing.T) {
	for _, size := range []int{1, 2, 512} {
		wrap := func(t testing.TB, s store.Store, err error) store.Store {
			t.Helper()
			require.NoError(t, err)
			wrapped := coalesce.New(s, coalesce.Options{Timeout: time.Minute, BatchSize: size, GroupSize: size})
			t.Cleanup(func() { require.NoError(t, wrapped.Close()) })
			return wrapped
		}
		t.Run(fmt.Sprintf("file/batch=%d", size), func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, func(t testing.TB) store.Store {
				s, err := boltstore.Open(boltstore.Options{Path: filepath.Join(t.TempDir(), "lastseen.db"), Sync: time.Second})
				return wrap(t, s, err)
			})
		})
		t.Run(fmt.Sprintf("redis/batch=%d", size), func(t *testing.T) {
			t.Parallel()
			url := redistest.Start(t)
			var n atomic.Int64
			storetest.Run(t, func(t testing.TB) store.Store {
				s, err := redisstore.Open(redisstore.Options{
					URL: url, Prefix: fmt.Sprintf("test%d:", n.Add(1)), Shards: 3,
					Timeout: time.Minute, DialTimeout: time.Minute, Logger: slog.New(slog.DiscardHandler),
				})
				return wrap(t, s, err)
			})
		})
	}
}
