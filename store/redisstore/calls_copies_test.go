package redisstore_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore"
	callstest "github.com/lastseen/lastseen/store/storetest/calls"
	"github.com/lastseen/lastseen/store/storetest/kit"
	"github.com/lastseen/lastseen/store/storetest/redistest"
	"github.com/lastseen/lastseen/store/storetest/redistest/stores"
)

// testCopiesOfDeadServers: a server can die between any two of a step, copying and confirming. The next ExpireCalls
// does the rest, and then all details say what the calls do. The parties are in several slots.
func testCopiesOfDeadServers(t *testing.T, s *redisstore.Store, of func(user string) string) {
	c := newCallers(t, s)
	shards := map[string]bool{}
	users := func(i int) (from, to string) { return fmt.Sprint("from", i), fmt.Sprint("to", i) }
	const calls = 30
	var ids []string
	// dies makes what a step has recorded as if the server had died before, at a moment that depends on the call.
	dies := func(i int, before lastseen.Instant) {
		from, to := users(i)
		switch i % 3 {
		case 0: // before it copied
			c.SetInCall(from, before)
			c.SetInCall(to, before)
			c.note(from, to)
		case 1: // before it confirmed
			c.note(from, to)
		case 2: // between both shards
			c.SetInCall(to, before)
			c.note(to)
		}
	}
	for i := range calls {
		from, to := users(i)
		shards[of(from)], shards[of(to)] = true, true
		ids = append(ids, c.Accepted(c.Call(from, to)).ID)
		dies(i, 0)
	}
	require.Greater(t, len(shards), 1)
	c.Expire()
	require.Empty(t, c.noted())
	for i := range calls {
		from, to := users(i)
		require.NotContains(t, c.Until(from, to), lastseen.Instant(0))
	}
	for i, id := range ids {
		from, _ := users(i)
		c.Act(id, from, lastseen.End)
		dies(i, kit.Now(t, s).Add(time.Hour))
	}
	c.Expire()
	require.Empty(t, c.noted())
	for i := range calls {
		require.Equal(t, []lastseen.Instant{0, 0}, c.Until(fmt.Sprint("from", i), fmt.Sprint("to", i)))
	}
	require.NoError(t, s.DeleteNamespace(context.Background(), "chat"))
}

// TestSlowCopier: a server that copies an old value after another one has ended the call repairs that, also if the
// context of its step has ended.
func TestSlowCopier(t *testing.T) {
	t.Parallel()
	for _, canceled := range []bool{false, true} {
		url := redistest.Start(t)
		slow := stores.New(t, redisstore.Options{URL: url, Timeout: time.Minute}) // copying fails after four of them
		other := newCallers(t, stores.New(t, redisstore.Options{URL: url}))
		n := other.Call("alice", "bob")
		other.Begin(n)
		ctx, cancel := context.WithCancel(t.Context())
		copies := 0
		slow.AddHook(redisstore.AroundCommands{Before: func(cmd redis.Cmder) {
			if !slices.Contains(cmd.Args(), any(detailsKey(stores.Chat))) {
				return
			}
			if copies++; copies == 1 {
				other.Act(n.ID, n.From, lastseen.End)
				require.Equal(t, []lastseen.Instant{0, 0}, other.Until("alice", "bob"))
				if canceled {
					cancel()
				}
			}
		}})
		step, err := slow.StepCall(ctx, "chat", store.CallAct{ID: n.ID, User: n.To, Action: lastseen.Accept})
		require.NoError(t, err)
		require.Equal(t, lastseen.Active, step.Call.State)
		require.Greater(t, copies, 1, "it copied again")
		require.Equal(t, []lastseen.Instant{0, 0}, other.Until("alice", "bob"))
		require.Empty(t, other.noted())
		cancel()
	}
}

// TestDetailsAreAway: a step is done although details cannot be written, which ExpireCalls then does.
func TestDetailsAreAway(t *testing.T) {
	ctx, url, client := stores.StartRedis(t)
	c := newCallers(t, stores.New(t, redisstore.Options{URL: url}))
	n := c.Call("alice", "bob")
	c.Begin(n)
	require.NoError(t, client.Set(ctx, detailsKey(stores.Chat), "a string", 0).Err())
	require.Equal(t, lastseen.Active, c.Act(n.ID, "bob", lastseen.Accept).Call.State)
	expired := c.Expire()
	require.Equal(t, store.ExpiredCalls{Calls: 1, Kept: 1, Next: store.MaxCallGap / 2}, expired, "it does not hurry")
	require.Equal(t, []string{"alice", "bob"}, c.noted())
	require.NoError(t, client.Del(ctx, detailsKey(stores.Chat)).Err())
	c.expireNoted()
	require.NotContains(t, c.Until("alice", "bob"), lastseen.Instant(0))

	kept := client.Dump(ctx, detailsKey(stores.Chat)).Val()
	require.NoError(t, client.Set(ctx, detailsKey(stores.Chat), "a string", 0).Err())
	c.Act(n.ID, "bob", lastseen.End)
	require.NoError(t, client.RestoreReplace(ctx, detailsKey(stores.Chat), 0, kept).Err())
	require.NotContains(t, c.Until("alice", "bob"), lastseen.Instant(0))
	c.expireNoted()
	require.Equal(t, []lastseen.Instant{0, 0}, c.Until("alice", "bob"))
}

// TestManyNoted: what was left is copied in batches, one at once after the other, and what cannot be copied does not
// keep others from it.
func TestManyNoted(t *testing.T) {
	ctx, url, client := stores.StartRedis(t)
	s := stores.New(t, redisstore.Options{URL: url, Shards: 2})
	c := newCallers(t, s)
	c.Accepted(c.Call("alice", "bob"))
	users := stores.Numbered("user", 3*store.MaxCallBatch)
	c.note(users...)
	for range 3 {
		require.Zero(t, c.Expire().Next)
	}
	require.Equal(t, store.MaxCallGap/2, c.Expire().Next)
	require.Empty(t, c.noted())

	last := "z0"
	for i := 1; redisstore.ShardOf(s, "chat", last) != "presence:chat:0"; i++ {
		last = fmt.Sprint("z", i)
	}
	c.Accepted(c.Call(last, "carol"))
	c.SetInCall(last, 0)
	c.note(last)
	away := slices.DeleteFunc(users, func(user string) bool {
		return redisstore.ShardOf(s, "chat", user) != "presence:chat:1"
	})
	require.Greater(t, len(away), store.MaxCallBatch)
	c.note(away...)
	require.NoError(t, client.Set(ctx, detailsKey("presence:chat:1"), "a string", 0).Err())
	require.NotZero(t, c.Expire().Next, "it does not hurry")
	require.Equal(t, []lastseen.Instant{0}, c.Until(last), "it comes last")
	c.Expire()
	require.NotContains(t, c.Until(last), lastseen.Instant(0))
}

// TestCopiesOfDeadServers is testCopiesOfDeadServers on one Redis.
func TestCopiesOfDeadServers(t *testing.T) {
	t.Parallel()
	url := redistest.Start(t)
	s := stores.New(t, redisstore.Options{URL: url, Shards: 7})
	testCopiesOfDeadServers(t, s, func(user string) string { return redisstore.ShardOf(s, "chat", user) })
	require.Empty(t, stores.NewClient(t, url).Keys(context.Background(), "*").Val())
}

// testCallsInACluster: all keys of calls are in the slot of the first shard, and the details of the parties are in
// others.
func testCallsInACluster(t *testing.T, c *redistest.Cluster) {
	ctx := context.Background()
	s := stores.New(t, redisstore.Options{URL: c.URL(), Shards: 16})
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
	var begun []lastseen.Call
	for i := range 20 {
		begun = append(begun, calls.Accepted(calls.Call(fmt.Sprint("from", i), fmt.Sprint("to", i))))
	}
	key := "presence:chat:0"
	to := c.Next(t, key)
	require.NoError(t, to.Client(t).ScriptFlush(ctx).Err())
	c.MoveSlot(t, c.Slot(t, key), to, func() {})
	calls.Expire()
	for _, call := range begun {
		calls.Act(call.ID, call.To, lastseen.End)
	}
	require.NoError(t, s.DeleteNamespace(ctx, "chat"))
	none()
}

func TestCallsRace(t *testing.T) {
	t.Parallel()
	url := redistest.Start(t)
	one, two := stores.New(t, redisstore.Options{URL: url}), stores.New(t, redisstore.Options{URL: url})
	callstest.RunRaces(t, one, two, testenv.Choose(3000, 300))
}

// TestCallsInFailover: the replica that takes over in mid-call has lost the last steps. Calls go on from what it has,
// and the details of the parties become what the calls are.
func TestCallsInFailover(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	primary := redistest.StartProcess(t, "--repl-diskless-sync-delay", "0")
	replica := redistest.StartReplica(t, primary)
	old, promoted := stores.NewClient(t, primary.URL()), stores.NewClient(t, replica.URL())
	c := newCallers(t, stores.New(t, redisstore.Options{URL: primary.URL()}))
	ends, accepted, begun := c.Call("alice", "bob"), c.Call("carol", "dave"), c.Call("erin", "frank")
	c.Accepted(ends)
	c.Begin(accepted)
	stores.ReplicateAll(t, old)
	require.NoError(t, promoted.Do(ctx, "REPLICAOF", "NO", "ONE").Err())
	c.Act(ends.ID, "alice", lastseen.End)
	c.Act(accepted.ID, "dave", lastseen.Accept)
	c.Begin(begun)
	primary.Stop(t)

	c.Store = stores.New(t, redisstore.Options{URL: replica.URL()})
	require.Equal(t, lastseen.Active, c.Read(ends.ID).State, "the end was lost")
	require.Equal(t, lastseen.Ringing, c.Read(accepted.ID).State)
	_, err := store.ReadCall(ctx, c, "chat", begun.ID)
	require.ErrorIs(t, err, store.ErrCallNotFound)
	c.Act(ends.ID, "alice", lastseen.End)
	c.Act(accepted.ID, "dave", lastseen.Accept)
	c.Begin(begun)
	require.Equal(t, []lastseen.Instant{0, 0}, c.Until("alice", "bob"))
	require.NotContains(t, c.Until("carol", "dave"), lastseen.Instant(0))
}

// TestStepIsSentAgain: the client repeats what Redis has done if the connection breaks before the reply. It is done
// once, and the reply is the same.
func TestStepIsSentAgain(t *testing.T) {
	t.Parallel()
	url := redistest.Start(t)
	s := stores.New(t, redisstore.Options{URL: url, Instrument: func(client redis.UniversalClient) error {
		client.AddHook(sendTwice{})
		return nil
	}})
	c := newCallers(t, s)
	n := c.Call("alice", "bob")
	n.Key = "key"
	step, err := s.StartCall(context.Background(), "chat", n)
	require.NoError(t, err)
	require.Equal(t, lastseen.Stepped, step.Outcome)
	require.Equal(t, int64(1), step.Call.Version)
	step = c.Act(n.ID, "bob", lastseen.Accept)
	require.Equal(t, int64(2), step.Call.Version)
	require.NotContains(t, c.Until("alice", "bob"), lastseen.Instant(0))
	step = c.Act(n.ID, "alice", lastseen.End)
	require.Equal(t, int64(3), step.Call.Version)
	require.Equal(t, []lastseen.Instant{0, 0}, c.Until("alice", "bob"))
	n = c.Call("alice", "bob")
	require.Equal(t, n.ID, c.Begin(n).ID, "without a key")
	require.Equal(t, 2, c.Expire().Kept)
}

// sendTwice sends each script twice, and returns the second reply.
type sendTwice struct{ redistest.AroundCommands }

func (sendTwice) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
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
	client, other := stores.NewClient(t, url), stores.New(t, redisstore.Options{URL: url})
	s := stores.New(t, redisstore.Options{URL: url})
	require.NoError(t, stores.Ping(s, "chat", "alice"))
	end := kit.Now(t, s).Add(time.Hour)
	require.NoError(t, s.SetInCall(ctx, "chat", "alice", end))
	deletes := true
	s.Around("evalsha", func() {
		if deletes {
			deletes = false
			require.NoError(t, other.DeleteNamespace(ctx, "chat"))
		}
	}, func() {})
	require.NoError(t, s.SetInCall(ctx, "chat", "bob", end))
	require.False(t, deletes)
	require.Empty(t, client.Keys(ctx, "*").Val())
}
