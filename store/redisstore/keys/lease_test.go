package keys

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/storetest/redistest"
	"github.com/lastseen/lastseen/store/storetest/redistest/stores"
)

// TestLease checks that only one of two servers gets a lease, until the lease ends.
func TestLease(t *testing.T) {
	ctx, url, client := stores.StartRedis(t)
	first, second := stores.New(t, redisstore.Options{URL: url}), stores.New(t, redisstore.Options{URL: url})
	lease := func(s *redisstore.Store, name string) bool {
		granted, err := s.Lease(ctx, name, time.Hour)
		require.NoError(t, err)
		return granted
	}
	require.True(t, lease(first, "sweep"))
	require.False(t, lease(second, "sweep"))
	require.True(t, lease(second, "other"), "leases are apart")
	require.False(t, lease(first, "other"))

	require.NoError(t, client.PExpire(ctx, "presence::lease:sweep", time.Minute).Err())
	require.True(t, lease(first, "sweep"))
	require.Greater(t, client.PTTL(ctx, "presence::lease:sweep").Val(), 59*time.Minute,
		"the holder's lease is prolonged")
	require.False(t, lease(second, "sweep"))
	require.NoError(t, client.PExpire(ctx, "presence::lease:sweep", time.Millisecond).Err())
	stores.Eventually(t, func() bool { return lease(second, "sweep") })
	require.False(t, lease(first, "sweep"))
}

// TestLeaseForLess asks for less time than the holder has left: the lease is refused and does not end earlier.
func TestLeaseForLess(t *testing.T) {
	ctx, url := context.Background(), redistest.Start(t)
	first, second := stores.New(t, redisstore.Options{URL: url}), stores.New(t, redisstore.Options{URL: url})
	lease := func(s *redisstore.Store, ttl time.Duration) bool {
		granted, err := s.Lease(ctx, "sweep", ttl)
		require.NoError(t, err)
		return granted
	}
	require.True(t, lease(first, 3*time.Minute))
	require.False(t, lease(second, time.Millisecond))
	require.Greater(t, stores.NewClient(t, url).PTTL(ctx, "presence::lease:sweep").Val(), 2*time.Minute)
}

// TestLeaseWithoutMemory: a lease is taken and extended also while Redis has no memory left. Who has it deletes users
// and ends calls, which frees memory.
func TestLeaseWithoutMemory(t *testing.T) {
	ctx, url := context.Background(), redistest.Start(t)
	s := stores.New(t, redisstore.Options{URL: url})
	require.NoError(t, stores.NewClient(t, url).ConfigSet(ctx, "maxmemory", "1").Err())
	for range 2 {
		granted, err := s.Lease(ctx, "sweep", time.Hour)
		require.NoError(t, err)
		require.True(t, granted)
	}
	granted, err := stores.New(t, redisstore.Options{URL: url}).Lease(ctx, "sweep", time.Hour)
	require.NoError(t, err)
	require.False(t, granted)
}

// TestLeaseAfterTheClockWasSetBack: it would last for years.
func TestLeaseAfterTheClockWasSetBack(t *testing.T) {
	ctx, url := context.Background(), redistest.Start(t)
	first, second := stores.New(t, redisstore.Options{URL: url}), stores.New(t, redisstore.Options{URL: url})
	granted, err := first.Lease(ctx, "sweep", 3*time.Minute)
	require.NoError(t, err)
	require.True(t, granted)
	require.NoError(t, stores.NewClient(t, url).PExpire(ctx, "presence::lease:sweep", 3*365*24*time.Hour).Err())
	granted, err = second.Lease(ctx, "sweep", 3*time.Minute)
	require.NoError(t, err)
	require.True(t, granted)
	granted, err = first.Lease(ctx, "sweep", 3*time.Minute)
	require.NoError(t, err)
	require.False(t, granted)
}
