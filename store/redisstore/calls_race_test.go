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
}

func (r *racers) tryExpire(s store.Store) {
	expired, err := s.ExpireCalls(context.Background(), "chat")
	if err != nil {
		r.Errorf("expire: %v", err)
	}
	for _, step := range expired.Steps {
		r.saw(step)
	}
}

// TestCallsRace: of accepting, rejecting, cancelling and expiring at the same moment, through two servers, one wins,
// and then of ending, hanging up on the other side, and expiring.
func TestCallsRace(t *testing.T) {
	t.Parallel()
	url := redistest.Start(t)
	first, second := newStore(t, redisstore.Options{URL: url}), newStore(t, redisstore.Options{URL: url})
	r := &racers{callers: newCallers(t, first), other: second, won: map[string][]lastseen.CallState{}}
	calls := 10_000
	if testing.Short() {
		calls = 500
	}
	for i := range calls {
		n := r.newCall(fmt.Sprint("from", i), fmt.Sprint("to", i))
		n.Ring, n.Quiet = time.Millisecond, time.Millisecond
		if i%2 == 0 {
			n.Ring, n.Quiet = time.Hour, time.Hour
		}
		r.start(n)
		var racing sync.WaitGroup
		for _, act := range []func(){
			func() { r.tryAct(first, n.ID, n.To, lastseen.Accept) },
			func() { r.tryAct(second, n.ID, n.To, lastseen.Reject) },
			func() { r.tryAct(second, n.ID, n.From, lastseen.End) },
			func() { r.tryAct(first, n.ID, n.To, lastseen.End) },
			func() { r.tryExpire(second) },
		} {
			racing.Go(act)
		}
		racing.Wait()
		r.tryExpire(first)
		r.requireHistory(n.ID)
		if t.Failed() {
			return
		}
	}
	r.copyAll()
	for i := range calls {
		in := r.until(fmt.Sprint("from", i), fmt.Sprint("to", i))
		call := r.read(fmt.Sprint("call", i+1))
		require.Equal(t, call.State == lastseen.Active, in[0] != 0 && in[1] != 0, "%s: %v", call.State, in)
	}
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
