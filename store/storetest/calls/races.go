package calls

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/storetest/availability"
	"github.com/lastseen/lastseen/store/storetest/kit"
)

// History is the steps that led to the states of calls, by several callers at the same time. Its zero value is
// ready to use.
type History struct {
	mu  sync.Mutex
	won map[string][]lastseen.CallState // by call: each state that a step led to
}

// Saw notes a step, if it changed a call.
func (h *History) Saw(steps ...store.CallStep) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, step := range steps {
		if step.Expired || step.Outcome == lastseen.Stepped {
			if h.won == nil {
				h.won = map[string][]lastseen.CallState{}
			}
			h.won[step.Call.ID] = append(h.won[step.Call.ID], step.Call.State)
		}
	}
}

// Check returns an error unless each state of a call, as it is in the end, was reached once, by one step.
func (h *History) Check(call lastseen.Call) error {
	won, ends, over := h.won[call.ID], len(h.won[call.ID]), 0
	active := slices.Contains(won, lastseen.Active)
	if active {
		ends--
	}
	if call.State.Over() {
		over = 1
	}
	if int(call.Version) != len(won)+1 || ends != over || active != (call.Accepted != 0) ||
		len(won) > 0 != (call.State != lastseen.Ringing) || len(won) > 0 && !slices.Contains(won, call.State) {
		return fmt.Errorf("%+v, after %v", call, won)
	}
	return nil
}

// callRace is two servers that act in the same calls.
type callRace struct {
	History
	*Calling
	t     *testing.T
	other store.Store
}

// testCallsConcurrent is RunCallRaces on one server.
func testCallsConcurrent(t *testing.T, c *Calling) { RunRaces(t, c.Store, c.Store, 80) }

// RunRaces has two servers accept, reject, cancel, end, keep alive and expire so many calls at the same moment. Each
// call is decided once, and all users are out of the calls then.
func RunRaces(t *testing.T, one, two store.Store, races int) {
	t.Helper()
	r := &callRace{Calling: NewCalling(t, one), t: t, other: two}
	calls := make([]store.NewCall, races)
	for i := range calls {
		calls[i] = r.Call(fmt.Sprint("from", i), fmt.Sprint("to", i))
	}
	const workers = 4 // so that the store need not wait for this process
	var running sync.WaitGroup
	for worker := range workers {
		running.Go(func() {
			for i := worker; i < races && !t.Failed(); i += workers {
				r.race(calls[i], i)
			}
		})
	}
	running.Wait()
	require.False(t, t.Failed())
	reached := map[lastseen.CallState]int{}
	for _, call := range calls {
		over := r.Read(call.ID)
		requireOver(t, over)
		require.NoError(t, r.Check(over))
		if over.Accepted != 0 {
			require.Contains(t, []string{"a", "b"}, over.ToDevice, "of a device that accepted")
		}
		for _, state := range r.won[call.ID] {
			reached[state]++
		}
	}
	for _, state := range lastseen.CallStates() {
		require.True(t, state == lastseen.Ringing || reached[state] > 0, "no call was %s: %v", state, reached)
	}
	var parties []string
	for _, call := range calls {
		parties = append(parties, call.From, call.To)
	}
	r.poll("nobody is in a call", func() bool {
		require.Empty(t, r.Expire().Steps)
		for part := range slices.Chunk(parties, 500) {
			if len(availability.Details(t, r, part...)) > 0 {
				return false
			}
		}
		return true
	})
}

// race does everything that can be done in a call at the same moment. Every eighth call is only missed, and every
// eighth // one only accepted and lost, so that there are enough of these, whatever the machine is busy with.
func (r *callRace) race(n store.NewCall, i int) {
	act := func(s store.Store, user, device string, action lastseen.CallAction) func() {
		return func() {
			step, err := s.StepCall(context.Background(), kit.Namespace, store.CallAct{
				ID: n.ID, User: user, Device: device, Action: action,
			})
			r.took(err, step)
		}
	}
	decide := []func(){
		act(r.Store, n.To, "a", lastseen.Accept), act(r.other, n.To, "b", lastseen.Accept),
		act(r.other, n.To, "c", lastseen.Reject),
		act(r.other, n.From, "", lastseen.End), act(r.Store, n.To, "", lastseen.End),
	}
	switch {
	case i%8 == 1:
		n.Ring, decide = time.Millisecond, nil
	case i%8 == 3:
		n.Timeout, decide = time.Millisecond, decide[:1]
	case i%2 == 1:
		n.Ring, n.Timeout = time.Millisecond, time.Millisecond
	}
	_, err := r.StartCall(context.Background(), kit.Namespace, n)
	r.took(err)
	acts := slices.Concat(decide, []func(){
		act(r.Store, n.From, "", lastseen.Alive),
		func() { r.keepAlive(r.other, n.From, n.To) },
		func() { r.tryExpire(r.other) },
	})
	begins := i / 8 % len(acts) // what begins first often wins
	var racing sync.WaitGroup
	for _, act := range slices.Concat(acts[begins:], acts[:begins]) {
		racing.Go(act)
	}
	racing.Wait()
	for over := false; !over && !r.t.Failed(); { // a call that was not ended expires in a millisecond
		call, err := store.ReadCall(context.Background(), r, kit.Namespace, n.ID)
		r.took(err)
		over = call.State.Over()
	}
	r.tryExpire(r.Store)
}

// took notes the results of a call of a store.
func (r *callRace) took(err error, steps ...store.CallStep) {
	r.Saw(steps...)
	if err != nil {
		r.t.Error(err)
	}
}

func (r *callRace) keepAlive(s store.Store, users ...string) {
	active, err := s.KeepCallsAlive(context.Background(), kit.Namespace, onAny(users...))
	r.took(err, active.Steps...)
}

func (r *callRace) tryExpire(s store.Store) {
	expired, err := s.ExpireCalls(context.Background(), kit.Namespace)
	r.took(err, expired.Steps...)
}

// testCallsStartConcurrent: of several users who call each other at the same time, each is in one call at most.
func testCallsStartConcurrent(t *testing.T, c *Calling) {
	const users, rounds = 6, 12
	for range rounds {
		var starting sync.WaitGroup
		begun := make([]store.NewCall, users*users)
		for from := range users {
			for to := range users {
				if from == to {
					continue
				}
				call := c.Call(fmt.Sprint("u", from), fmt.Sprint("u", to))
				starting.Go(func() {
					step, err := c.StartCall(context.Background(), kit.Namespace, call)
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
				c.Act(call.ID, call.From, lastseen.End)
			}
		}
	}
}

// testCallsKeyConcurrent: of several starts with the same key, one begins the call, and all return it.
func testCallsKeyConcurrent(t *testing.T, c *Calling) {
	for round := range 10 {
		var starting sync.WaitGroup
		steps := make([]store.CallStep, 8)
		for i := range steps {
			call := c.Call(fmt.Sprint("from", round), "to")
			call.Key, call.Digest = "key", "digest"
			starting.Go(func() {
				var err error
				if steps[i], err = c.StartCall(context.Background(), kit.Namespace, call); err != nil {
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
		c.Act(steps[0].Call.ID, "to", lastseen.Reject)
	}
}
