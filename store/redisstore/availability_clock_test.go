package redisstore_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/storetest/availability"
	"github.com/lastseen/lastseen/store/storetest/kit"
	"github.com/lastseen/lastseen/store/storetest/redistest"
	"github.com/lastseen/lastseen/store/storetest/redistest/stores"
)

// wrongClock has scripts of a store see another time than that of Redis.
type wrongClock struct{ seconds atomic.Int64 }

// noScript is the error of a script that Redis does not know. The store then sends the script in full.
type noScript struct{}

func (noScript) Error() string { return "NOSCRIPT wrongClock" }
func (noScript) RedisError()   {}

func (*wrongClock) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		return next(ctx, network, address)
	}
}

func (c *wrongClock) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "evalsha" {
			cmd.SetErr(noScript{})
			return noScript{}
		}
		c.rewrite(cmd)
		return next(ctx, cmd)
	}
}

func (c *wrongClock) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			if cmd.Name() == "evalsha" {
				for _, cmd := range cmds {
					cmd.SetErr(noScript{})
				}
				return noScript{}
			}
			c.rewrite(cmd)
		}
		return next(ctx, cmds)
	}
}

func (c *wrongClock) rewrite(cmd redis.Cmder) {
	if args := cmd.Args(); cmd.Name() == "eval" {
		const shifted = "(function() local t = redis.call('TIME') return {t[1] + (%d), t[2]} end)()"
		text := args[1].(string)
		args[1] = strings.ReplaceAll(text, "redis.call('TIME')", fmt.Sprintf(shifted, c.seconds.Load()))
	}
}

// newWrongStore opens a store on a Redis whose clock is wrong by so much.
func newWrongStore(t *testing.T, url string, by time.Duration) *redisstore.Store {
	t.Helper()
	s, _ := newMovableStore(t, url, by)
	return s
}

// newMovableStore is newWrongStore with a clock that the test can move.
func newMovableStore(t *testing.T, url string, by time.Duration) (*redisstore.Store, *wrongClock) {
	t.Helper()
	clock := &wrongClock{}
	clock.move(by)
	s := stores.New(t, redisstore.Options{URL: url, Instrument: func(client redis.UniversalClient) error {
		client.AddHook(clock)
		return nil
	}})
	require.InDelta(t, int64(lastseen.InstantOf(time.Now()).Add(by)), int64(kit.Now(t, s)), 60_000)
	return s, clock
}

// move has scripts see a time that is wrong by so much.
func (c *wrongClock) move(by time.Duration) { c.seconds.Store(int64(by / time.Second)) }

const years = 20 * 365 * 24 * time.Hour

// TestVisibleWhileTheClockIsAhead: a user who becomes visible while the clock is years ahead is seen after it was set
// right; one who is still invisible is not.
func TestVisibleWhileTheClockIsAhead(t *testing.T) {
	t.Parallel()
	url := redistest.Start(t)
	right, ahead := newWrongStore(t, url, 0), newWrongStore(t, url, years)
	for _, user := range []string{"alice", "bob", "carol"} {
		require.Equal(t, lastseen.State{At: kit.Base}, kit.Ping(t, right, user, kit.Base))
	}
	for _, user := range []string{"alice", "bob"} {
		require.True(t, availability.Set(t, right, user, availability.Invisible).Left)
	}
	availability.Set(t, ahead, "alice", lastseen.AvailabilityState{})
	require.True(t, availability.Set(t, ahead, "carol", availability.Invisible).Left)
	now := kit.Now(t, right)
	require.Equal(t, lastseen.State{At: now}, kit.Ping(t, right, "alice", now), "the clock cannot keep alice hidden")
	require.True(t, kit.Ping(t, right, "bob", now).Left)
	require.Greater(t, kit.Ping(t, right, "carol", now).At, now, "carol left in the future")
	require.Equal(t, availability.Invisible, availability.Get(t, right, "bob", kit.Now(t, right)))
	require.Equal(t, availability.Invisible, availability.Get(t, right, "carol", kit.Now(t, right)))
}

// TestVisibleWhileTheClockIsBehind: the hidden time ends in the past, so what was hidden may be seen, and nothing else
// stays hidden.
func TestVisibleWhileTheClockIsBehind(t *testing.T) {
	t.Parallel()
	url := redistest.Start(t)
	right, behind := newWrongStore(t, url, 0), newWrongStore(t, url, -years)
	start := kit.Now(t, right)
	availability.Set(t, right, "alice", availability.Invisible)
	left := kit.Lookup(t, right, "alice")[0]
	require.Equal(t, left, kit.Ping(t, behind, "alice", kit.Now(t, behind)), "hidden without an end")
	availability.Set(t, behind, "alice", availability.Busy)
	require.Equal(t, left, kit.Lookup(t, right, "alice")[0])
	require.Equal(t, lastseen.State{At: start + 1000}, kit.Ping(t, right, "alice", start+1000))

	require.Equal(t, lastseen.State{At: start}, kit.Ping(t, right, "bob", start))
	state := availability.Set(t, behind, "bob", availability.Invisible)
	require.Equal(t, lastseen.State{At: start, Left: true}, state, "the user's time is later")
	require.Equal(t, state, kit.Ping(t, right, "bob", kit.Now(t, right)))
}

// TestWrongClockDeletesNothing: with Redis years ahead, what has not ended by a caller's time stays.
func TestWrongClockDeletesNothing(t *testing.T) {
	ctx, url, client := stores.StartRedis(t)
	right, ahead := newWrongStore(t, url, 0), newWrongStore(t, url, years)
	now := kit.Now(t, right)
	hour := lastseen.AvailabilityState{Availability: lastseen.Away, Until: now.Add(time.Hour)}
	availability.Set(t, right, "alice", hour)
	availability.Set(t, right, "bob", availability.Until(now.Add(time.Hour), availability.Invisible))
	availability.SetAt(t, ahead, "carol", availability.Busy, now)
	require.NoError(t, right.Forget(ctx, "chat", "carol"))
	require.False(t, kit.RemoveEmpty(t, right, "chat"))
	require.Equal(t, hour, availability.Get(t, right, "alice", kit.Now(t, right)))
	require.Equal(t, lastseen.Invisible, availability.Get(t, right, "bob", kit.Now(t, right)).Availability)
	require.True(t, kit.Ping(t, right, "bob", now).Left)
	require.Equal(t, int64(1), client.ZCard(ctx, endsKey(stores.Chat)).Val())
	require.Equal(t, []string{"", "bob"}, client.ZRange(ctx, stores.HiddenOfChat, 0, -1).Val())
	_, err := ahead.Trim(ctx, "chat", store.TrimQuery{Age: time.Hour, Now: now, All: true})
	require.ErrorIs(t, err, store.ErrClockMoved)
}
