package redisstore

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// TestRoundTripsOfATrim: a trim has the time of two timeouts, however many shards it deletes from, so it cannot visit
// one after the other.
func TestRoundTripsOfATrim(t *testing.T) {
	ctx := context.Background()
	s, err := Open(Options{
		URL: redistest.Start(t), Shards: MaxShards, Timeout: time.Minute, DialTimeout: time.Minute,
		Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	old := make([]store.Sighting, 2*store.MaxTrim+300)
	for i := range old {
		old[i] = store.Sighting{User: fmt.Sprint(i), At: 1}
	}
	_, err = s.Ping(ctx, "chat", old)
	require.NoError(t, err)
	var counted trips
	s.client.AddHook(&counted)
	for _, want := range []int{store.MaxTrim, store.MaxTrim, 300, 0} {
		now, err := s.Now(ctx)
		require.NoError(t, err)
		counted.n.Store(0)
		result, err := s.Trim(ctx, "chat", store.TrimQuery{Age: time.Hour, Now: now, All: true})
		require.NoError(t, err)
		require.Equal(t, store.TrimResult{Deleted: want}, result)
		// it sends the script again, too
		require.Less(t, counted.n.Load(), int64(10), "besides those in the background")
	}
}
