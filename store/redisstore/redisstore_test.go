package redisstore_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/storetest"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// slowMachine is a timeout that no busy test machine exceeds.
const slowMachine = 30 * time.Second

// quiet keeps logs out of the tests' output.
func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// opener returns a constructor of empty stores, all on one Redis: each has a prefix of its own.
func opener(url string, shards int) storetest.Open {
	var n atomic.Int64
	return func(t testing.TB) store.Store {
		s, err := redisstore.Open(redisstore.Options{
			URL: url, Prefix: fmt.Sprintf("test%d-%d:", shards, n.Add(1)), Shards: shards,
			Timeout: slowMachine, DialTimeout: slowMachine, Logger: quiet(),
		})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		return s
	}
}

func TestConformance(t *testing.T) {
	redistest.Each(t, func(t *testing.T, url string) {
		for _, shards := range []int{1, 7} {
			t.Run(fmt.Sprintf("shards=%d", shards), func(t *testing.T) { storetest.Run(t, opener(url, shards)) })
		}
	})
}

func ping(t *testing.T, s store.Store, namespace, user string) error {
	t.Helper()
	_, err := s.Ping(context.Background(), namespace, []store.Sighting{{User: user, At: 1_700_000_000_000}})
	return err
}
