package keys

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/storetest/redistest"
	"github.com/lastseen/lastseen/store/storetest/redistest/stores"
)

// leases asks for a lease, and reports whether the server gets it.
func leases(t *testing.T, s *redisstore.Store, name string, ttl time.Duration) bool {
	t.Helper()
	granted, err := s.Lease(context.Background(), name, ttl)
	require.NoError(t, err)
	return granted
}

// TestLease checks that only one of two servers gets a lease, until the lease ends.
func TestLease(t *testing.T) {
	ctx, url, client := stores.StartRedis(t)
	first, second := stores.New(t, redisstore.Options{URL: url}), stores.New(t, redisstore.Options{URL: url})
	lease := func(s *redisstore.Store, name string) bool { return leases(t, s, name, time.Hour) }
	require.True(t, lease(first, "job"))
	require.False(t, lease(second, "job"))
	require.True(t, lease(second, "other"), "leases are apart")
	require.False(t, lease(first, "other"))

	require.NoError(t, client.PExpire(ctx, "presence::lease:job", time.Minute).Err())
	require.True(t, lease(first, "job"))
	require.Greater(t, client.PTTL(ctx, "presence::lease:job").Val(), 59*time.Minute,
		"the holder's lease is prolonged")
	require.False(t, lease(second, "job"))
	require.NoError(t, client.PExpire(ctx, "presence::lease:job", time.Millisecond).Err())
	stores.Eventually(t, func() bool { return lease(second, "job") })
	require.False(t, lease(first, "job"))
}

// TestLeaseForLess asks for less time than the holder has left: the lease is refused and does not end earlier.
func TestLeaseForLess(t *testing.T) {
	ctx, url := context.Background(), redistest.Start(t)
	first, second := stores.New(t, redisstore.Options{URL: url}), stores.New(t, redisstore.Options{URL: url})
	require.True(t, leases(t, first, "job", 3*time.Minute))
	require.False(t, leases(t, second, "job", time.Millisecond))
	require.Greater(t, stores.NewClient(t, url).PTTL(ctx, "presence::lease:job").Val(), 2*time.Minute)
}

// TestLeaseWithoutMemory: a lease is taken and extended also while Redis has no memory left. Who has it deletes users
// and ends calls, which frees memory.
func TestLeaseWithoutMemory(t *testing.T) {
	ctx, url := context.Background(), redistest.Start(t)
	s := stores.New(t, redisstore.Options{URL: url})
	require.NoError(t, stores.NewClient(t, url).ConfigSet(ctx, "maxmemory", "1").Err())
	for range 2 {
		require.True(t, leases(t, s, "job", time.Hour))
	}
	require.False(t, leases(t, stores.New(t, redisstore.Options{URL: url}), "job", time.Hour))
}

// TestLeaseAfterTheClockWasSetBack: it would last for years.
func TestLeaseAfterTheClockWasSetBack(t *testing.T) {
	ctx, url := context.Background(), redistest.Start(t)
	first, second := stores.New(t, redisstore.Options{URL: url}), stores.New(t, redisstore.Options{URL: url})
	require.True(t, leases(t, first, "job", 3*time.Minute))
	require.NoError(t, stores.NewClient(t, url).PExpire(ctx, "presence::lease:job", 3*365*24*time.Hour).Err())
	require.True(t, leases(t, second, "job", 3*time.Minute))
	require.False(t, leases(t, first, "job", 3*time.Minute))
}

// TestNotes: servers share notes, which expire, and are noted also without memory.
func TestNotes(t *testing.T) {
	ctx, url, client := stores.StartRedis(t)
	first, second := stores.New(t, redisstore.Options{URL: url}), stores.New(t, redisstore.Options{URL: url})
	set := func(s *redisstore.Store, old, version string) bool {
		set, err := s.SetNote(ctx, "job", "chat", old, store.Note{Version: version, Text: []byte("text")})
		require.NoError(t, err)
		return set
	}
	require.True(t, set(first, "", "1"))
	require.False(t, set(second, "", "2"))
	n, err := second.Note(ctx, "job", "chat")
	require.NoError(t, err)
	require.Equal(t, store.Note{Version: "1", Text: []byte("text")}, n)
	require.True(t, set(second, "1", "2"))
	require.InDelta(t, store.NotesKept, client.PTTL(ctx, "presence::notes:job").Val(), float64(time.Minute))
	require.NoError(t, client.ConfigSet(ctx, "maxmemory", "1").Err())
	require.False(t, set(first, "1", "3"))
	require.True(t, set(first, "2", "3"))
}

// TestRestoredNote: whoever reads a note learns that Redis restarted since, and may have lost a later one.
func TestRestoredNote(t *testing.T) {
	ctx, redis := context.Background(), redistest.StartProcess(t, "--appendonly", "yes", "--appendfsync", "always")
	s := stores.New(t, redisstore.Options{URL: redis.URL()})
	set := func(old, version string) {
		t.Helper()
		stores.Eventually(t, func() bool {
			set, err := s.SetNote(ctx, "job", "a", old, store.Note{Version: version, Text: []byte("x y\n")})
			return err == nil && set
		})
	}
	requireNote := func(version string, restored bool) {
		t.Helper()
		stores.Eventually(t, func() bool {
			n, err := s.Note(ctx, "job", "a")
			if err != nil {
				return false // Redis is not back
			}
			require.Equal(t, restored, n.Restored)
			require.Equal(t, restored, n.Version != version)
			require.Equal(t, "x y\n", string(n.Text))
			return true
		})
	}
	set("", "1")
	requireNote("1", false)
	redis.Stop(t)
	redis.Start(t)
	requireNote("1", true)
	replaced, err := s.SetNote(ctx, "job", "a", "1", store.Note{Version: "2"})
	require.NoError(t, err)
	require.False(t, replaced, "by one who does not know that")
	n, err := s.Note(ctx, "job", "a")
	require.NoError(t, err)
	set(n.Version, "2")
	requireNote("2", false)
}
