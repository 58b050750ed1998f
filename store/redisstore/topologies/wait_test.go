package topologies

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/storetest"
	"github.com/lastseen/lastseen/store/storetest/kit"
	"github.com/lastseen/lastseen/store/storetest/redistest"
	"github.com/lastseen/lastseen/store/storetest/redistest/stores"
)

// TestWaitWithoutReplicas checks that nothing is acknowledged that no replica has, and that the log names the reason.
func TestWaitWithoutReplicas(t *testing.T) {
	ctx, server := context.Background(), redistest.StartProcess(t, "--repl-diskless-sync-delay", "0")
	s, log := stores.NewLogged(t, redisstore.Options{URL: server.URL(), Wait: 1, Timeout: 2 * time.Second})
	require.ErrorIs(t, stores.Ping(s, "chat", "alice"), store.ErrUnavailable)
	require.ErrorContains(t, stores.Ping(s, "chat", "alice"), "0 of 1 replicas confirmed")
	require.GreaterOrEqual(t, s.Client().WaitFailures(), int64(2), "probes count, too")
	require.ErrorIs(t, s.Ready(ctx), store.ErrUnavailable)
	require.Equal(t, kit.Base, kit.Lookup(t, s, "alice")[0].At, "it is only not known to survive")
	require.Zero(t, s.Client().BreakersOpened())
	redistest.StartReplica(t, server)
	stores.UntilSuccess(t, func() error { return stores.Ping(s, "chat", "alice") })
	stores.UntilSuccess(t, func() error { return s.Ready(ctx) })
	require.NoError(t, s.Close())
	require.Positive(t, log.Count("fewer replicas than redis-wait"))
}

// TestWaitForAFrozenReplica checks every call that is confirmed, also when it is sent again and changes nothing.
func TestWaitForAFrozenReplica(t *testing.T) {
	t.Parallel()
	for name, shards := range map[string]int{"single": 1, "pipeline": 7} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			primary := redistest.StartProcess(t, "--repl-diskless-sync-delay", "0")
			replica := redistest.StartReplica(t, primary)
			s := stores.New(t, redisstore.Options{
				// WAIT has half of what is left, also when a script is repeated.
				URL: primary.URL(), Wait: 1, Shards: shards, Timeout: 3 * time.Second,
			})
			users := []string{"alice", "bob", "carol", "dave", "erin"}
			stores.UntilSuccess(t, func() error { return stores.Ping(s, "chat", users...) })
			all, says := stores.AllCalls(s, "chat"), stores.Bound(storetest.MethodsOf(s, "chat").Availability)
			stores.UntilSuccess(t, says["SetAvailability/Invisible"])
			replica.Freeze(t)
			for range 2 {
				requireUnconfirmed(t, map[string]func() error{
					"Ping": func() error { return stores.Ping(s, "chat", append(slices.Clone(users), "frank")...) }, "Leave": all["Leave"],
					"Forget": all["Forget"], "ChangeContacts": all["ChangeContacts"], "SetContacts": all["SetContacts"],
					"StartCall": all["StartCall"], "SetAvailability/Invisible": says["SetAvailability/Invisible"],
				})
			}
			for _, name := range []string{"Lookup", "List", "Count", "Trim"} {
				require.NoError(t, stores.Calls(s)[name](), name)
			}
			require.ErrorContains(t, s.DeleteNamespace(context.Background(), "chat"), "0 of 1 replicas confirmed")
			require.Zero(t, s.Client().BreakersOpened(), "Redis responds")
			replica.Thaw(t)
			stores.UntilSuccess(t, func() error { return stores.Ping(s, "chat", users...) })
		})
	}
}

// requireUnconfirmed requires that no replica confirms what calls write. They are made at the same time, to wait once.
func requireUnconfirmed(t *testing.T, all map[string]func() error) {
	t.Helper()
	var writing sync.WaitGroup
	defer writing.Wait()
	for name, call := range all {
		writing.Go(func() { assert.ErrorContains(t, call(), "0 of 1 replicas confirmed", name) })
	}
}

// TestWaitInACluster checks that the replica of each primary confirms what is written there, and no other.
func TestWaitInACluster(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 1)
	s := stores.New(t, redisstore.Options{URL: c.URL(), Wait: 1, Shards: 7, Timeout: time.Second})
	namespaces := []string{"n0", "n1", "n2", "n3", "n4", "n5"}
	users := stores.Numbered("u", 24)
	for _, namespace := range namespaces {
		stores.UntilSuccess(t, func() error { return stores.Ping(s, namespace, users...) })
	}
	owner := c.Owner(t, "presence:n0:1")
	replica := c.Replicas[slices.Index(c.Primaries, owner)]
	replica.Freeze(t)
	defer replica.Thaw(t)
	of := s.NodeOf("n0")
	refused := map[string]func() error{}
	for _, user := range users {
		call := func() error {
			_, err := s.Ping(context.Background(), "n0", []store.PresenceEvent{{User: user, At: kit.Base + 1}})
			return err
		}
		if of(user) == owner.Addr {
			refused[user] = call
		} else {
			stores.UntilSuccess(t, call)
		}
	}
	require.NotEmpty(t, refused)
	require.Less(t, len(refused), len(users))
	requireUnconfirmed(t, refused)
	require.ErrorContains(t, stores.Ping(s, "n0", users...), "0 of 1 replicas confirmed", "one of the nodes")
}

// TestPlannedFailover checks that what replicas confirmed survives SENTINEL FAILOVER, and logs what is lost otherwise.
func TestPlannedFailover(t *testing.T) {
	testenv.RequireFull(t)
	for _, wait := range []int{0, 1} {
		t.Run(fmt.Sprint(wait), func(t *testing.T) {
			t.Parallel()
			acknowledged, lost, away := planFailover(t, wait)
			t.Logf("with redis-wait %d: %d of %d acknowledged pings lost, no ping acknowledged for %v", wait, lost,
				acknowledged, away)
			if wait > 0 {
				require.Zero(t, lost)
			}
		})
	}
}

// planFailover pings users, each once, while a failover is requested and until pings succeed on the new primary.
func planFailover(t *testing.T, wait int) (acknowledged, lost int, away time.Duration) {
	ctx, watched := context.Background(), redistest.StartSentinel(t)
	s := stores.New(t, redisstore.Options{URL: watched.URL(), Wait: wait, Timeout: 250 * time.Millisecond})
	stores.UntilSuccess(t, func() error { return stores.Ping(s, "chat", "alice") })
	var mu sync.Mutex
	var users []string
	var last time.Time
	var done atomic.Bool
	var pinging sync.WaitGroup
	for writer := range 4 {
		pinging.Go(func() {
			for n := 0; !done.Load(); n++ {
				user := fmt.Sprintf("w%d-%d", writer, n)
				if stores.Ping(s, "chat", user) != nil {
					time.Sleep(time.Millisecond)
					continue
				}
				mu.Lock()
				now := time.Now()
				if !last.IsZero() {
					away = max(away, now.Sub(last))
				}
				users, last = append(users, user), now
				mu.Unlock()
				time.Sleep(time.Millisecond)
			}
		})
	}
	count := func() int { mu.Lock(); defer mu.Unlock(); return len(users) }
	atLeast := func(n int) {
		t.Helper()
		require.Eventually(t, func() bool { return count() >= n }, stores.FailoverTimeout, time.Millisecond)
	}
	atLeast(200)
	sentinel := redis.NewSentinelClient(&redis.Options{Addr: watched.Sentinels[0].Addr})
	defer sentinel.Close()
	require.NoError(t, sentinel.Failover(ctx, redistest.MasterName).Err())
	stores.Eventually(t, func() bool { return watched.Primary() == watched.Nodes[1] })
	// Sentinels wait for eight seconds before they make the old primary a replica.
	hasSwapped := func() bool { return isReplica(t, watched.Nodes[0]) }
	require.Eventually(t, hasSwapped, stores.FailoverTimeout, 10*time.Millisecond)
	atLeast(count() + 100)
	done.Store(true)
	pinging.Wait()
	scores := watched.Nodes[1].Client(t).ZMScore(ctx, "presence:chat", users...).Val()
	require.Len(t, scores, len(users))
	for _, score := range scores {
		if lastseen.Instant(score) != kit.Base {
			lost++
		}
	}
	return len(users), lost, away
}

func isReplica(t *testing.T, server *redistest.Process) bool {
	role, err := server.Client(t).Do(context.Background(), "ROLE").Slice()
	return err == nil && role[0] == "slave"
}
