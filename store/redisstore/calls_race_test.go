package redisstore_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/redisstore"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// racers act at the same moment, through two servers.
type racers struct {
	*callers
	other store.Store

	mu  sync.Mutex
	won map[string][]lastseen.CallState // by call: each state that a step led to
}

// saw notes a step that changed a call.
func (r *racers) saw(step store.CallStep) {
	if step.Expired || step.Outcome == lastseen.Stepped {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.won[step.Call.ID] = append(r.won[step.Call.ID], step.Call.State)
	}
}

func (r *racers) tryAct(s store.Store, id, user string, action lastseen.CallAction) {
	step, err := s.StepCall(context.Background(), "chat", store.CallAct{ID: id, User: user, Action: action})
	if err != nil {
		r.Errorf("%s of %s: %v", action, user, err)
	}
	r.saw(step)
	r.tryCopy(s, step.InCall)
}

func (r *racers) tryExpire(s store.Store) {
	expired, err := s.ExpireCalls(context.Background(), "chat")
	if err != nil {
		r.Errorf("expire: %v", err)
	}
	for _, step := range expired.Steps {
		r.saw(step)
		r.tryCopy(s, step.InCall)
	}
}

func (r *racers) tryHear(s store.Store, users ...string) {
	heard := make([]store.CallHeard, len(users))
	for i, user := range users {
		heard[i].User = user
	}
	result, err := s.HearCalls(context.Background(), "chat", heard)
	if err != nil {
		r.Errorf("hear: %v", err)
	}
	for _, step := range result.Steps {
		r.saw(step)
		r.tryCopy(s, step.InCall)
	}
	r.tryCopy(s, result.InCall)
}

// tryCopy copies what a step noted until nothing has changed meanwhile. The keeper of package calls gives up sooner,
// and leaves the rest to copyNoted.
func (r *racers) tryCopy(s store.Store, in []store.InCall) {
	for len(in) > 0 && !r.Failed() {
		err := s.SetInCalls(context.Background(), "chat", in)
		if err == nil {
			in, err = s.ConfirmInCalls(context.Background(), "chat", in)
		}
		if err != nil {
			r.Errorf("copy: %v", err)
		}
	}
}

// copyNoted copies what any server noted and has not confirmed yet.
func (r *racers) copyNoted(s store.Store) {
	in, err := s.UnconfirmedInCalls(context.Background(), "chat", 0)
	if err != nil {
		r.Errorf("unconfirmed: %v", err)
	}
	r.tryCopy(s, in)
}

// TestCallsRace: two servers accept, reject, cancel, end, hear and expire the same calls at the same moment, and copy
// who is in a call. Each call is decided once. Everyone is out of the call then, and the outbox is empty, although
// nothing is copied after the race.
func TestCallsRace(t *testing.T) {
	t.Parallel()
	url := redistest.Start(t)
	first, second := newStore(t, redisstore.Options{URL: url}), newStore(t, redisstore.Options{URL: url})
	r := &racers{callers: newCallers(t, first), other: second, won: map[string][]lastseen.CallState{}}
	races := testenv.Choose(10_000, 500)
	calls := make([]store.NewCall, races)
	for i := range calls {
		calls[i] = r.newCall(fmt.Sprint("from", i), fmt.Sprint("to", i))
	}
	const workers = 4 // so that Redis need not wait for this process
	var running sync.WaitGroup
	for worker := range workers {
		running.Go(func() {
			for i := worker; i < races && !t.Failed(); i += workers {
				r.race(calls[i], i)
			}
		})
	}
	running.Wait()
	r.requireOver(calls)
	reached := map[lastseen.CallState]int{}
	for _, states := range r.won {
		for _, state := range states {
			reached[state]++
		}
	}
	for _, state := range lastseen.CallStates() {
		if state != lastseen.Ringing {
			require.Positive(t, reached[state], "no call was %s: %v", state, reached)
		}
	}
}

// race has two servers do everything that can be done in a call at the same moment. Every eighth call is only missed,
// and every eighth one only accepted and lost, so that there are enough of these, whatever the machine is busy with.
func (r *racers) race(n store.NewCall, i int) {
	first, second := r.Store, r.other
	decide := []func(){
		func() { r.tryAct(first, n.ID, n.To, lastseen.Accept) },
		func() { r.tryAct(second, n.ID, n.To, lastseen.Reject) },
		func() { r.tryAct(second, n.ID, n.From, lastseen.End) },
		func() { r.tryAct(first, n.ID, n.To, lastseen.End) },
	}
	switch {
	case i%8 == 1:
		n.Ring, decide = time.Millisecond, nil
	case i%8 == 3:
		n.Quiet, decide = time.Millisecond, decide[:1]
	case i%2 == 1:
		n.Ring, n.Quiet = time.Millisecond, time.Millisecond
	}
	if _, err := r.StartCall(context.Background(), "chat", n); err != nil {
		r.Errorf("start: %v", err)
	}
	acts := slices.Concat(decide, []func(){
		func() { r.tryAct(first, n.ID, n.From, lastseen.Alive) },
		func() { r.tryHear(second, n.From, n.To) },
		func() { r.tryExpire(second) },
		func() { r.copyNoted(first) },
		func() { r.copyNoted(second) },
	})
	begins := i / 8 % len(acts) // what begins first often wins
	var racing sync.WaitGroup
	for _, act := range slices.Concat(acts[begins:], acts[:begins]) {
		racing.Go(act)
	}
	racing.Wait()
	r.awaitOver(n.ID)
	r.tryExpire(first)
}

// awaitOver waits until a call that was not ended has expired, which takes a millisecond.
func (r *racers) awaitOver(id string) {
	for !r.Failed() {
		call, err := r.ReadCall(context.Background(), "chat", id)
		if err != nil {
			r.Errorf("read %s: %v", id, err)
		}
		if call.State.Over() {
			return
		}
	}
}

// requireOver requires that each call was decided once and is over, that nobody is shown in a call, and that nothing
// has to be copied.
func (r *racers) requireOver(calls []store.NewCall) {
	r.Helper()
	for part := range slices.Chunk(calls, 250) {
		var users []string
		for _, n := range part {
			r.requireHistory(n.ID)
			require.True(r, r.read(n.ID).State.Over(), n.ID)
			users = append(users, n.From, n.To)
		}
		for i, until := range r.until(users...) {
			require.Zero(r, until, "%s is in a call", users[i])
		}
	}
	require.Empty(r, r.unconfirmed())
}

// requireHistory requires that each state was reached once, by one step.
func (r *racers) requireHistory(id string) {
	call := r.read(id)
	won := r.won[id]
	if len(won) == 0 && call.State != lastseen.Ringing || len(won) > 0 && !slices.Contains(won, call.State) {
		r.Errorf("%s is %s, after %v", id, call.State, won)
		return
	}
	if int(call.Version) != len(won)+1 {
		r.Errorf("%s has version %d, after %v", id, call.Version, won)
	}
	active := slices.Contains(won, lastseen.Active)
	ends := len(won)
	if active {
		ends--
	}
	over := 0
	if call.State.Over() {
		over = 1
	}
	if ends != over || active != (call.Accepted != 0) {
		r.Errorf("%s is %s, after %v", id, call.State, won)
	}
}
