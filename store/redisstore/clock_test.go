package redisstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// TestOneServersClock: of two servers on one Redis, the local clock of one jumps. That server stamps pings as the
// other one does.
func TestOneServersClock(t *testing.T) {
	ctx, url := context.Background(), redistest.Start(t)
	var wrong atomic.Int64
	local := func() time.Time { return time.Now().Add(time.Duration(wrong.Load())) }
	jumpy, steady := newStore(t, redisstore.Options{URL: url, Now: local}), newStore(t, redisstore.Options{URL: url})
	for i, ahead := range []time.Duration{
		0, 1000 * time.Hour, -1000 * time.Hour, 30 * 365 * 24 * time.Hour,
		-30 * 365 * 24 * time.Hour,
	} {
		wrong.Store(int64(ahead))
		at, err := jumpy.Now(ctx)
		require.NoError(t, err)
		user := fmt.Sprint("user", i)
		states, err := jumpy.Ping(ctx, "chat", []store.Sighting{{User: user, At: at}})
		require.NoError(t, err)
		require.Equal(t, []lastseen.State{{At: at}}, states)
		true_, err := steady.Now(ctx)
		require.NoError(t, err)
		require.InDelta(t, int64(true_), int64(at), 1000, "%s", ahead)
		states, err = steady.Leave(ctx, "chat", []store.Sighting{{User: user, At: max(at, true_)}})
		require.NoError(t, err)
		require.True(t, states[0].Left)
	}
	result, err := trim(jumpy, "chat", 30*24*time.Hour)
	require.NoError(t, err)
	require.Zero(t, result)
}

// TestNewUsersOnTwoServers: pings and leaves of users never seen come through two servers at once, in any order.
// Each ends in the greatest state.
func TestNewUsersOnTwoServers(t *testing.T) {
	const users, writers = 40, 8
	ctx, url := context.Background(), redistest.Start(t)
	servers := []store.Store{newStore(t, redisstore.Options{URL: url}), newStore(t, redisstore.Options{URL: url})}
	type assertion struct {
		user string
		at   lastseen.Instant
		left bool
	}
	for round := range 5 {
		var all []assertion
		want := map[string]lastseen.State{}
		random := rand.New(rand.NewPCG(uint64(round), 9))
		for user := range users {
			name := fmt.Sprint(round, "-", user)
			for range 6 {
				a := assertion{name, base + lastseen.Instant(random.IntN(8)), random.IntN(2) == 0}
				all = append(all, a)
				want[name] = lastseen.Merge(want[name], lastseen.State{At: a.at, Left: a.left})
			}
		}
		random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		var running sync.WaitGroup
		for w := range writers {
			running.Go(func() {
				for i := w; i < len(all); i += writers {
					write := servers[w%2].Ping
					if all[i].left {
						write = servers[w%2].Leave
					}
					states, err := write(ctx, "chat", []store.Sighting{{User: all[i].user, At: all[i].at}})
					if err != nil || states[0].Compare(lastseen.State{At: all[i].at, Left: all[i].left}) < 0 {
						t.Errorf("%v: %v, %v", all[i], states, err)
					}
				}
			})
		}
		running.Wait()
		for user, state := range want {
			require.Equal(t, state, lookup(t, servers[0], user)[0], user)
		}
	}
}

// TestAheadInMilliseconds: times too far ahead become a time of Redis' clock in whole milliseconds, in either unit, and
// a leave at that time keeps its user away.
func TestAheadInMilliseconds(t *testing.T) {
	ctx, url := context.Background(), redistest.Start(t)
	client := newClient(t, url)
	for unit, perScore := range map[redisstore.Unit]float64{redisstore.Milliseconds: 1, redisstore.Seconds: 1000} {
		s := newStore(t, redisstore.Options{URL: url, Prefix: string(unit) + ":", Unit: unit})
		far := []store.Sighting{{User: "alice", At: lastseen.MaxInstant}, {User: "bob", At: base}}
		for i := range 50 {
			left, err := s.Leave(ctx, "chat", far)
			require.NoError(t, err)
			score := client.ZScore(ctx, string(unit)+":chat", "alice").Val()
			require.InDelta(t, -float64(left[0].At)/perScore, score, 0,
				"the very number that stands for the millisecond")
			present, err := s.Ping(ctx, "chat", far)
			require.NoError(t, err)
			if !present[0].Left {
				require.Greater(t, present[0].At, left[0].At, "left beats present at the same millisecond")
			}
			require.Equal(t, lastseen.State{At: base, Left: true}, present[1])
			require.Equal(t, present, lookup(t, s, "alice", "bob"), i)
		}
	}
}

// TestTrimSeconds deletes by the time of sets in seconds, whose scores may lie between milliseconds.
func TestTrimSeconds(t *testing.T) {
	ctx, url := context.Background(), redistest.Start(t)
	client := newClient(t, url)
	s := newSharedStore(t, url, redisstore.Layout{Unit: redisstore.Seconds})
	now := float64(client.Time(ctx).Val().UnixMilli()) / 1000
	add := func(scores map[string]float64) {
		for member, score := range scores {
			require.NoError(t, client.ZAdd(ctx, "presence:chat", redis.Z{Member: member, Score: score}).Err())
		}
	}
	add(map[string]float64{"old": now - 4000.00049, "gone": -(now - 4000.5), "zero": 0})
	held := store.TrimQuery{Age: time.Hour, Now: lastseen.Instant(now * 1000)}
	result, err := s.Trim(ctx, "chat", held)
	require.NoError(t, err)
	require.Equal(t, store.TrimResult{Held: true}, result)
	add(map[string]float64{"left": -(now - 3000.00049)})
	result, err = s.Trim(ctx, "chat", held)
	require.NoError(t, err)
	require.Equal(t, store.TrimResult{Deleted: 3}, result)
	require.Equal(t, []string{"left"}, client.ZRange(ctx, "presence:chat", 0, -1).Val())
}

// TestHeldByUsersAlone: members whose scores are not times do not keep a namespace from being emptied of its users.
func TestHeldByUsersAlone(t *testing.T) {
	ctx, url := context.Background(), redistest.Start(t)
	client := newClient(t, url)
	s := newStore(t, redisstore.Options{URL: url})
	require.NoError(t, ping(s, "chat", "alice"))
	for i, score := range []float64{253402300800000, -253402300800000, 1 << 52, 1e300, -1e300} {
		require.NoError(t, client.ZAdd(ctx, "presence:chat", redis.Z{Member: fmt.Sprint("odd", i), Score: score}).Err())
	}
	now, err := s.Now(ctx)
	require.NoError(t, err)
	result, err := s.Trim(ctx, "chat", store.TrimQuery{Age: time.Hour, Now: now})
	require.NoError(t, err)
	require.Equal(t, store.TrimResult{Held: true}, result)
}

// TestLeaseAfterTheClockWasSetBack: it would last for years.
func TestLeaseAfterTheClockWasSetBack(t *testing.T) {
	ctx, url := context.Background(), redistest.Start(t)
	first, second := newStore(t, redisstore.Options{URL: url}), newStore(t, redisstore.Options{URL: url})
	granted, err := first.Lease(ctx, "sweep", 3*time.Minute)
	require.NoError(t, err)
	require.True(t, granted)
	require.NoError(t, newClient(t, url).PExpire(ctx, "presence::lease:sweep", 3*365*24*time.Hour).Err())
	granted, err = second.Lease(ctx, "sweep", 3*time.Minute)
	require.NoError(t, err)
	require.True(t, granted)
	granted, err = first.Lease(ctx, "sweep", 3*time.Minute)
	require.NoError(t, err)
	require.False(t, granted)
}
