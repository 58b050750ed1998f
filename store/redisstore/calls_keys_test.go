package redisstore_test

import (
	"context"
	"fmt"
	"math"
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

// callKey returns the key of something about the calls of chat, in a namespace with one shard.
func callKey(what string) string { return "presence:" + what + ":{presence:chat}" }

// callKeys are all of them, and callKeysOf those of the namespace whose first shard has a key.
func callKeys() []string { return callKeysOf("presence:chat") }

func callKeysOf(shard string) (keys []string) {
	for _, what := range []string{
		"calls", "callapps", "callsdue", "callsover", "callusers", "calloutbox", "callkeys", "callindex",
	} {
		keys = append(keys, "presence:"+what+":{"+shard+"}")
	}
	return keys
}

// TestKeysOfCalls: operators back them up, allow them and read them. See docs/decisions/redis-keys.md.
func TestKeysOfCalls(t *testing.T) {
	ctx, url, client := stores.StartRedis(t)
	c := newCallers(t, stores.New(t, redisstore.Options{URL: url}))
	n := c.Call("alice", "bob")
	n.ID, n.FromDevice, n.Key, n.Digest = "call1", "tab 1", "a key", "d i"
	n.App, n.Timeout = `{"offer":1}`, 30*time.Second
	begun := c.Begin(n)
	require.InDelta(t, 3_600_000, client.ZScore(ctx, callKey("callsdue"), "call1").Val(), 0)
	step := c.Act(n.ID, "bob", lastseen.Accept)
	fields := client.HGetAll(ctx, callKey("calls")).Val()
	require.Len(t, fields, 2)
	clock := strings.Fields(fields[":clock"])
	require.Len(t, clock, 2)
	require.Equal(t, fmt.Sprint(int64(step.Call.Accepted)), clock[0])
	lines := strings.Split(fields["call1"], "\n")
	head := strings.Fields(lines[0])
	due := step.Call.Accepted - begun.Created + 30_000
	want := fmt.Sprintf("active 2 %d %d 0 %d %s %s 30000 %d -s",
		begun.Created, step.Call.Accepted, due, clock[1], clock[1], step.Call.Expires)
	require.Equal(t, want, strings.Join(head[:11], " "))
	require.Equal(t, []string{"alice", "bob", "tab 1", "", "bob", "", "a key"}, lines[1:])
	require.Equal(t, map[string]string{"call1": `{"offer":1}`, "": ""}, client.HGetAll(ctx, callKey("callapps")).Val())
	require.Equal(t, []redis.Z{{Member: "call1", Score: float64(due)}, {Member: "", Score: math.Inf(1)}},
		client.ZRangeWithScores(ctx, callKey("callsdue"), 0, -1).Val())
	require.Equal(t, map[string]string{"alice": "call1", "bob": "call1", "": ""},
		client.HGetAll(ctx, callKey("callusers")).Val())
	require.Equal(t, map[string]string{"alice\x00a key": "call1 d i", "": ""},
		client.HGetAll(ctx, callKey("callkeys")).Val())
	require.Equal(t, []redis.Z{{Member: ""}, {Member: "alice\x00fcall1"}, {Member: "bob\x00tcall1"}},
		client.ZRangeWithScores(ctx, callKey("callindex"), 0, -1).Val())
	require.Empty(t, c.noted(), "both are copied")
	require.Equal(t, []string{"chat"}, client.ZRange(ctx, "presence::calls", 0, -1).Val())

	end := fmt.Sprintf("0/%d - 0 ", step.Call.Expires)
	require.Equal(t, map[string]string{"alice": end, "bob": end}, detailsOf(t, client, stores.Chat))
	score := float64(step.Call.Expires)
	require.Equal(t, []redis.Z{{Member: "alice", Score: score}, {Member: "bob", Score: score}},
		client.ZRangeWithScores(ctx, endsKey(stores.Chat), 0, -1).Val())

	ended := c.Act(n.ID, "alice", lastseen.End)
	require.ElementsMatch(t, append(callKeys(),
		"presence::calls", "presence::meta", "presence::namespaces", sidesKey(stores.Chat)), client.Keys(ctx, "*").Val())
	require.InDelta(t, float64(ended.Call.Over-begun.Created)+600_000,
		client.ZScore(ctx, callKey("callsover"), "call1").Val(), 0)
}

// passKept has the clock of calls pass the time for which calls are kept.
func passKept(t *testing.T, client *redis.Client) {
	t.Helper()
	ctx := context.Background()
	fields := strings.Fields(client.HGet(ctx, callKey("calls"), ":clock").Val())
	require.Len(t, fields, 2)
	var shown int64
	_, err := fmt.Sscan(fields[1], &shown)
	require.NoError(t, err)
	text := fmt.Sprint(fields[0], " ", shown+store.CallsKept.Milliseconds())
	require.NoError(t, client.HSet(ctx, callKey("calls"), ":clock", text).Err())
}

// TestCallsAreDeleted: nothing is left once no call is kept any longer.
func TestCallsAreDeleted(t *testing.T) {
	ctx, url, client := stores.StartRedis(t)
	c := newCallers(t, stores.New(t, redisstore.Options{URL: url}))
	n := c.Call("alice", "bob")
	n.Key, n.App = "k", "1"
	c.Accepted(n)
	c.Act(n.ID, "alice", lastseen.End)
	other := c.Call("alice", "carol")
	c.Begin(other)
	passKept(t, client)
	expired := c.Expire()
	require.Empty(t, expired.Steps)
	require.Equal(t, 1, expired.Kept)
	require.Equal(t, 1, expired.Calls, "it rings for an hour")
	require.Equal(t, []string{"", "alice\x00f" + other.ID, "carol\x00t" + other.ID},
		client.ZRange(ctx, callKey("callindex"), 0, -1).Val())
	require.Equal(t, map[string]string{"": ""}, client.HGetAll(ctx, callKey("callkeys")).Val())

	c.Act(other.ID, "alice", lastseen.End)
	passKept(t, client)
	require.Zero(t, c.Expire().Kept)
	require.Empty(t, client.Keys(ctx, "presence:*call*").Val())

	c.Accepted(n)
	require.NoError(t, c.Forget(ctx, "chat", "alice"))
	c.Expire()
	require.Empty(t, client.Keys(ctx, "presence:*call*").Val())

	c.Accepted(n)
	require.NoError(t, c.DeleteNamespace(ctx, "chat"))
	require.Empty(t, client.Keys(ctx, "*").Val())
}

// TestForeignCalls: text that we would not write counts as no call, is logged once, and goes away.
func TestForeignCalls(t *testing.T) {
	testenv.SkipWithRace(t, "it is about what Redis does")
	ctx, url, client := stores.StartRedis(t)
	good := "active 2 1 1 0 9 1 1 1 1 -s abc\nalice\nbob\n\n\n\n\n"
	for _, text := range []string{
		"", " ", "x", "\x00\xff", "\n\n\n\n\n\n\n", strings.Repeat("x", 5000), good + strings.Repeat("x", 5000),
		strings.Replace(good, "active", "idle", 1), strings.Replace(good, " 2", " -2", 1),
		strings.Replace(good, " 9", " 9999999999999999", 1), strings.Replace(good, " 1 1 0", " 1 0", 1),
		strings.Replace(good, "bob", "alice", 1), strings.Replace(good, "bob", "", 1),
		strings.Replace(good, "-s abc", "", 1), strings.Replace(good, "\n", "", 1),
		strings.Replace(good, " 2", " 2x", 1), strings.Replace(good, " 1 1 0", " 9999999999999999 1 0", 1),
		strings.Replace(good, " 1 1 0", " 1 9999999999999999 0", 1),
		strings.Replace(good, " 1 1 0", " 1 1 9999999999999999", 1),
	} {
		s, log := stores.NewLogged(t, redisstore.Options{URL: url})
		require.NoError(t, s.DeleteNamespace(ctx, "chat"))
		c := newCallers(t, s)
		n := c.Call("alice", "bob")
		n.ID, n.Key = "call1", "k"
		c.Accepted(n)
		fine := c.Call("carol", "dave")
		c.Begin(fine)
		require.NoError(t, client.HSet(ctx, callKey("calls"), n.ID, text).Err())
		_, err := store.ReadCall(ctx, s, "chat", n.ID)
		require.ErrorIs(t, err, store.ErrCallNotFound, "%q", text)
		_, err = s.StepCall(ctx, "chat", store.CallAct{ID: n.ID, User: "bob", Action: lastseen.End})
		require.ErrorIs(t, err, store.ErrCallNotFound, "%q", text)
		calls, err := s.ReadCalls(ctx, "chat", nil, []string{"alice", "carol"})
		require.NoError(t, err)
		require.Equal(t, []string{"", fine.ID}, []string{calls[0].ID, calls[1].ID}, "%q", text)
		require.Empty(t, c.KeepAlive("alice", "bob"))
		n.ID = "other"
		require.Equal(t, "other", c.Begin(n).ID, "nobody is busy, and the key is free: %q", text)
		require.NoError(t, client.ZAdd(ctx, callKey("callsdue"), redis.Z{Member: "call1"}).Err())
		require.Equal(t, 2, c.Expire().Calls, "%q", text)
		require.False(t, client.HExists(ctx, callKey("calls"), "call1").Val(), "%q", text)
		require.NoError(t, s.Close())
		require.Equal(t, 1, log.Count("cannot be read"), "%q: %s", text, log)
	}
}

// TestForeignCallsDoNotCount: what another program left of the calls of a user does not keep the user from calling.
func TestForeignCallsDoNotCount(t *testing.T) {
	ctx, url, client := stores.StartRedis(t)
	c := newCallers(t, stores.New(t, redisstore.Options{URL: url}))
	var n store.NewCall
	for range store.MaxCallsOfUser {
		n = c.Call("alice", "bob")
		c.Begin(n)
		c.Act(n.ID, "alice", lastseen.End)
	}
	_, err := c.StartCall(ctx, "chat", c.Call("alice", "bob"))
	require.ErrorIs(t, err, store.ErrTooManyCalls)
	require.NoError(t, client.HSet(ctx, callKey("calls"), n.ID, "x").Err())
	c.Begin(c.Call("alice", "bob"))
}

// TestForeignCallClock: a clock that cannot be read neither freezes calls nor ends all of them.
func TestForeignCallClock(t *testing.T) {
	ctx, url, client := stores.StartRedis(t)
	c := newCallers(t, stores.New(t, redisstore.Options{URL: url}))
	for _, text := range []string{"", "x", "1", "1 x", "99999999999999999999 1", "1 99999999999999999999"} {
		require.NoError(t, c.DeleteNamespace(ctx, "chat"))
		first, second := c.Call("alice", "bob"), c.Call("carol", "dave")
		first.Ring = time.Minute
		c.Begin(first)
		c.Begin(second)
		require.NoError(t, client.HSet(ctx, callKey("calls"), ":clock", text).Err())
		expired := c.Expire()
		require.Len(t, expired.Steps, 1, "%q", text)
		require.Equal(t, first.ID, expired.Steps[0].Call.ID)
		require.InDelta(t, float64(59*time.Minute.Milliseconds()),
			float64(c.Read(second.ID).Expires-kit.Now(t, c)), 30_000)
	}
}

// TestSizeOfCalls: docs/capacity.md names it.
func TestSizeOfCalls(t *testing.T) {
	testenv.SkipWithRace(t, "it is about what Redis does")
	ctx, url, client := stores.StartRedis(t)
	c := newCallers(t, stores.New(t, redisstore.Options{URL: url}))
	calls := testenv.Choose(2000, 600) // more than a listpack holds
	size := func() (sum int64) {
		for _, key := range callKeys() {
			sum += client.MemoryUsage(ctx, key, 0).Val()
		}
		return sum / int64(calls)
	}
	for i := range calls {
		n := c.Call(fmt.Sprintf("%031da", i), fmt.Sprintf("%031db", i))
		n.ID, n.Key, n.Digest = fmt.Sprintf("%032d", i), fmt.Sprintf("%032d", i), strings.Repeat("d", 43)
		n.FromDevice = fmt.Sprintf("%032d", i)
		c.Accepted(n)
	}
	active := size()
	for i := range calls {
		c.Act(fmt.Sprintf("%032d", i), fmt.Sprintf("%031da", i), lastseen.End)
	}
	over := size()
	t.Logf("%d bytes for an active call, %d for one that is over", active, over)
	require.LessOrEqual(t, active, int64(2000))
	require.LessOrEqual(t, over, int64(1250))
}
