package storetest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// racers are what the parties of a call try at the same time, on a device each.
func racers() []store.CallAct {
	return []store.CallAct{
		{User: "to", Device: "a", Action: lastseen.Accept},
		{User: "to", Device: "b", Action: lastseen.Accept},
		{User: "to", Device: "c", Action: lastseen.Reject},
		{User: "to", Device: "d", Action: lastseen.End},
		{User: "from", Device: "e", Action: lastseen.End},
		{User: "from", Device: "f", Action: lastseen.Alive},
	}
}

// testCallsConcurrent has the parties of many calls do all they can at the same time, while calls expire. Each change
// of a state has one winner, and nobody stays in a call.
func testCallsConcurrent(t *testing.T, c *calling) {
	const calls = 40
	var acting, others sync.WaitGroup
	var expired atomic.Int64
	stop := make(chan struct{})
	others.Go(func() { expireUntil(t, c, stop, &expired) })
	others.Go(func() { copyUntil(t, c, stop) })
	others.Go(func() { copyUntil(t, c, stop) })
	ids, won := make([]string, calls), make([]atomic.Int64, calls)
	for i := range calls {
		call := c.call(fmt.Sprint("from", i), fmt.Sprint("to", i))
		call.Quiet = soon
		if call.Ring = long; i%2 == 0 {
			call.Ring = time.Duration(i) * time.Millisecond / 4
		}
		ids[i] = call.ID
		c.begin(call)
		for _, a := range racers() {
			a.ID, a.User = call.ID, fmt.Sprint(a.User, i)
			acting.Go(func() { act(t, c, a, &won[i], &expired) })
		}
	}
	acting.Wait()
	wins := int64(0)
	for i, id := range ids {
		over := c.pass(store.NewCall{ID: id})
		require.Contains(t, []lastseen.CallState{
			lastseen.Ended, lastseen.Rejected, lastseen.Cancelled, lastseen.Missed, lastseen.Lost,
		}, over.State)
		if over.State == lastseen.Lost || over.State == lastseen.Ended {
			require.NotZero(t, over.Accepted)
			require.Contains(t, []string{"a", "b"}, over.ToDevice, "of the device that won")
		}
		timed := int64(0)
		if over.By == "" {
			timed = 1
		}
		require.Equal(t, over.Version, 1+won[i].Load()+timed, "each step has one winner: %+v", over)
		wins += timed
	}
	c.poll("each call that expired was returned", func() bool { return expired.Load() >= wins })
	close(stop)
	others.Wait()
	require.False(t, t.Failed())
	require.Equal(t, wins, expired.Load(), "once")
	require.Empty(t, c.expire().Steps)
	require.Equal(t, calls, c.expire().Kept)
	c.copyAll()
	for i := range calls {
		from, to := fmt.Sprint("from", i), fmt.Sprint("to", i)
		require.Equal(t, []string{"", ""}, c.idsOf(from, to))
		require.Empty(t, details(t, c, from, to))
		c.ring(to, from)
	}
}

// act does what a party tries, and counts what changed the state.
func act(t *testing.T, c *calling, a store.CallAct, won, expired *atomic.Int64) {
	step, err := c.StepCall(context.Background(), ns, a)
	if err != nil {
		t.Error(err)
		return
	}
	if step.Outcome == lastseen.Stepped {
		won.Add(1)
	}
	if step.Expired {
		expired.Add(1)
	}
}

// expireUntil ends calls whose time has passed until it is stopped, and counts them.
func expireUntil(t *testing.T, c *calling, stop chan struct{}, count *atomic.Int64) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(time.Millisecond):
		}
		expired, err := c.ExpireCalls(context.Background(), ns)
		if err != nil {
			t.Error(err)
			return
		}
		count.Add(int64(len(expired.Steps)))
	}
}

// copyUntil copies what has to be copied until it is stopped.
func copyUntil(t *testing.T, c *calling, stop chan struct{}) {
	ctx := context.Background()
	for {
		select {
		case <-stop:
			return
		case <-time.After(time.Millisecond):
		}
		in, err := c.UnconfirmedInCalls(ctx, ns, 0)
		for err == nil && len(in) > 0 {
			if err = c.SetInCalls(ctx, ns, in); err == nil {
				in, err = c.ConfirmInCalls(ctx, ns, in)
			}
		}
		if err != nil {
			t.Error(err)
			return
		}
	}
}

// testCallsStartConcurrent: of several users who call each other at the same time, each is in one call at most.
func testCallsStartConcurrent(t *testing.T, c *calling) {
	const users, rounds = 6, 12
	for range rounds {
		var starting sync.WaitGroup
		begun := make([]store.NewCall, users*users)
		for from := range users {
			for to := range users {
				if from == to {
					continue
				}
				call := c.call(fmt.Sprint("u", from), fmt.Sprint("u", to))
				starting.Go(func() {
					step, err := c.StartCall(context.Background(), ns, call)
					switch {
					case err == nil && step.Outcome == lastseen.Stepped:
						begun[from*users+to] = call
					case err == nil:
						t.Errorf("%+v", step)
					}
				})
			}
		}
		starting.Wait()
		in := map[string]string{}
		for _, call := range begun {
			if call.ID != "" {
				require.Empty(t, in[call.From])
				require.Empty(t, in[call.To])
				in[call.From], in[call.To] = call.ID, call.ID
			}
		}
		require.NotEmpty(t, in)
		for user, id := range in {
			require.Equal(t, []string{id}, c.idsOf(user))
		}
		for _, call := range begun {
			if call.ID != "" {
				c.act(call.ID, call.From, lastseen.End)
			}
		}
	}
}

// testCallsKeyConcurrent: of several starts with the same key, one begins the call, and all return it.
func testCallsKeyConcurrent(t *testing.T, c *calling) {
	for round := range 10 {
		var starting sync.WaitGroup
		steps := make([]store.CallStep, 8)
		for i := range steps {
			call := c.call(fmt.Sprint("from", round), "to")
			call.Key, call.Digest = "key", "digest"
			starting.Go(func() {
				var err error
				if steps[i], err = c.StartCall(context.Background(), ns, call); err != nil {
					t.Error(err)
				}
			})
		}
		starting.Wait()
		outcomes := map[lastseen.CallOutcome]int{}
		for _, step := range steps {
			outcomes[step.Outcome]++
			require.Equal(t, steps[0].Call, step.Call)
		}
		require.Equal(t, map[lastseen.CallOutcome]int{lastseen.Stepped: 1, lastseen.Repeated: len(steps) - 1}, outcomes)
		c.act(steps[0].Call.ID, "to", lastseen.Reject)
	}
}
