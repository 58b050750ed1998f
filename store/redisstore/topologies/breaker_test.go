package topologies

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/redisstore/redisclient"
	"github.com/lastseen/lastseen/store/storetest/kit"
	"github.com/lastseen/lastseen/store/storetest/redistest"
	"github.com/lastseen/lastseen/store/storetest/redistest/stores"
)

// untilOpen calls until a circuit breaker opened.
func untilOpen(t *testing.T, s *redisstore.Store, call func() error) {
	t.Helper()
	opened := s.Client().BreakersOpened()
	stores.Eventually(t, func() bool {
		_ = call()
		return s.Client().BreakersOpened() > opened
	})
}

// TestReadyAgainWithoutTraffic checks that readiness needs no other calls to notice that Redis is back.
func TestReadyAgainWithoutTraffic(t *testing.T) {
	ctx, server := context.Background(), redistest.StartProcess(t)
	s := stores.New(t, redisstore.Options{URL: server.URL(), Timeout: 250 * time.Millisecond})
	ready := func() error { return s.Ready(ctx) }
	stores.UntilSuccess(t, ready)
	for name, fault := range map[string]struct{ begin, end func(testing.TB) }{
		"frozen":  {server.Freeze, server.Thaw},
		"stopped": {server.Stop, server.Start},
	} {
		fault.begin(t)
		untilOpen(t, s, ready)
		require.ErrorIs(t, ready(), store.ErrUnavailable, name)
		fault.end(t)
		stores.UntilSuccess(t, ready)
		require.Equal(t, redisclient.BreakerClosed, s.Client().Breakers()[0].State)
	}
}

// TestRepliesDoNotOpenABreaker checks that a Redis which refuses is not mistaken for one that does not respond.
func TestRepliesDoNotOpenABreaker(t *testing.T) {
	ctx, server := context.Background(), redistest.StartProcess(t)
	client := server.Client(t)
	s := stores.New(t, redisstore.Options{URL: server.URL()})
	require.NoError(t, stores.Ping(s, "chat", "alice"))
	require.NoError(t, client.Set(ctx, "presence:text", "a text", 0).Err())
	require.NoError(t, client.ConfigSet(ctx, "maxmemory", "1").Err())
	for range 30 {
		require.ErrorIs(t, stores.Ping(s, "chat", "bob"), store.ErrFull)
		_, err := s.Count(ctx, "text", kit.Everyone())
		require.ErrorIs(t, err, store.ErrWrongType)
		cancelled, cancel := context.WithCancel(ctx)
		cancel()
		_, _, err = s.Describe(cancelled, "chat", []string{"alice"})
		require.ErrorIs(t, err, context.Canceled)
	}
	require.Zero(t, s.Client().BreakersOpened())
	require.Equal(t, []redisclient.Breaker{{Server: server.Addr}}, s.Client().Breakers())
}

// TestBreakerOfOnePrimary checks that the breaker of a primary that hangs refuses no calls to the others.
func TestBreakerOfOnePrimary(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 0)
	s := stores.New(t, redisstore.Options{URL: c.URL(), Timeout: time.Second})
	away := c.Owner(t, "presence:n0")
	where := map[bool][]string{}
	for i := range 12 {
		namespace := fmt.Sprint("n", i)
		stores.UntilSuccess(t, func() error { return stores.Ping(s, namespace, "alice") })
		lost := c.Owner(t, "presence:"+namespace) == away
		where[lost] = append(where[lost], namespace)
	}
	require.NotEmpty(t, where[false])
	away.Freeze(t)
	untilOpen(t, s, func() error { return stores.Ping(s, "n0", "bob") })
	for _, namespace := range where[false] {
		stores.UntilSuccess(t, func() error { return stores.Ping(s, namespace, "bob") })
	}
	for _, b := range s.Client().Breakers() {
		require.Equal(t, b.Server != away.Addr, b.State == redisclient.BreakerClosed, b)
	}
	stores.Eventually(t, func() bool { // a probe gets another error
		err := stores.Ping(s, "n0", "bob")
		return err != nil && strings.Contains(err.Error(), "circuit breaker is open: "+away.Addr)
	})
	away.Thaw(t)
	stores.UntilSuccess(t, func() error { return stores.Ping(s, "n0", "bob") })
}

// TestBreakerOfAReplacedPrimary checks that a breaker that stays open does not keep calls from the promoted replica.
func TestBreakerOfAReplacedPrimary(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 1, redistest.QuickToFail)
	s := stores.New(t, redisstore.Options{URL: c.URL(), Timeout: 250 * time.Millisecond})
	stores.UntilSuccess(t, func() error { return stores.Ping(s, "chat", "alice") })
	owner := c.Owner(t, "presence:chat")
	owner.Freeze(t)
	untilOpen(t, s, func() error { return stores.Ping(s, "chat", "bob") })
	stores.UntilSuccess(t, func() error { return stores.Ping(s, "chat", "bob") })
	for c.Owner(t, "presence:chat") == owner { // until the first primary knows of the failover
		require.NoError(t, t.Context().Err())
		time.Sleep(10 * time.Millisecond)
	}
	owner.Thaw(t)
}
