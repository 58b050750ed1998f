package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
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
	"github.com/lastseen/lastseen/store/storetest/redistest/stores"
)

// TestCallsOnCluster is what leaves a Cluster as it was: the slot that has all calls of a namespace moves.
func TestCallsOnCluster(t *testing.T) {
	testenv.RequireFull(t)
	t.Parallel()
	c := redistest.StartCluster(t, 0)
	for name, test := range map[string]func(*testing.T, *redistest.Cluster, *movingCalls){
		"Slots": testCallsWhileSlotsMove, "HalfMoved": testCallsInHalfASlot, "Last": testLastCallWhileSlotMoves,
	} {
		t.Run(name, func(t *testing.T) {
			o := redisstore.Options{URL: c.URL(), Shards: 7, Timeout: 2 * time.Second}
			m := &movingCalls{callers: newCallers(t, stores.New(t, o)), other: stores.New(t, o), cluster: c}
			call := m.Accepted(m.Call("alice", "bob")) // so that the namespace exists
			m.Act(call.ID, "alice", lastseen.End)
			test(t, c, m)
			require.NoError(t, m.DeleteNamespace(context.Background(), "chat"))
			require.Empty(t, keysOf(t, c))
		})
	}
}

// movingCalls are calls while the slot that has them moves.
type movingCalls struct {
	callstest.History
	*callers
	other store.Store

	mu      sync.Mutex
	cluster *redistest.Cluster
	refused int // calls of the store that failed as unavailable

	due   []store.NewCall // calls whose steps are not done yet
	begun map[string]int  // by call: how many steps began it
	pairs int             // of users who called each other
}

// try counts a call of the store that failed as unavailable, and reports whether it succeeded.
func (m *movingCalls) try(err error) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case errors.Is(err, store.ErrUnavailable):
		m.refused++
	case err != nil && !errors.Is(err, store.ErrCallNotFound):
		m.Errorf("neither done nor an outage: %v", err)
	}
	return err == nil
}

// begin begins calls that ring: some of them for a moment.
func (m *movingCalls) begin(n int) {
	for i := range n {
		m.pairs++
		call := m.Call(fmt.Sprint("from", m.pairs), fmt.Sprint("to", m.pairs))
		call.Key = call.ID
		if i%3 == 0 {
			call.Ring = time.Millisecond
		}
		m.due = append(m.due, call)
	}
}

// next does what is to be done in all calls once more, or for the first time: parties and two servers race. It is as in
// callstest.RunRaces, but everything may fail.
func (m *movingCalls) next() {
	m.Helper()
	ctx := context.Background()
	var all sync.WaitGroup
	for _, n := range m.due {
		all.Go(func() { m.race(n) })
	}
	all.Wait()
	active := make([]store.KeepAlive, len(m.due))
	for i, n := range m.due {
		active[i].User = n.To
	}
	result, err := m.KeepCallsAlive(ctx, "chat", active)
	m.try(err)
	m.Saw(result.Steps...)
	expired, err := m.other.ExpireCalls(ctx, "chat")
	m.try(err)
	m.Saw(expired.Steps...)
	_, err = store.ReadCall(ctx, m, "chat", m.due[0].ID)
	m.try(err)
}

// race begins a call once more, or for the first time, and has its parties race.
func (m *movingCalls) race(n store.NewCall) {
	step, err := m.StartCall(context.Background(), "chat", n)
	if m.try(err) && step.Outcome == lastseen.Stepped {
		m.mu.Lock()
		m.begun[n.ID]++
		m.mu.Unlock()
	}
	var racing sync.WaitGroup
	for _, act := range []func(){
		func() { m.tryMoved(m.Store, n.ID, n.To, lastseen.Accept) },
		func() { m.tryMoved(m.other, n.ID, n.From, lastseen.End) },
		func() { m.tryMoved(m.other, n.ID, n.To, lastseen.Reject) },
	} {
		racing.Go(act)
	}
	racing.Wait()
}

func (m *movingCalls) tryMoved(s store.Store, id, user string, action lastseen.CallAction) {
	step, err := s.StepCall(context.Background(), "chat", store.CallAct{ID: id, User: user, Action: action})
	if m.try(err) {
		m.Saw(step)
	}
}

// finish does everything once more, now that the slot does not move, and checks that each call began once and was
// decided once, and that nothing is left to be copied.
func (m *movingCalls) finish() {
	m.Helper()
	refused := m.refused
	stores.UntilSuccess(m.T, func() error { _, err := m.ExpireCalls(context.Background(), "chat"); return err })
	m.next()
	require.Equal(m, refused, m.refused, "the slot does not move any longer")
	m.Expire()
	for _, n := range m.due {
		require.Equal(m, 1, m.begun[n.ID])
		call := m.Read(n.ID)
		require.NoError(m, m.Check(call))
		require.NotEqual(m, lastseen.Ringing, call.State)
		for _, until := range m.Until(n.From, n.To) {
			require.Equal(m, call.State == lastseen.Active, until != 0, "%s: %v", call.State, until)
		}
		if call.State == lastseen.Active {
			m.Act(n.ID, n.From, lastseen.End)
		}
	}
	m.Expire()
	for _, n := range m.due {
		require.Equal(m, []lastseen.Instant{0, 0}, m.Until(n.From, n.To))
	}
	require.Empty(m, m.noted())
	m.due = nil
}

// nextServed is next while all keys of calls are on one node of two.
func (m *movingCalls) nextServed() {
	m.Helper()
	m.begin(1)
	refused := m.refused
	m.next()
	require.Equal(m, refused, m.refused, "all keys are on one node")
}

// testCallsWhileSlotsMove moves the slot as operators do.
func testCallsWhileSlotsMove(t *testing.T, c *redistest.Cluster, m *movingCalls) {
	m.begun = map[string]int{}
	m.begin(3)
	c.MoveSlot(t, c.Slot(t, callSlot), c.Next(t, callSlot), func() {
		m.next()
		m.begin(1)
	})
	m.finish()
	require.Zero(t, m.refused, "all keys are on one node, or on the other")
}

// callSlot is a key in the slot that has all calls.
const callSlot = "presence:chat:0"

// testCallsInHalfASlot: of the keys of calls some have moved and some have not. Only what needs keys
// of both nodes fails.
func testCallsInHalfASlot(t *testing.T, c *redistest.Cluster, m *movingCalls) {
	slot := c.Slot(t, callSlot)
	rings, stays := m.Call("carol", "dave"), m.Call("erin", "frank")
	rings.App, rings.Key = "{}", "key"
	m.Begin(rings)
	m.Accepted(stays)
	keys := callKeysOf(callSlot)
	for _, first := range []string{keys[0], keys[5], keys[7]} { // a hash and sorted sets
		m.begun = map[string]int{}
		m.begin(2)
		m.next()
		from := c.Owner(t, callSlot).Client(t)
		move := c.BeginMove(t, slot, c.Next(t, callSlot))
		m.nextServed()
		move.Keys(t, first)
		m.begin(1)
		m.next()
		move.Keys(t, from.ClusterGetKeysInSlot(context.Background(), slot, 100).Val()...)
		m.nextServed()
		move.End(t)
		m.finish()
		require.Equal(t, lastseen.Ringing, m.Read(rings.ID).State)
		require.Equal(t, lastseen.Active, m.Read(stays.ID).State)
	}
	m.Act(rings.ID, "carol", lastseen.End)
	m.Act(stays.ID, "erin", lastseen.End)
	require.Positive(t, m.refused, "no step met a slot that moves")
}

// testLastCallWhileSlotMoves: the last call that is kept is deleted while its slot moves, with all keys. After that,
// calls are read, and users are forgotten, while the slot moves.
func testLastCallWhileSlotMoves(t *testing.T, c *redistest.Cluster, m *movingCalls) {
	ctx := context.Background()
	for _, remove := range []func(kept *redis.Client){
		func(*redis.Client) {
			require.NoError(t, m.Forget(ctx, "none", "alice"))
			_, details, err := m.Describe(ctx, "none", []string{"bob"})
			require.NoError(t, err)
			require.Zero(t, details["bob"].InCallUntil)
		},
		func(kept *redis.Client) {
			_, err := m.StepCall(ctx, "none", store.CallAct{ID: "call", User: "alice", Action: lastseen.End})
			require.NoError(t, err)
			passed := kept.HSet(ctx, "presence:calls:{presence:none:0}", ":clock", "0 99999999999")
			require.NoError(t, passed.Err())
			expired, err := m.ExpireCalls(ctx, "none")
			require.NoError(t, err)
			require.Zero(t, expired.Kept)
		},
	} {
		_, err := m.StartCall(ctx, "none", store.NewCall{
			ID: "call", From: "alice", To: "bob", Ring: time.Hour, Timeout: time.Hour, Shown: true,
		})
		require.NoError(t, err)
		_, err = m.StepCall(ctx, "none", store.CallAct{ID: "call", User: "bob", Action: lastseen.Accept})
		require.NoError(t, err)
		testLastCall(t, c, m, remove)
	}
}

// testLastCall has the last call deleted.
func testLastCall(t *testing.T, c *redistest.Cluster, m *movingCalls, remove func(*redis.Client)) {
	ctx, key := context.Background(), "presence:none:0"
	from := c.Owner(t, key).Client(t)
	move := beginMove(t, c, key)
	listed := c.Owner(t, "presence::calls").Client(t)
	remove(from)
	keys := callKeysOf(key)
	require.Zero(t, from.Exists(ctx, slices.DeleteFunc(keys, func(key string) bool {
		return key == "presence:calloutbox:{presence:none:0}" // is emptied after the move
	})...).Val())
	check := func() {
		t.Helper()
		require.NoError(t, listed.ZAdd(ctx, "presence::calls", redis.Z{Member: "none"}).Err())
		calls, err := m.ReadCalls(ctx, "none", nil, []string{"alice", "bob"})
		require.NoError(t, err)
		require.Equal(t, make([]lastseen.Call, 2), calls)
		_, err = store.ReadCall(ctx, m, "none", "id")
		require.ErrorIs(t, err, store.ErrCallNotFound)
		_, err = m.StepCall(ctx, "none", store.CallAct{ID: "id", User: "alice", Action: lastseen.End})
		require.ErrorIs(t, err, store.ErrCallNotFound)
		active, err := m.KeepCallsAlive(ctx, "none", []store.KeepAlive{{User: "alice"}})
		require.NoError(t, err)
		require.Equal(t, store.KeptAlive{Calls: make([]store.AliveCall, 1)}, active)
		require.NoError(t, m.Forget(ctx, "none", "alice"))
	}
	check()
	move.Keys(t, from.ClusterGetKeysInSlot(ctx, c.Slot(t, key), 100).Val()...)
	check()
	move.End(t)
	check()
	require.NoError(t, m.DeleteNamespace(ctx, "none"))
}
