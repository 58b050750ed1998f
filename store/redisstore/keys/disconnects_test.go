package keys

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/storetest/kit"
	"github.com/lastseen/lastseen/store/storetest/redistest/stores"
)

const disconnectsKey = "presence::closings"

// closer asks to close connections, and reads what was asked.
type closer struct {
	*testing.T
	s        store.Store
	position store.DisconnectPosition
}

func newCloser(t *testing.T, s store.Store) *closer {
	c := &closer{T: t, s: s}
	require.Empty(t, c.read(), "the empty position is the present")
	return c
}

func (c *closer) close(users ...string) {
	c.Helper()
	for _, user := range users {
		require.NoError(c, c.s.CloseConnections(context.Background(), "chat", user))
	}
}

// lossReport is what [closer.read] returns for the report of a loss.
const lossReport = "LOSS"

func (c *closer) read() (users []string) {
	c.Helper()
	all, next, err := c.s.Disconnects(context.Background(), c.position)
	require.NoError(c, err)
	for _, disconnect := range all {
		if disconnect == (store.Disconnect{}) {
			disconnect.User = lossReport
		}
		users = append(users, disconnect.User)
	}
	c.position = next
	return users
}

// TestKeyOfDisconnects: see docs/decisions/redis-keys.md.
func TestKeyOfDisconnects(t *testing.T) {
	ctx, url, client := stores.StartRedis(t)
	c := &closer{T: t, s: stores.New(t, redisstore.Options{URL: url})}
	c.close("alice b")
	require.Empty(t, c.read(), "the empty position is the present")
	require.Equal(t, []string{disconnectsKey}, client.Keys(ctx, "*").Val())
	c.position = "0"
	entries := client.ZRangeWithScores(ctx, disconnectsKey, 0, -1).Val()
	require.Len(t, entries, 1)
	require.Equal(t, fmt.Sprintf("%.0f 0 chat alice b", entries[0].Score), entries[0].Member)
	require.Equal(t, []string{"alice b"}, c.read())
	ttl := client.PTTL(ctx, disconnectsKey).Val()
	require.Greater(t, ttl, store.DisconnectsKept-time.Minute, "also the last ones are deleted: they can name users")
	require.LessOrEqual(t, ttl, store.DisconnectsKept)
}

// TestMarks: readers notice that Redis lost its data, also if nobody has asked to close anything: there is always a
// mark, which closes nothing. It is renewed before it is forgotten.
func TestMarks(t *testing.T) {
	ctx, client, s := stores.Start(t)
	readers := []*closer{newCloser(t, s), newCloser(t, s)}
	requireMarks := func(want int, users ...string) {
		t.Helper()
		for _, c := range readers {
			require.Equal(t, users, c.read())
			require.Empty(t, c.read(), "once")
		}
		require.Len(t, client.ZRange(ctx, disconnectsKey, 0, -1).Val(), want)
	}
	for range 2 { // also right after the first read, and right after a loss
		require.NoError(t, client.FlushAll(ctx).Err())
		requireMarks(1, lossReport)
	}

	require.NoError(t, client.Del(ctx, disconnectsKey).Err())
	old := kit.Now(t, s).Add(-store.DisconnectsKept/2) - 1
	mark := redis.Z{Score: float64(old), Member: fmt.Sprintf("%d 0  ", int64(old))}
	require.NoError(t, client.ZAdd(ctx, disconnectsKey, mark).Err())
	readers[0].position, readers[1].position = "0", "0"
	requireMarks(2)
	require.NoError(t, client.ZRemRangeByRank(ctx, disconnectsKey, -1, -1).Err())
	requireMarks(2, lossReport)
}

// TestLostDisconnects: Redis loses all of them, or the last ones, also the one that a reader saw last. What comes then
// is not missed, and the loss is reported once.
func TestLostDisconnects(t *testing.T) {
	ctx, client, s := stores.Start(t)
	for name, lose := range map[string]func() error{
		"all":         func() error { return client.FlushAll(ctx).Err() },
		"the end":     func() error { return client.ZRemRangeByRank(ctx, disconnectsKey, -1, -1).Err() },
		"more":        func() error { return client.ZRemRangeByRank(ctx, disconnectsKey, -2, -1).Err() },
		"all but one": func() error { return client.ZRemRangeByRank(ctx, disconnectsKey, 1, -1).Err() },
	} {
		require.NoError(t, client.FlushAll(ctx).Err())
		c := newCloser(t, s)
		c.close("a", "b", "c")
		require.Equal(t, []string{"a", "b", "c"}, c.read(), name)
		require.NoError(t, lose(), name)
		c.close("d")
		require.Subset(t, c.read(), []string{lossReport, "d"}, name)
		require.Empty(t, c.read(), name)
		require.NoError(t, lose(), name)
		users := c.read()
		require.Contains(t, users, lossReport, name)
		require.NotContains(t, users, "d", name)
		c.close("e", "f")
		require.Equal(t, []string{"e", "f"}, c.read(), name)
		require.Empty(t, c.read(), name)
	}
}

// TestDisconnectsWhenTheClockIsSetBack: the newest one is from the future then. Later ones come after it, with the time
// of the clock as it is.
func TestDisconnectsWhenTheClockIsSetBack(t *testing.T) {
	ctx, client, s := stores.Start(t)
	c := newCloser(t, s)
	now := kit.Now(t, s)
	future := now + 20*365*24*60*kit.Minute
	require.NoError(t, client.ZAdd(ctx, disconnectsKey, redis.Z{
		Score: float64(future), Member: fmt.Sprintf("%d 0 chat old", int64(future)),
	}).Err())
	require.Equal(t, []string{"old"}, c.read())
	position := c.position
	c.close("alice", "bob", "alice")
	require.Equal(t, []string{"bob", "alice"}, c.read())
	all, _, err := s.Disconnects(ctx, position)
	require.NoError(t, err)
	for _, disconnect := range all {
		require.InDelta(t, int64(now), int64(disconnect.At), float64(60*kit.Minute))
	}
}

// TestDisconnectsAreBounded: in number and in age.
func TestDisconnectsAreBounded(t *testing.T) {
	testenv.SkipWithRace(t, "it is about what Redis does")
	ctx, client, s := stores.Start(t)
	now := kit.Now(t, s)
	fill := func(n int, first lastseen.Instant) {
		pipe := client.Pipeline()
		for i := range n {
			at := int64(first) + int64(i)
			pipe.ZAdd(ctx, disconnectsKey, redis.Z{Score: float64(at), Member: fmt.Sprintf("%d 0 chat u%d", at, i)})
		}
		_, err := pipe.Exec(ctx)
		require.NoError(t, err)
	}
	c := &closer{T: t, s: s, position: "0"}
	fill(100, now.Add(-store.DisconnectsKept)-1000)
	fill(store.MaxDisconnects+200, now-store.MaxDisconnects-1000)
	c.close("alice")
	users := c.read()
	require.Len(t, users, store.MaxDisconnects)
	require.Equal(t, "alice", users[len(users)-1])
	require.NoError(t, client.Del(ctx, disconnectsKey).Err())
	fill(3, now.Add(-store.DisconnectsKept)-1000)
	fill(2, now.Add(-store.DisconnectsKept/2))
	c.close("alice")
	c.position = "0"
	require.Equal(t, []string{"u0", "u1", "alice"}, c.read())
}

// TestForeignDisconnects: members that we would not write are skipped.
func TestForeignDisconnects(t *testing.T) {
	ctx, url, client := stores.StartRedis(t)
	c := newCloser(t, stores.New(t, redisstore.Options{URL: url}))
	c.close("alice")
	score := client.ZRangeWithScores(ctx, disconnectsKey, -1, -1).Val()[0].Score
	for i, member := range []string{"", "x", "1 0 chat", "x 0 chat alice", strings.Repeat(" ", 9)} {
		z := redis.Z{Score: score + float64(i) + 1, Member: member}
		require.NoError(t, client.ZAdd(ctx, disconnectsKey, z).Err())
	}
	c.close("bob")
	users := c.read()
	require.Equal(t, "alice", users[0])
	require.Equal(t, "bob", users[len(users)-1])
	require.NoError(t, client.Set(ctx, disconnectsKey, "a string", 0).Err())
	require.ErrorIs(t, c.s.CloseConnections(ctx, "chat", "alice"), store.ErrWrongType)
	_, _, err := c.s.Disconnects(ctx, c.position)
	require.ErrorIs(t, err, store.ErrWrongType)
}
