package coalesce

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store"
)

func TestMain(m *testing.M) {
	testenv.LimitWalks(100)
	goleak.VerifyTestMain(m)
}

// rig is a wrapped fake with waiting callers.
type rig struct {
	*testing.T
	fake *fake
	s    *Store
}

// result is what a caller got, once it is done.
type result struct {
	states []lastseen.State
	err    error
	done   bool
}

// inBubble runs a test in a bubble, whose clock moves only when every goroutine waits. Batches of the named nodes are
// held until letGo.
func inBubble(t *testing.T, o Options, held []string, test func(*rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{hold: map[string]chan struct{}{}, broken: map[string]error{}}
		for _, node := range held {
			f.hold[node] = make(chan struct{})
		}
		r := &rig{T: t, fake: f, s: New(f, o)}
		defer func() {
			for _, gate := range f.hold {
				close(gate)
			}
			require.NoError(t, r.s.Close())
			synctest.Wait()
		}()
		test(r)
	})
}

// ping starts a ping of users and returns when it waits or is answered.
func (r *rig) ping(ctx context.Context, namespace string, users ...string) *result {
	batch := make([]store.Sighting, len(users))
	for i, user := range users {
		batch[i] = store.Sighting{User: user, At: lastseen.Instant(i + 1)}
	}
	c := &result{}
	go func() {
		c.states, c.err = r.s.Ping(ctx, namespace, batch)
		c.done = true
	}()
	synctest.Wait()
	return c
}

func (r *rig) lookup(namespace string, users ...string) *result {
	c := &result{}
	go func() {
		c.states, c.err = r.s.Lookup(context.Background(), namespace, users)
		c.done = true
	}()
	synctest.Wait()
	return c
}

// drains closes the store while two batches with these calls are in progress, and checks that they are answered first.
func (r *rig) drains(calls ...*result) {
	r.Helper()
	var closing sync.WaitGroup
	closing.Go(func() { require.NoError(r, r.s.Close()) })
	synctest.Wait()
	require.ErrorIs(r, r.ping(context.Background(), "chat", "carol").err, store.ErrClosed)
	require.ErrorIs(r, r.lookup("chat", "carol").err, store.ErrClosed)
	require.False(r, r.fake.closed, "not while something is on its way")
	r.letGo()
	r.letGo()
	closing.Wait()
	r.answered(calls...)
	require.True(r, r.fake.closed)
}

// letGo releases one held batch of the node without a name.
func (r *rig) letGo() {
	r.fake.hold[""] <- struct{}{}
	synctest.Wait()
}

func (r *rig) answered(calls ...*result) {
	r.Helper()
	for _, c := range calls {
		require.True(r, c.done)
		require.NoError(r, c.err)
	}
}

func crowd(n int) []string {
	users := make([]string, n)
	for i := range users {
		users[i] = fmt.Sprint("u", i)
	}
	return users
}

// sizes returns how many users of which namespace the batches were about: "chat:2 game:1".
func (r *rig) sizes() []string {
	var sizes []string
	for _, batch := range r.fake.seen() {
		var parts []string
		for _, part := range strings.Fields(batch) {
			namespace, users, _ := strings.Cut(part, ":")
			parts = append(parts, fmt.Sprintf("%s:%d", namespace, 1+strings.Count(users, ",")))
		}
		sizes = append(sizes, strings.Join(parts, " "))
	}
	return sizes
}

func TestWhatWaitsIsSentTogether(t *testing.T) {
	inBubble(t, Options{}, []string{""}, func(r *rig) {
		ctx := context.Background()
		first := r.ping(ctx, "chat", "alice")
		require.Equal(r, []string{"chat:alice"}, r.fake.seen(), "sent at once")
		bob, carol, dave := r.ping(ctx, "chat", "bob"), r.ping(ctx, "game", "carol"), r.ping(ctx, "chat", "dave",
			"alice")
		require.EqualValues(r, 4, r.s.Stats().Pings.Queued)
		r.letGo()
		r.answered(first)
		require.Equal(r, []string{"chat:alice", "chat:bob,dave,alice game:carol"}, r.fake.seen())
		require.False(r, bob.done, "not before the store has it")
		r.letGo()
		r.answered(bob, carol, dave)
		require.Equal(r, []lastseen.State{{At: 1}}, bob.states)
		require.Equal(r, []lastseen.State{{At: 1}, {At: 2}}, dave.states, "everyone gets their own part")
		require.Equal(r, CallStats{Batches: 2, Members: 5, Largest: 4}, r.s.Stats().Pings)
	})
}

func TestIdleServerAddsNoLatency(t *testing.T) {
	inBubble(t, Options{}, nil, func(r *rig) {
		begun := time.Now() // the bubble's clock moves only when everyone waits for it
		for range 100 {
			_, err := r.s.Ping(context.Background(), "chat", []store.Sighting{{User: "alice", At: 1}})
			require.NoError(r, err)
		}
		require.Zero(r, time.Since(begun))
	})
}

func TestNamespacesTakeTurns(t *testing.T) {
	inBubble(t, Options{NamespaceSize: 3, BatchSize: 8}, []string{""}, func(r *rig) {
		ctx := context.Background()
		r.ping(ctx, "first", "x")
		r.ping(ctx, "bulk", crowd(20)...)
		r.ping(ctx, "small", "alice")
		r.ping(ctx, "other", "bob", "carol")
		for range 5 {
			r.letGo()
		}
		require.Equal(r, []string{
			"first:1", "bulk:3 small:1 other:2", "bulk:3 bulk:3", "bulk:3 bulk:3", "bulk:3 bulk:2",
		}, r.sizes())
	})
}

func TestErrorsAffectTheirNamespaceOnly(t *testing.T) {
	inBubble(t, Options{}, []string{""}, func(r *rig) {
		ctx := context.Background()
		r.fake.broken["strange"] = errBroken
		r.ping(ctx, "chat", "first")
		bad, good := r.ping(ctx, "strange", "bob"), r.ping(ctx, "chat", "carol")
		r.letGo()
		r.letGo()
		r.answered(good)
		require.ErrorIs(r, bad.err, errBroken)
	})
}

func TestCallerGoneFromTheQueue(t *testing.T) {
	inBubble(t, Options{}, []string{""}, func(r *rig) {
		ctx, cancel := context.WithCancel(context.Background())
		r.ping(context.Background(), "chat", "first")
		gone, stays := r.ping(ctx, "chat", "gone"), r.ping(context.Background(), "chat", "stays")
		alone := r.ping(ctx, "other", "alone")
		cancel()
		synctest.Wait()
		require.ErrorIs(r, gone.err, context.Canceled, "at once")
		require.ErrorIs(r, alone.err, context.Canceled)
		r.letGo()
		r.letGo()
		r.answered(stays)
		require.Equal(r, []string{"chat:first", "chat:stays"}, r.fake.seen())
		require.Zero(r, r.s.Stats().Pings.Queued)
	})
}

func TestCallerGoneWhileOnItsWay(t *testing.T) {
	inBubble(t, Options{}, []string{""}, func(r *rig) {
		ctx, cancel := context.WithCancel(context.Background())
		r.ping(context.Background(), "chat", "first")
		gone, stays := r.ping(ctx, "chat", "gone"), r.ping(context.Background(), "chat", "stays")
		r.letGo()
		cancel()
		synctest.Wait()
		require.ErrorIs(r, gone.err, context.Canceled, "at once")
		require.False(r, stays.done, "no other caller is affected")
		r.letGo()
		r.answered(stays)
		require.Equal(r, []lastseen.State{{At: 1}}, stays.states)
	})
}

func TestFullQueue(t *testing.T) {
	inBubble(t, Options{QueueSize: 3}, []string{""}, func(r *rig) {
		ctx := context.Background()
		r.ping(ctx, "chat", "first")
		waiting := r.ping(ctx, "chat", "bob", "carol")
		full := r.ping(ctx, "chat", "dave", "erin")
		require.ErrorIs(r, full.err, store.ErrOverloaded, "at once")
		last := r.ping(ctx, "chat", "frank")
		require.EqualValues(r, 2, r.s.Stats().Pings.Refused)
		r.letGo()
		large := r.ping(ctx, "chat", crowd(4)...)
		require.False(r, large.done, "larger than the queue, but nothing else waits")
		r.letGo()
		r.letGo()
		r.answered(waiting, last, large)
		require.Equal(r, []string{"chat:first", "chat:bob,carol,frank", "chat:u0,u1,u2,u3"}, r.fake.seen())
	})
}

func TestLookupsSeeWhatWasAnsweredBefore(t *testing.T) {
	inBubble(t, Options{}, []string{""}, func(r *rig) {
		first := r.lookup("chat", "alice")
		second := r.lookup("chat", "alice")
		require.Equal(r, []string{"chat:alice"}, r.fake.seen())
		r.letGo()
		r.answered(first)
		require.False(r, second.done, "a ping may have been answered between the two")
		r.letGo()
		r.answered(second)
		require.Equal(r, []string{"chat:alice", "chat:alice"}, r.fake.seen())
	})
}

func TestNodesDoNotWaitForEachOther(t *testing.T) {
	inBubble(t, Options{QueueSize: 1}, []string{"slow"}, func(r *rig) {
		ctx := context.Background()
		hangs, waits := r.ping(ctx, "slow.chat", "alice"), r.ping(ctx, "slow.chat", "bob")
		require.ErrorIs(r, r.ping(ctx, "slow.chat", "carol").err, store.ErrOverloaded)
		for range 3 {
			r.answered(r.ping(ctx, "fast.chat", "dave"))
		}
		require.False(r, hangs.done || waits.done)
	})
}

func TestCloseDrains(t *testing.T) {
	inBubble(t, Options{}, []string{""}, func(r *rig) {
		ctx := context.Background()
		r.drains(r.ping(ctx, "chat", "alice"), r.ping(ctx, "chat", "bob"))
	})
}

func TestSameUserInSeveralBatches(t *testing.T) {
	inBubble(t, Options{NamespaceSize: 2, BatchSize: 2}, nil, func(r *rig) {
		c := r.ping(context.Background(), "chat", "alice", "bob", "carol", "alice")
		r.answered(c)
		require.Equal(r, []lastseen.State{{At: 4}, {At: 2}, {At: 3}, {At: 4}}, c.states, "the same, final, state twice")
	})
}

// TestAllOrNothing checks that a call that finds one of its nodes' queues full leaves nothing in the others.
func TestAllOrNothing(t *testing.T) {
	inBubble(t, Options{QueueSize: 2}, []string{"full", "free"}, func(r *rig) {
		ctx := context.Background()
		r.fake.byUser = true
		r.ping(ctx, "chat", "full.a")
		r.ping(ctx, "chat", "free.a")
		r.ping(ctx, "chat", "full.b", "full.c")
		both := r.ping(ctx, "chat", "free.b", "full.d")
		require.ErrorIs(r, both.err, store.ErrOverloaded)
		require.EqualValues(r, 2, r.s.Stats().Pings.Queued)
		spread := r.ping(ctx, "chat", "free.c", "free.d")
		require.False(r, spread.done)
	})
}

// TestSpreadOverNodes checks that the states of a call to several nodes come back in order.
func TestSpreadOverNodes(t *testing.T) {
	inBubble(t, Options{NamespaceSize: 2}, nil, func(r *rig) {
		r.fake.byUser = true
		users := make([]string, 20)
		for i := range users {
			users[i] = fmt.Sprintf("node%d.%d", i%3, i)
		}
		c := r.ping(context.Background(), "chat", users...)
		r.answered(c)
		for i, state := range c.states {
			require.Equal(r, lastseen.State{At: lastseen.Instant(i + 1)}, state)
		}
		for _, batch := range r.fake.seen() {
			require.NotRegexp(r, `node0.*node1|node1.*node0`, batch)
		}
	})
}

func TestPanicFailsItsBatchOnly(t *testing.T) {
	inBubble(t, Options{}, nil, func(r *rig) {
		r.fake.broken["chat"] = errPanic
		require.ErrorContains(r, r.ping(context.Background(), "chat", "alice").err, errPanic.Error())
		r.answered(r.ping(context.Background(), "game", "alice"))
	})
}

// TestConcurrentCalls makes many calls about several users; each gets its own states, in its own order.
func TestConcurrentCalls(t *testing.T) {
	s := New(&fake{broken: map[string]error{}}, Options{NamespaceSize: 4})
	var callers sync.WaitGroup
	for n := range 16 {
		callers.Go(func() {
			for round := range 500 {
				batch := make([]store.Sighting, 2+(n+round)%9)
				want := make([]lastseen.State, len(batch))
				for i := range batch {
					batch[i] = store.Sighting{User: fmt.Sprint("u", i), At: lastseen.Instant(1000*n + i + 1)}
					want[i] = lastseen.State{At: batch[i].At}
				}
				states, err := s.Ping(context.Background(), "chat", batch)
				if err != nil || !slices.Equal(want, states) {
					t.Errorf("%v for %v: %v", states, batch, err)
					return
				}
			}
		})
	}
	callers.Wait()
	require.NoError(t, s.Close())
}
