package calls

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/filestore"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// TestRaceOnRedis: two servers with one Redis race each call to its end. The connections of both parties, to
// either server or to both, are told the same end, and then nobody is in a call. When one server stops, the other one
// continues.
func TestRaceOnRedis(t *testing.T) {
	t.Parallel()
	races := testenv.Choose(3000, 200)
	url := redistest.Start(t)
	newRace(t, openRedis(t, url), openRedis(t, url)).run(races)
}

// TestRaceOnTheEmbeddedStore is TestRaceOnRedis for two managers on one embedded store. Both of them end calls, because
// this store grants everyone the lease.
func TestRaceOnTheEmbeddedStore(t *testing.T) {
	t.Parallel()
	races := testenv.Choose(2000, 200)
	s, err := filestore.Open(filestore.Options{
		Path: filepath.Join(t.TempDir(), "lastseen.db"), Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	newRace(t, s, s).run(races)
}

// moment is a time that passes during the steps of a race.
const moment = 4 * time.Millisecond

// race has users call each other on two servers. A caller is connected to one of them and the callee to the other one,
// or both are connected to both.
type race struct {
	*testing.T
	servers []*realServer
}

func newRace(t *testing.T, stores ...store.Store) *race {
	r := &race{T: t}
	for i, s := range stores {
		connected := func(user string) bool {
			return strings.HasSuffix(user, fmt.Sprint("-", i)) || strings.HasSuffix(user, "-both")
		}
		r.servers = append(r.servers, startServer(t, s, connected, func(k *Manager) {
			k.Timeout = func(string) time.Duration { return moment } // parties are active soon
			k.Active = func(_, user, _ string, _ time.Duration) bool { return connected(user) }
		}))
	}
	return r
}

// newCall returns a call that is started by race i. Every fourth one lasts until a party ends it, and every fourth one
// until a party ends it or its time passes. The others are missed, or accepted and lost.
func (r *race) newCall(i int) store.NewCall {
	id := fmt.Sprint("call-", i)
	c := store.NewCall{
		ID: id, From: fmt.Sprintf("from%d-%d", i, i%2), To: fmt.Sprintf("to%d-%d", i, 1-i%2),
		Ring: time.Hour, Timeout: time.Hour, Shown: true, Key: id, Digest: "of " + id,
	}
	if i%5 == 0 {
		c.From, c.To = fmt.Sprintf("from%d-both", i), fmt.Sprintf("to%d-both", i)
	}
	switch i % 4 {
	case 1:
		c.Ring, c.Timeout = moment, moment
	case 2:
		c.Timeout = moment
	case 3:
		c.Ring = moment
	}
	return c
}

// run runs a number of races, several at a time, and requires that all calls ended and were told well.
func (r *race) run(races int) {
	calls := make([]store.NewCall, races)
	var running sync.WaitGroup
	const workers = 16 // most of them wait until time passes
	for worker := range workers {
		running.Go(func() {
			for i := worker; i < races && !r.Failed(); i += workers {
				calls[i] = r.newCall(i)
				r.step(calls[i], i)
				r.awaitEnd(calls[i])
			}
		})
	}
	running.Wait()
	reached := map[lastseen.CallState]int{}
	for _, c := range calls {
		reached[r.requireSame(c)]++
	}
	for _, state := range lastseen.CallStates() {
		require.Equal(r, state.Over(), reached[state] > 0, "%s: %v", state, reached)
	}
	for _, s := range r.servers {
		require.Empty(r, s.wrong)
	}
	r.takeover(20*races + 15)
	r.requireNobodyInCall(calls)
	for _, server := range r.servers {
		server.stop() // so that no copy is in progress
	}
	r.requireNobodyInCall(calls)
}

// takeover stops the server that ends calls. The other one continues: it ends a call whose time passes.
func (r *race) takeover(id int) {
	r.Helper()
	stopped, left := r.servers[0], r.servers[1]
	if !stopped.Stats().Watching {
		stopped, left = left, stopped
	}
	stopped.stop()
	r.servers = []*realServer{left}
	missed := r.newCall(id)
	r.start(left, missed)
	r.awaitEnd(missed)
	require.Equal(r, lastseen.Missed, r.requireSame(missed))
	require.Eventually(r, func() bool { return left.Stats().Watching }, time.Minute, 5*time.Millisecond)
}

// step starts a call and does at the same moment, on both servers, what the parties can do in it.
func (r *race) step(c store.NewCall, i int) {
	a, b := r.servers[i%2], r.servers[1-i%2]
	r.start(a, c)
	act := func(s *realServer, user string, action lastseen.CallAction) func() {
		return func() {
			_, err := done(s.Act(r.Context(), ns, store.CallAct{ID: c.ID, User: user, Action: action}))
			assert.NoError(r, err)
		}
	}
	again := c
	again.ID += "-again"
	steps := []func(){
		func() { r.start(b, again) }, act(a, c.From, lastseen.Alive), act(b, c.To, lastseen.Alive),
		act(b, c.To, lastseen.Accept), act(a, c.To, lastseen.Accept),
		act(a, c.To, lastseen.Reject), act(a, c.From, lastseen.End), act(b, c.To, lastseen.End),
	}
	switch i % 4 {
	case 2:
		steps = steps[:5]
	case 3:
		steps = steps[:3]
	}
	first := i / 4 % len(steps) // what begins first often wins
	var racing sync.WaitGroup
	for _, step := range slices.Concat(steps[first:], steps[:first]) {
		racing.Go(step)
	}
	racing.Wait()
}

// start starts a call, or repeats that.
func (r *race) start(s *realServer, c store.NewCall) {
	_, err := done(s.Start(r.Context(), ns, c))
	assert.NoError(r, err)
}

// told returns the states of a call that the connections of both parties were told last.
func (r *race) told(c store.NewCall) (states []lastseen.CallState) {
	for _, s := range r.servers {
		s.mu.Lock()
		for _, user := range []string{c.From, c.To} {
			if s.connected(user) {
				states = append(states, s.states[c.ID+" "+user])
			}
		}
		s.mu.Unlock()
	}
	return states
}

// awaitEnd waits until connections of both parties were told that a call has ended.
func (r *race) awaitEnd(c store.NewCall) {
	told := func() bool {
		return !slices.ContainsFunc(r.told(c), func(s lastseen.CallState) bool { return s == "" || !s.Over() })
	}
	assert.Eventually(r, told, time.Minute, time.Millisecond, c.ID)
}

// requireSame requires that connections of both parties were told the state that both servers read, and returns it.
func (r *race) requireSame(c store.NewCall) lastseen.CallState {
	r.Helper()
	told := r.told(c)
	require.GreaterOrEqual(r, len(told), 2)
	for _, s := range r.servers {
		read, err := store.ReadCall(r.Context(), s.store, ns, c.ID)
		require.NoError(r, err)
		for _, state := range told {
			require.Equal(r, read.State, state, "%s: %v", c.ID, told)
		}
	}
	return told[0]
}

// requireNobodyInCall waits until the parties of calls are in no call.
func (r *race) requireNobodyInCall(calls []store.NewCall) {
	r.Helper()
	var users []string
	for _, c := range calls {
		users = append(users, c.From, c.To)
	}
	// A server that copies late can have copied an old value, and notices when it confirms that.
	require.Eventually(r, func() bool {
		return r.inCall(users) == 0
	}, time.Minute, 5*time.Millisecond)
}

// inCall returns how many users are shown as in a call.
func (r *race) inCall(users []string) (n int) {
	for part := range slices.Chunk(users, 500) {
		_, details, err := r.servers[0].store.Describe(r.Context(), ns, part)
		assert.NoError(r, err)
		for _, user := range part {
			if details[user].InCallUntil != 0 {
				n++
			}
		}
	}
	return n
}
