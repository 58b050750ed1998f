package redisstore_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/storetest"
	callstest "github.com/lastseen/lastseen/store/storetest/calls"
	"github.com/lastseen/lastseen/store/storetest/changes"
	"github.com/lastseen/lastseen/store/storetest/kit"
	"github.com/lastseen/lastseen/store/storetest/redistest"
	"github.com/lastseen/lastseen/store/storetest/redistest/stores"
	"github.com/lastseen/lastseen/store/storetest/servers"
)

// TestOnCluster is what leaves a Cluster as it was.
func TestOnCluster(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 0)
	for _, test := range []struct {
		name string
		run  func(*testing.T, *redistest.Cluster)
	}{
		{"Keys", testKeysOfACluster},
		{"Clock", testClockOfACluster},
		{"Scripts", testScriptsForgottenByACluster},
		{"Slots", testSlotsMoveWhileTheyAreUsed},
		{"Scan", testScanWhileASlotMoves},
		{"Calls", testCallsInACluster},
		{"Rights", testLeastRightsInCluster},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, c) })
	}
	t.Run("LostNames", func(t *testing.T) {
		testenv.RequireFull(t)
		testLostNames(t, c.URL(), c.Client(t))
	})
	t.Run("Signals", func(t *testing.T) {
		testenv.RequireFull(t)
		servers.RunSignals(t, stores.Pairs(c.URL(), 1))
	})
	t.Run("Conformance", func(t *testing.T) {
		testenv.RequireFull(t)
		open := stores.Opener(c.URL(), 16) // one, since it numbers prefixes
		for _, part := range partsOnCluster() {
			t.Run(part.name, func(t *testing.T) {
				t.Parallel()
				part.run(t, open)
			})
		}
	})
}

// clusterPart is a part of the conformance suite in which a Cluster can differ from one Redis.
type clusterPart struct {
	name string
	run  func(*testing.T, kit.Open)
}

// partsOnCluster returns what runs on a Cluster. The rest concerns the keys of one shard, which are in one slot, or
// sends pipelines to several shards as lookups of the core do.
func partsOnCluster() []clusterPart {
	return []clusterPart{
		{"Core", storetest.RunCore}, // lists, counts and deletion concern shards in several slots, on several nodes
		{"Changes", changes.Run},    // a position in a feed has a part for each shard
		{"Calls", callstest.Run},    // a call is in one slot, and who is in it in those of their users
	}
}

// pingNumbered pings n users, and returns their names in order.
func pingNumbered(t *testing.T, s store.Store, namespace string, n int) []string {
	t.Helper()
	users := make([]string, n)
	for i := range users {
		users[i] = fmt.Sprintf("u%05d", i)
	}
	require.NoError(t, stores.Ping(s, namespace, users...))
	return users
}

// listPresent lists everyone present, page by page.
func listPresent(s store.Store, namespace string, limit int) ([]string, error) {
	var all []string
	q := store.ListQuery{Ranges: kit.Everyone()[:1], Order: store.Oldest, Limit: limit}
	for {
		page, err := s.List(context.Background(), namespace, q)
		if err != nil {
			return nil, err
		}
		for _, record := range page {
			all = append(all, record.User)
		}
		if len(page) < limit {
			return all, nil
		}
		q.After = &page[len(page)-1]
	}
}

// testSlotsMoveWhileTheyAreUsed: calls are redirected to where a slot is going. Every user is listed
// exactly once, and no acknowledged ping is lost.
func testSlotsMoveWhileTheyAreUsed(t *testing.T, c *redistest.Cluster) {
	ctx := context.Background()
	s := stores.New(t, redisstore.Options{URL: c.URL(), Shards: 16})
	still := pingNumbered(t, s, "still", 700)
	require.NoError(t, stores.Ping(s, "busy", "somebody"))

	done := make(chan struct{})
	var working sync.WaitGroup
	var pings, walks atomic.Int64
	acknowledged := map[string]lastseen.Instant{}
	working.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			default:
			}
			user, at := fmt.Sprintf("b%d", i%97), kit.Base+lastseen.Instant(i)
			_, err := s.Ping(ctx, "busy", []store.PresenceEvent{{User: user, At: at}})
			if !assertNoError(t, err) {
				return
			}
			acknowledged[user] = at
			pings.Add(1)
		}
	})
	working.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			got, err := listPresent(s, "still", 37)
			slices.Sort(got)
			if !assertNoError(t, err) || !slices.Equal(still, got) {
				t.Errorf("listed %d of %d", len(got), len(still))
				return
			}
			walks.Add(1)
		}
	})
	passes := func() { // until both did something in the present state of affairs
		p, w := pings.Load()+2, walks.Load()+2
		stores.Eventually(t, func() bool { return t.Failed() || pings.Load() >= p && walks.Load() >= w })
	}
	for _, key := range []string{
		"presence:still:3", "presence:busy:5", "presence:still:3", "presence::namespaces", "presence::meta",
	} {
		to := c.Next(t, key)
		require.NoError(t, to.Client(t).ScriptFlush(ctx).Err())
		c.MoveSlot(t, c.Slot(t, key), to, passes)
	}
	close(done)
	working.Wait()
	for user, at := range acknowledged {
		states, _, err := s.Describe(ctx, "busy", []string{user})
		require.NoError(t, err)
		require.Equal(t, []lastseen.State{{At: at}}, states)
	}
	counts, err := s.Count(ctx, "still", kit.Everyone())
	require.NoError(t, err)
	require.Equal(t, []int64{700, 0}, counts)
}

// assertNoError is for goroutines, in which a test cannot be ended.
func assertNoError(t *testing.T, err error) bool {
	if err != nil {
		t.Error(err)
	}
	return err == nil
}

// testKeysOfACluster: they are those of one Redis, so that what is documented holds, and each is on the
// node that owns it.
func testKeysOfACluster(t *testing.T, c *redistest.Cluster) {
	ctx := context.Background()
	client := c.Client(t)
	s := stores.New(t, redisstore.Options{URL: c.URL(), Shards: 7})
	require.NoError(t, stores.Ping(s, "chat", "alice", "bob", "a/b"))
	for key, user := range map[string]string{
		"presence:chat:1": "alice", "presence:chat:2": "bob",
		"presence:chat:3": "a/b",
	} {
		require.Equal(t, []string{user}, client.ZRange(ctx, key, 0, -1).Val(), key)
	}
	require.Equal(t, []redis.Z{{Member: "chat"}}, client.ZRangeWithScores(ctx, "presence::namespaces", 0, -1).Val())
	require.NoError(t, s.Ready(ctx))
	require.Len(t, keysOf(t, c), 8)
	require.NoError(t, s.DeleteNamespace(ctx, "chat"))
	require.Empty(t, keysOf(t, c), "nothing is left behind")
}

// keysOf is every key of a Cluster.
func keysOf(t *testing.T, c *redistest.Cluster) (keys []string) {
	t.Helper()
	for _, primary := range c.Primaries {
		keys = append(keys, primary.Client(t).Keys(context.Background(), "*").Val()...)
	}
	return keys
}

// testScriptsForgottenByACluster: those that a node does not know are sent again, wherever it is.
func testScriptsForgottenByACluster(t *testing.T, c *redistest.Cluster) {
	ctx := context.Background()
	s := stores.New(t, redisstore.Options{URL: c.URL(), Shards: 16})
	for range 2 {
		for name, call := range stores.AllCalls(s, "chat") {
			for _, primary := range c.Primaries {
				require.NoError(t, primary.Client(t).ScriptFlush(ctx).Err())
			}
			require.NoError(t, call(), name)
		}
	}
}

// TestUnavailablePrimary: dead or frozen, what is on it is unavailable, and all else goes on, also
// when the list of namespaces and how they are stored was there.
func TestUnavailablePrimary(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(*testing.T, *redistest.Process){
		"dead":   func(t *testing.T, p *redistest.Process) { p.Stop(t) },
		"frozen": func(t *testing.T, p *redistest.Process) { p.Freeze(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, c := context.Background(), redistest.StartCluster(t, 0)
			s := stores.New(t, redisstore.Options{URL: c.URL(), Timeout: time.Second})
			away := c.Owner(t, "presence::meta")
			where := map[bool][]string{}
			for i := range 6 {
				namespace := fmt.Sprintf("n%d", i)
				lost := c.Owner(t, "presence:"+namespace) == away
				where[lost] = append(where[lost], namespace)
				stores.UntilSuccess(t, func() error { return stores.Ping(s, namespace, "alice") })
			}
			require.NotEmpty(t, where[true])
			require.NotEmpty(t, where[false])
			leave(t, away)
			s.ExpireMetaCache() // as every ten seconds
			lost := map[string]func() error{"new": func() error { return stores.Ping(s, "new", "alice") }}
			for _, namespace := range where[true] {
				lost[namespace] = func() error { return stores.Ping(s, namespace, "bob") }
			}
			stores.RequireUnavailable(t, lost) // and a new one cannot be registered
			for _, namespace := range where[false] {
				stores.UntilSuccess(t, func() error { return stores.Ping(s, namespace, "bob") })
				states, _, err := s.Describe(ctx, namespace, []string{"alice", "bob", "carol"})
				require.NoError(t, err)
				require.Equal(t, []lastseen.State{{At: kit.Base}, {At: kit.Base}, {}}, states)
			}
			_, err := s.Namespaces(ctx, "", 100)
			require.ErrorIs(t, err, store.ErrUnavailable, "a part of the list is not returned")
			require.NoError(t, s.Ready(ctx), "most are served")
		})
	}
}

// testClockOfACluster: all servers ask the node that has the list of namespaces, and no other. A probe asks each.
func testClockOfACluster(t *testing.T, c *redistest.Cluster) {
	ctx := context.Background()
	for _, primary := range c.Primaries {
		require.NoError(t, primary.Client(t).ConfigResetStat(ctx).Err())
	}
	for range 5 {
		s := stores.New(t, redisstore.Options{URL: c.URL()})
		kit.Now(t, s)
	}
	asked := map[bool][]int{}
	for _, primary := range c.Primaries {
		_, stats, _ := strings.Cut(primary.Client(t).Info(ctx, "commandstats").Val(), "cmdstat_time:calls=")
		count, _, _ := strings.Cut(stats, ",")
		n, err := strconv.Atoi(count)
		require.NoError(t, err)
		owns := primary == c.Owner(t, "presence::namespaces")
		asked[owns] = append(asked[owns], n)
	}
	require.Greater(t, asked[true][0], slices.Max(asked[false]))
}
