package redisstore_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore"
	callstest "github.com/lastseen/lastseen/store/storetest/calls"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// testCopiesOfDeadServers: a server can die between any two of a step, copying and confirming. Another one finds what
// it left, and then all details say what the calls do. The parties are in several slots.
func testCopiesOfDeadServers(t *testing.T, s store.Store, of func(user string) string) {
	c := newCallers(t, s)
	c.name = "dead"
	shards := map[string]bool{}
	users := func(i int) (from, to string) { return fmt.Sprint("from", i), fmt.Sprint("to", i) }
	const calls = 30
	for i := range calls {
		from, to := users(i)
		shards[of(from)], shards[of(to)] = true, true
		in := c.active(c.newCall(from, to)).InCall
		switch i % 3 { // how far the server came
		case 1:
			c.set(in)
		case 2:
			c.set(in[:1])
			require.Empty(t, c.confirm(in[:1]))
		}
	}
	require.Greater(t, len(shards), 1)
	other := newCallers(t, s) // the other server
	other.copyAll()
	for i := range calls {
		from, to := users(i)
		require.NotContains(t, c.until(from, to), lastseen.Instant(0))
	}
	for i := range calls {
		from, _ := users(i)
		in := c.act(fmt.Sprint("dead", i+1), from, lastseen.End).InCall
		switch i % 3 {
		case 1:
			c.set(in)
		case 2:
			c.set(in[:1])
			require.Empty(t, c.confirm(in[:1]))
		}
	}
	other.copyAll()
	for i := range calls {
		require.Equal(t, []lastseen.Instant{0, 0}, c.until(fmt.Sprint("from", i), fmt.Sprint("to", i)))
	}
	require.NoError(t, s.DeleteNamespace(context.Background(), "chat"))
}

// TestCopiesOfDeadServers is testCopiesOfDeadServers on one Redis.
func TestCopiesOfDeadServers(t *testing.T) {
	t.Parallel()
	url := redistest.Start(t)
	s := newStore(t, redisstore.Options{URL: url, Shards: 7})
	testCopiesOfDeadServers(t, s, func(user string) string { return redisstore.ShardOf(s, "chat", user) })
	require.Empty(t, newClient(t, url).Keys(context.Background(), "*").Val())
}

// testCallsInACluster: all keys of calls are in the slot of the first shard, and the details of the parties are in
// others.
func testCallsInACluster(t *testing.T, c *redistest.Cluster) {
	ctx := context.Background()
	s := newStore(t, redisstore.Options{URL: c.URL(), Shards: 16})
	for _, what := range []string{"calls", "calloutbox", "callindex"} {
		require.Equal(t, c.Slot(t, "presence:chat:0"), c.Slot(t, "presence:"+what+":{presence:chat:0}"))
	}
	owners := map[*redistest.Process]bool{}
	testCopiesOfDeadServers(t, s, func(user string) string {
		key := redisstore.ShardOf(s, "chat", user)
		owners[c.Owner(t, key)] = true
		return key
	})
	require.Len(t, owners, 3)
	none := func() { // others use the Cluster, too
		for _, key := range keysOf(t, c) {
			require.NotContains(t, key, "chat")
		}
	}
	none()

	calls := newCallers(t, s)
	for i := range 20 {
		calls.active(calls.newCall(fmt.Sprint("from", i), fmt.Sprint("to", i)))
	}
	key := "presence:chat:0"
	to := c.Primaries[0]
	if c.Owner(t, key) == to {
		to = c.Primaries[1]
	}
	require.NoError(t, to.Client(t).ScriptFlush(ctx).Err())
	c.MoveSlot(t, c.Slot(t, key), to, func() {})
	calls.copyAll()
	for i := range 20 {
		calls.act(fmt.Sprint("call", i+1), fmt.Sprint("to", i), lastseen.End)
	}
	require.NoError(t, s.DeleteNamespace(ctx, "chat"))
	none()
}

func TestCallsRace(t *testing.T) {
	t.Parallel()
	url := redistest.Start(t)
	one, two := newStore(t, redisstore.Options{URL: url}), newStore(t, redisstore.Options{URL: url})
	callstest.RunRaces(t, one, two, testenv.Choose(3000, 300))
}

// TestCallsInFailover: the replica that takes over in mid-call has lost the last steps. Calls go on from what it has,
// and the details of the parties become what the calls are.
func TestCallsInFailover(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	primary := redistest.StartProcess(t, "--repl-diskless-sync-delay", "0")
	replica := startReplica(t, primary)
	old, promoted := newClient(t, primary.URL()), newClient(t, replica.URL())
	c := newCallers(t, newStore(t, redisstore.Options{URL: primary.URL()}))
	ends, accepted, begun := c.newCall("alice", "bob"), c.newCall("carol", "dave"), c.newCall("erin", "frank")
	c.active(ends)
	c.copyAll()
	c.start(accepted)
	replicateAll(t, old)
	require.NoError(t, promoted.Do(ctx, "REPLICAOF", "NO", "ONE").Err())
	c.act(ends.ID, "alice", lastseen.End)
	c.act(accepted.ID, "dave", lastseen.Accept)
	c.copyAll()
	c.start(begun)
	primary.Stop(t)

	c.Store = newStore(t, redisstore.Options{URL: replica.URL()})
	require.Equal(t, lastseen.Active, c.read(ends.ID).State, "the end was lost")
	require.Equal(t, lastseen.Ringing, c.read(accepted.ID).State)
	_, err := c.ReadCall(ctx, "chat", begun.ID)
	require.ErrorIs(t, err, store.ErrCallNotFound)
	c.act(ends.ID, "alice", lastseen.End)
	c.act(accepted.ID, "dave", lastseen.Accept)
	c.start(begun)
	c.copyAll()
	require.Equal(t, []lastseen.Instant{0, 0}, c.until("alice", "bob"))
	require.NotContains(t, c.until("carol", "dave"), lastseen.Instant(0))
}

// TestStepIsSentAgain: the client repeats what Redis has done if the connection breaks before the reply. It is done
// once, and the reply is the same.
func TestStepIsSentAgain(t *testing.T) {
	t.Parallel()
	url := redistest.Start(t)
	again := &sendTwice{}
	s := newStore(t, redisstore.Options{URL: url, Instrument: func(client redis.UniversalClient) error {
		client.AddHook(again)
		return nil
	}})
	c := newCallers(t, s)
	n := c.newCall("alice", "bob")
	n.Key = "key"
	step, err := s.StartCall(context.Background(), "chat", n)
	require.NoError(t, err)
	require.Equal(t, lastseen.Stepped, step.Outcome)
	require.Equal(t, int64(1), step.Call.Version)
	step = c.act(n.ID, "bob", lastseen.Accept)
	require.Equal(t, int64(2), step.Call.Version)
	require.Len(t, step.InCall, 2)
	require.NotZero(t, step.InCall[0].Until)
	step = c.act(n.ID, "alice", lastseen.End)
	require.Equal(t, int64(3), step.Call.Version)
	require.Equal(t, []store.InCall{{User: "alice"}, {User: "bob"}}, step.InCall)
	n = c.newCall("alice", "bob")
	require.Equal(t, n.ID, c.start(n).ID, "without a key")
	require.Equal(t, 2, c.expire().Kept)
}

// sendTwice sends each script twice, and returns the second reply.
type sendTwice struct{}

func (*sendTwice) DialHook(next redis.DialHook) redis.DialHook { return next }

func (*sendTwice) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (*sendTwice) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if cmd.Name() == "eval" || cmd.Name() == "evalsha" {
			err = next(ctx, cmd)
		}
		return err
	}
}

// TestInCallsOfDeletedNamespace: another server deletes the namespace while this one copies. Nothing is left.
func TestInCallsOfDeletedNamespace(t *testing.T) {
	t.Parallel()
	ctx, url := context.Background(), redistest.Start(t)
	client, other := newClient(t, url), newStore(t, redisstore.Options{URL: url})
	s := newStore(t, redisstore.Options{URL: url})
	require.NoError(t, ping(s, "chat", "alice"))
	end := nowOf(t, s).Add(time.Hour)
	in := []store.InCall{{User: "alice", Until: end}, {User: "bob", Until: end}}
	require.NoError(t, s.SetInCalls(ctx, "chat", in))
	deletes := true
	s.Around("evalsha", func() {
		if deletes {
			deletes = false
			require.NoError(t, other.DeleteNamespace(ctx, "chat"))
		}
	}, func() {})
	require.NoError(t, s.SetInCalls(ctx, "chat", in))
	require.False(t, deletes)
	require.Empty(t, client.Keys(ctx, "*").Val())
}
