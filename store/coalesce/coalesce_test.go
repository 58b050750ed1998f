package coalesce

import (
	"context"
	"errors"
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

	mu   sync.Mutex
	sent map[string][]int // the members of the batches of each kind
}

// batches returns the members of the batches of a kind, in the order in which they were sent.
func (r *rig) batches(kind string) []int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sent[kind]
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
		r := &rig{T: t, fake: f, sent: map[string][]int{}}
		if o.Observe == nil {
			o.Observe = func(kind string, members int, _ time.Duration) {
				r.mu.Lock()
				defer r.mu.Unlock()
				r.sent[kind] = append(r.sent[kind], members)
			}
		}
		r.s = New(f, o)
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

// start starts a call and returns when it waits or is answered.
func start(call func() ([]lastseen.State, error)) *result {
	c := &result{}
	go func() {
		c.states, c.err = call()
		c.done = true
	}()
	synctest.Wait()
	return c
}

func (r *rig) ping(namespace string, users ...string) *result {
	return r.pingUntil(context.Background(), namespace, users...)
}

// pingUntil starts a ping of users by a caller who goes when the context ends.
func (r *rig) pingUntil(ctx context.Context, namespace string, users ...string) *result {
	batch := make([]store.PresenceEvent, len(users))
	for i, user := range users {
		batch[i] = store.PresenceEvent{User: user, At: lastseen.Instant(i + 1)}
	}
	return start(func() ([]lastseen.State, error) { return r.s.Ping(ctx, namespace, batch) })
}

func (r *rig) lookup(namespace string, users ...string) *result {
	return start(func() ([]lastseen.State, error) {
		states, _, err := r.s.Describe(context.Background(), namespace, users)
		return states, err
	})
}

// letGo releases so many held batches of the node without a name, one after the other.
func (r *rig) letGo(batches int) {
	for range batches {
		r.fake.hold[""] <- struct{}{}
		synctest.Wait()
	}
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
		first := r.ping("chat", "alice")
		require.Equal(r, []string{"chat:alice"}, r.fake.seen(), "sent at once")
		bob, carol, dave := r.ping("chat", "bob"), r.ping("game", "carol"), r.ping("chat", "dave",
			"alice")
		require.EqualValues(r, 4, r.s.Stats().Pings.Queued)
		r.letGo(1)
		r.answered(first)
		require.Equal(r, []string{"chat:alice", "chat:bob,dave,alice game:carol"}, r.fake.seen())
		require.False(r, bob.done, "not before the store has it")
		r.letGo(1)
		r.answered(bob, carol, dave)
		require.Equal(r, []lastseen.State{{At: 1}}, bob.states)
		require.Equal(r, []lastseen.State{{At: 1}, {At: 2}}, dave.states, "everyone gets their own part")
		require.Equal(r, []int{1, 4}, r.batches(Pings))
		require.Equal(r, CallStats{}, r.s.Stats().Pings)
	})
}

func TestNamespacesTakeTurns(t *testing.T) {
	inBubble(t, Options{NamespaceSize: 3, BatchSize: 8}, []string{""}, func(r *rig) {
		r.ping("first", "x")
		r.ping("bulk", crowd(20)...)
		r.ping("small", "alice")
		r.ping("other", "bob", "carol")
		r.letGo(5)
		require.Equal(r, []string{
			"first:1", "bulk:3 small:1 other:2", "bulk:3 bulk:3", "bulk:3 bulk:3", "bulk:3 bulk:2",
		}, r.sizes())
	})
	inBubble(t, Options{NamespaceSize: 2, BatchSize: 2}, []string{""}, func(r *rig) {
		r.ping("bulk", crowd(7)...)
		r.ping("small", "alice")
		r.letGo(5)
		require.Equal(r, []string{"bulk:2", "bulk:2", "small:1", "bulk:2", "bulk:1"}, r.sizes(),
			"a namespace that fills a whole batch has had its turn, too")
	})
}

func TestCallerGoneFromTheQueue(t *testing.T) {
	inBubble(t, Options{}, []string{""}, func(r *rig) {
		ctx, cancel := context.WithCancel(context.Background())
		r.ping("chat", "first")
		gone, stays := r.pingUntil(ctx, "chat", "gone"), r.ping("chat", "stays")
		alone := r.pingUntil(ctx, "other", "alone")
		cancel()
		synctest.Wait()
		require.ErrorIs(r, gone.err, context.Canceled, "at once")
		require.ErrorIs(r, alone.err, context.Canceled)
		r.letGo(2)
		r.answered(stays)
		require.Equal(r, []string{"chat:first", "chat:stays"}, r.fake.seen())
		require.Zero(r, r.s.Stats().Pings.Queued)
	})
}

func TestCallerGoneWhileOnItsWay(t *testing.T) {
	inBubble(t, Options{}, []string{""}, func(r *rig) {
		ctx, cancel := context.WithCancel(context.Background())
		r.ping("chat", "first")
		gone, stays := r.pingUntil(ctx, "chat", "gone"), r.ping("chat", "stays")
		r.letGo(1)
		cancel()
		synctest.Wait()
		require.ErrorIs(r, gone.err, context.Canceled, "at once")
		require.False(r, stays.done, "no other caller is affected")
		r.letGo(1)
		r.answered(stays)
		require.Equal(r, []lastseen.State{{At: 1}}, stays.states)
	})
}

func TestFullQueue(t *testing.T) {
	inBubble(t, Options{QueueSize: 3}, []string{""}, func(r *rig) {
		r.ping("chat", "first")
		waiting := r.ping("chat", "bob", "carol")
		full := r.ping("chat", "dave", "erin")
		require.ErrorIs(r, full.err, store.ErrOverloaded, "at once")
		last := r.ping("chat", "frank")
		require.EqualValues(r, 2, r.s.Stats().Pings.Refused)
		r.letGo(1)
		large := r.ping("chat", crowd(4)...)
		require.False(r, large.done, "larger than the queue, but nothing else waits")
		r.letGo(2)
		r.answered(waiting, last, large)
		require.Equal(r, []string{"chat:first", "chat:bob,carol,frank", "chat:u0,u1,u2,u3"}, r.fake.seen())
	})
}

func TestLookupsSeeWhatWasAnsweredBefore(t *testing.T) {
	inBubble(t, Options{}, []string{""}, func(r *rig) {
		first := r.lookup("chat", "alice")
		second := r.lookup("chat", "alice")
		require.Equal(r, []string{"chat:alice"}, r.fake.seen())
		r.letGo(1)
		r.answered(first)
		require.False(r, second.done, "a ping may have been answered between the two")
		r.letGo(1)
		r.answered(second)
		require.Equal(r, []string{"chat:alice", "chat:alice"}, r.fake.seen())
	})
}

func TestNodesDoNotWaitForEachOther(t *testing.T) {
	inBubble(t, Options{QueueSize: 1}, []string{"slow"}, func(r *rig) {
		hangs, waits := r.ping("slow.chat", "alice"), r.ping("slow.chat", "bob")
		require.ErrorIs(r, r.ping("slow.chat", "carol").err, store.ErrOverloaded)
		for range 3 {
			r.answered(r.ping("fast.chat", "dave"))
		}
		require.False(r, hangs.done || waits.done)
	})
}

func TestSameUserInSeveralBatches(t *testing.T) {
	inBubble(t, Options{NamespaceSize: 2, BatchSize: 2}, nil, func(r *rig) {
		c := r.ping("chat", "alice", "bob", "carol", "alice")
		r.answered(c)
		require.Equal(r, []lastseen.State{{At: 4}, {At: 2}, {At: 3}, {At: 4}}, c.states, "the same, final, state twice")
	})
}

// TestCloseDrains: calls of every kind are answered before the store is closed.
func TestCloseDrains(t *testing.T) {
	for name, call := range map[string]func(r *rig, user string) *result{
		"ping":   func(r *rig, user string) *result { return r.ping("chat", user) },
		"lookup": func(r *rig, user string) *result { return r.lookup("chat", user) },
		"device": func(r *rig, user string) *result { return r.record("chat", time.Minute, event(user, 1)) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Options{}, []string{""}, func(r *rig) {
				first, second := call(r, "alice"), call(r, "bob")
				require.Positive(r, r.s.Load())
				var closing sync.WaitGroup
				closing.Go(func() { require.NoError(r, r.s.Close()) })
				synctest.Wait()
				require.ErrorIs(r, call(r, "carol").err, store.ErrClosed)
				require.False(r, r.fake.closed, "not while something is on its way")
				r.letGo(2)
				closing.Wait()
				r.answered(first, second)
				require.True(r, r.fake.closed)
			})
		})
	}
}

// TestFailuresAffectTheirNamespaceOnly. When states are missing, all calls of the batch fail: handing out those that
// came would give some callers the states of other users.
func TestFailuresAffectTheirNamespaceOnly(t *testing.T) {
	for failure, want := range map[error]string{
		errBroken: errBroken.Error(), errShort: "1 states for 2 users", errPanic: errPanic.Error(),
	} {
		inBubble(t, Options{}, []string{""}, func(r *rig) {
			r.fake.broken["strange"] = failure
			r.ping("chat", "first")
			alice, bob, good := r.ping("strange", "alice"), r.ping("strange", "bob"), r.ping("chat", "carol")
			r.letGo(2)
			require.ErrorContains(r, alice.err, want)
			require.ErrorContains(r, bob.err, want)
			if errors.Is(failure, errPanic) { // fails its whole batch, and no other
				require.ErrorContains(r, good.err, want)
				good = r.ping("chat", "dave")
				r.letGo(1)
			}
			r.answered(good)
		})
	}
}

// TestAllOrNothing checks that a call that finds one of its nodes' queues full leaves nothing in the others.
func TestAllOrNothing(t *testing.T) {
	inBubble(t, Options{QueueSize: 2}, []string{"full", "free"}, func(r *rig) {
		r.fake.byUser = true
		r.ping("chat", "full.a")
		r.ping("chat", "free.a")
		r.ping("chat", "full.b", "full.c")
		both := r.ping("chat", "free.b", "full.d")
		require.ErrorIs(r, both.err, store.ErrOverloaded)
		require.EqualValues(r, 2, r.s.Stats().Pings.Queued)
		spread := r.ping("chat", "free.c", "free.d")
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
		c := r.ping("chat", users...)
		r.answered(c)
		for i, state := range c.states {
			require.Equal(r, lastseen.State{At: lastseen.Instant(i + 1)}, state)
		}
		for _, batch := range r.fake.seen() {
			require.NotRegexp(r, `node0.*node1|node1.*node0`, batch)
		}
	})
}

// TestConcurrentCalls makes many calls about several users; each gets its own states, in its own order.
func TestConcurrentCalls(t *testing.T) {
	s := New(&fake{broken: map[string]error{}}, Options{NamespaceSize: 4})
	var callers sync.WaitGroup
	for n := range 16 {
		callers.Go(func() {
			for round := range 500 {
				batch := make([]store.PresenceEvent, 2+(n+round)%9)
				want := make([]lastseen.State, len(batch))
				for i := range batch {
					batch[i] = store.PresenceEvent{User: fmt.Sprint("u", i), At: lastseen.Instant(1000*n + i + 1)}
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
