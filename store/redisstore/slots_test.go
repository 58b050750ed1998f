package redisstore_test

import (
	"cmp"
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
	"github.com/lastseen/lastseen/store/storetest/kit"
	"github.com/lastseen/lastseen/store/storetest/redistest"
	"github.com/lastseen/lastseen/store/storetest/redistest/stores"
)

// shortTimeout is for calls that fail, because they are repeated until then.
const shortTimeout = 500 * time.Millisecond

// TestFeedOnCluster is what leaves a Cluster as it was.
func TestFeedOnCluster(t *testing.T) {
	testenv.RequireFull(t)
	t.Parallel()
	c := redistest.StartCluster(t, 0)
	for _, test := range []struct {
		name    string
		run     func(*testing.T, *redistest.Cluster, *feed)
		timeout time.Duration
	}{
		{"Use", func(t *testing.T, _ *redistest.Cluster, f *feed) { useFeed(t, f) }, stores.LongTimeout},
		{"Slots", testFeedWhileSlotsMove, stores.LongTimeout},
		{"HalfMoved", testFeedInHalfASlot, shortTimeout},
		{"Details", testDetailsWhileSlotsMove, stores.LongTimeout},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := redisstore.Options{URL: c.URL(), Shards: 7, Timeout: test.timeout, DialTimeout: test.timeout}
			f := startFeed(t, stores.New(t, o), c.Client(t), 7)
			test.run(t, c, f)
			require.NoError(t, f.s.DeleteNamespace(context.Background(), "chat"))
			require.Empty(t, keysOf(t, c))
		})
	}
}

// testFeedWhileSlotsMove: users come, go and turn yellow or grey, and a reader follows, while slots move under them.
func testFeedWhileSlotsMove(t *testing.T, c *redistest.Cluster, f *feed) {
	users := stores.Numbered("u", 30)
	f.moveWatermark(f.w - hour)
	f.ping(f.w, users...) // every stream exists
	stop := f.churn(users)
	r := newReader(t, f.s, users...)
	r.limit = store.MaxChangesRead
	for _, key := range []string{f.keys[1], f.keys[3], f.keys[1], "presence::meta"} {
		to := c.Next(t, key)
		require.NoError(t, to.Client(t).ScriptFlush(context.Background()).Err())
		c.MoveSlot(t, c.Slot(t, key), to, func() {
			more := len(r.changes) + 50
			r.pollUntil(func() bool { return len(r.changes) > more })
		})
	}
	stop()
	r.requireTruth()
	require.Zero(t, r.resets, "nothing was lost")
}

// testDetailsWhileSlotsMove is the same while some of the users set an availability.
func testDetailsWhileSlotsMove(t *testing.T, c *redistest.Cluster, f *feed) {
	f.setAvailability(busy, stores.Numbered("u", 10)...)
	testFeedWhileSlotsMove(t, c, f)
}

// testFeedInHalfASlot: of a shard and its side keys some have moved and some have not. Redis refuses what needs
// several of them, and every call either fails as unavailable or is right.
func testFeedInHalfASlot(t *testing.T, c *redistest.Cluster, f *feed) {
	users := stores.Numbered("u", 30)
	f.ping(f.w, users...)
	r := newReader(t, f.s, users...)
	key := f.keys[3]
	members := f.client.ZRange(context.Background(), key, 0, -1).Val()
	some := slices.Concat(members, users[:3]) // calls that fail take a while
	round := lastseen.Instant(0)
	moveInHalves(t, c, key, []string{key, feedKey(key), streamKey(key), sidesKey(key)}, func(step string) {
		if step == "ended" {
			r.requireTruth()
			round++
			return
		}
		f.duringMove(r, some, round)
	})
	require.Zero(t, r.resets)
}

// duringMove makes calls that may fail while a slot moves, and fails if one fails in another way, or lies.
func (f *feed) duringMove(r *reader, users []string, round lastseen.Instant) {
	f.Helper()
	ctx := context.Background()
	check := func(err error) {
		if err != nil && !isOutage(err) {
			f.Errorf("not an outage: %v", err)
		}
	}
	for i, user := range users {
		at, write := f.w+round*100+lastseen.Instant(i), f.s.Ping
		if i%2 == 0 {
			write = f.s.Leave
		}
		_, err := write(ctx, "chat", kit.Events(at, user))
		check(err)
	}
	check(f.s.RecordChanges(ctx, "chat", hours))
	step := &store.ChangesAdvance{Namespace: "chat", Thresholds: hours, Now: f.clock()}
	f.s.AdvanceChanges(ctx, []*store.ChangesAdvance{step})
	check(step.Err)
	require.False(f, step.Begun)
	check(r.tryPoll())
	check(newReaderOf(f.T, f.s, users...).tryPoll())
	_, err := stores.Trim(f.s, hours.Yellow)
	check(err)
}

// TestHalfMovedSlots is what leaves a Cluster as it was.
func TestHalfMovedSlots(t *testing.T) {
	testenv.RequireFull(t)
	t.Parallel()
	c := redistest.StartCluster(t, 0)
	for _, test := range []struct {
		name string
		run  func(*testing.T, *redistest.Cluster)
	}{
		{"Pipelines", testPipelinesWhileKeysMove},
		{"LostConnections", testPipelinesThatLoseTheirConnection},
		{"Plain", testPlainNamespaceInAHalfMovedSlot},
		{"Between", testPingsBetweenTwoKeys},
		{"Creation", testPingsThatCreateKeys},
		{"Stuck", testSlotThatStaysHalfMoved},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, c) })
	}
}

// beginMove announces that the slot of a key moves to the next primary.
func beginMove(t *testing.T, c *redistest.Cluster, key string) *redistest.Move {
	t.Helper()
	return c.BeginMove(t, c.Slot(t, key), c.Next(t, key))
}

// testPipelinesWhileKeysMove: what Redis refuses meanwhile does not have it run the rest of a pipeline twice. The
// numbers count how often each command ran.
func testPipelinesWhileKeysMove(t *testing.T, c *redistest.Cluster) {
	client := clientOf(t, redisstore.Options{URL: c.URL()})
	ctx, cancel := context.WithTimeout(context.Background(), stores.LongTimeout)
	defer cancel()
	keys, runs := stores.Numbered("{moves}", 9), 0
	all := slices.Clone(keys)
	for _, tag := range []string{"{a}", "{b}", "{c}"} { // on each primary
		all = append(all, stores.Numbered(tag, 9)...)
	}
	run := func(refusal string) {
		runs++
		pipe := client.Pipeline()
		exist := pipe.Exists(ctx, keys[0], keys[8])
		counts := make([]*redis.IntCmd, len(all))
		for i, key := range all {
			counts[i] = pipe.Incr(ctx, key)
		}
		_, _ = pipe.Exec(ctx)
		for i, key := range all {
			require.Equal(t, strconv.Itoa(runs), client.Get(ctx, key).Val(), key)
			require.NoError(t, counts[i].Err(), key)
		}
		if exist.Err() != nil {
			require.ErrorContains(t, exist.Err(), refusal)
		}
	}
	run("nothing")
	move := beginMove(t, c, keys[0])
	run("nothing")
	for _, key := range keys {
		move.Keys(t, key)
		run("TRYAGAIN")
	}
	move.End(t)
	run("nothing")
	require.NoError(t, client.Del(ctx, keys...).Err())
}

// testPipelinesThatLoseTheirConnection: commands without a reply are sent again, if that is wanted, and no others.
func testPipelinesThatLoseTheirConnection(t *testing.T, c *redistest.Cluster) {
	ctx := context.Background()
	for _, retries := range []int{-1, 1} {
		client := clientOf(t, redisstore.Options{URL: c.URL(), Timeout: stores.LongTimeout, MaxRetries: retries})
		pipe := client.Pipeline()
		before := pipe.Incr(ctx, "{normal}before")
		kill := redis.NewCmd(ctx, "client", "kill", "skipme", "no", "type", "normal") // this connection, too
		kill.SetFirstKeyPos(5)                                                        // so it goes to the same node
		require.NoError(t, pipe.Process(ctx, kill))
		after := pipe.Incr(ctx, "{normal}after")
		_, err := pipe.Exec(ctx)
		require.Equal(t, int64(1), before.Val())
		require.Equal(t, max(0, int64(retries)), after.Val())
		require.Equal(t, retries < 0, err != nil, err)
		require.NoError(t, client.Del(ctx, "{normal}before", "{normal}after").Err())
	}
}

// clientOf returns the client of a store.
func clientOf(t *testing.T, o redisstore.Options) (client redis.UniversalClient) {
	t.Helper()
	o.Instrument = func(c redis.UniversalClient) error { client = c; return nil }
	stores.New(t, o)
	return client
}

// testPlainNamespaceInAHalfMovedSlot: while the slot of its shard moves, nothing fails as long as its two keys are on
// the same side, also for users who are new.
func testPlainNamespaceInAHalfMovedSlot(t *testing.T, c *redistest.Cluster) {
	ctx, s := context.Background(), stores.New(t, redisstore.Options{URL: c.URL()})
	other := "{" + stores.Chat + "}"
	require.NoError(t, c.Client(t).Set(ctx, other, "", 0).Err())
	n := 0
	use := func() {
		for range 20 {
			n++
			s.ExpireMetaCache() // as every ten seconds
			user, at := fmt.Sprint("u", n), kit.Base+lastseen.Instant(n)
			require.Equal(t, lastseen.State{At: at}, kit.Ping(t, s, user, at))
			pings := []*store.Batch[store.PresenceEvent]{
				{Namespace: "game", Items: kit.Events(at, user)}, {Namespace: "chat", Items: kit.Events(at+1, user)},
			}
			s.PingBatches(ctx, pings)
			require.NoError(t, cmp.Or(pings[0].Err, pings[1].Err))
			require.Equal(t, []lastseen.State{{At: at + 1}, {}}, kit.Lookup(t, s, user, "nobody"))
			kit.Leave(t, s, "u0", at)
			require.Equal(t, []int64{int64(n), 1}, kit.Count(t, s, kit.Everyone()...))
		}
	}
	use()
	for _, first := range [][]string{{other}, {stores.Chat, sidesKey(stores.Chat)}} {
		move := beginMove(t, c, stores.Chat)
		use()
		move.Keys(t, first...)
		use()
		move.Keys(t, other, stores.Chat, sidesKey(stores.Chat)) // those that have moved are skipped
		use()
		move.End(t)
		use()
	}
}

// testPingsBetweenTwoKeys: Redis refuses a script while one of its keys has moved and the other has not. It is sent
// again until both have, alone and in a batch.
func testPingsBetweenTwoKeys(t *testing.T, c *redistest.Cluster) {
	const talk = "presence:talk"
	for _, names := range [][]string{{"talk"}, {"game", "talk"}, {"talk", "game"}} {
		s := stores.New(t, redisstore.Options{URL: c.URL()})
		for _, name := range names {
			require.NoError(t, stores.Ping(s, name, "alice"))
		}
		move := beginMove(t, c, talk)
		move.Keys(t, talk)
		pingUntil(t, c, s, names, 35, func() { move.Keys(t, sidesKey(talk)) })
		move.End(t)
	}
}

// testPingsThatCreateKeys: Redis refuses the first script of a namespace while its slot moves. It is sent again until
// the slot has moved.
func testPingsThatCreateKeys(t *testing.T, c *redistest.Cluster) {
	for i, names := range [][]string{{"new0"}, {"game", "new1"}, {"new2", "game"}} {
		s := stores.New(t, redisstore.Options{URL: c.URL()})
		require.NoError(t, stores.Ping(s, "game", "alice"))
		move := beginMove(t, c, fmt.Sprint("presence:new", i))
		pingUntil(t, c, s, names, 10, func() { move.End(t) })
	}
}

// testSlotThatStaysHalfMoved: a ping that cannot be recorded fails, and does not use up the time of its batch. Package
// coalesce would take that for an outage, and fail all pings that wait for the same node.
func testSlotThatStaysHalfMoved(t *testing.T, c *redistest.Cluster) {
	const timeout = 4 * time.Second
	s := stores.New(t, redisstore.Options{URL: c.URL(), Timeout: timeout})
	require.NoError(t, stores.Ping(s, "stuck", "alice"))
	require.NoError(t, stores.Ping(s, "game", "alice"))
	move := beginMove(t, c, "presence:stuck")
	move.Keys(t, "presence:stuck")
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	pings := pingsOf("stuck", "game")
	s.PingBatches(ctx, pings)
	require.NoError(t, ctx.Err())
	require.ErrorIs(t, pings[0].Err, store.ErrUnavailable)
	require.ErrorContains(t, pings[0].Err, "TRYAGAIN")
	require.NoError(t, pings[1].Err)
	move.Keys(t, sidesKey("presence:stuck"))
	move.End(t)
}

// pingUntil pings a user of namespaces, and carries on when Redis has refused that n times. Then all pings succeed.
func pingUntil(t *testing.T, c *redistest.Cluster, s *redisstore.Store, names []string, n int, carryOn func()) {
	t.Helper()
	pings, before := pingsOf(names...), refusals(t, c)
	var done atomic.Bool
	var pinging sync.WaitGroup
	pinging.Go(func() {
		s.PingBatches(context.Background(), pings)
		done.Store(true)
	})
	isRefused := func() bool { return done.Load() || refusals(t, c) > before+n }
	stores.Eventually(t, isRefused)
	carryOn()
	pinging.Wait()
	for i, name := range names {
		require.NoError(t, pings[i].Err, "%s of %s", name, names)
		require.Equal(t, []lastseen.State{{At: kit.Base + 1}}, pings[i].States)
	}
}

// pingsOf returns pings of a user of namespaces.
func pingsOf(names ...string) (all []*store.Batch[store.PresenceEvent]) {
	for _, name := range names {
		all = append(all, &store.Batch[store.PresenceEvent]{Namespace: name, Items: kit.Events(kit.Base+1, "alice")})
	}
	return all
}

// refusals returns how many scripts a Cluster has refused because their keys are not on one node.
func refusals(t *testing.T, c *redistest.Cluster) (sum int) {
	t.Helper()
	for _, primary := range c.Primaries {
		info := primary.Client(t).Info(context.Background(), "errorstats").Val()
		if _, found, ok := strings.Cut(info, "errorstat_TRYAGAIN:count="); ok {
			n := 0
			_, err := fmt.Sscan(found, &n)
			require.NoError(t, err)
			sum += n
		}
	}
	return sum
}
