package calls

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// takeover is how long it takes, at most, until another server does what the one with the lease did.
const takeover = leaseTime + leaseRenew + visitEvery

// lastStep is a step of a call, after which the server that did it dies.
type lastStep struct {
	name   string
	before lastseen.CallState // "" if the step starts the call
	do     func(f *fixture, dying *server, id string)

	known lastseen.CallState // what the parties are told in the end if no party acts
	wait  time.Duration      // until then, at most
}

func lastSteps() []lastStep {
	start := func(f *fixture, dying *server, _ string) { f.rings(dying, "alice", "bob") }
	act := func(user string, action lastseen.CallAction) func(*fixture, *server, string) {
		return func(f *fixture, dying *server, id string) { f.acts(dying, id, user, action) }
	}
	expire := func(f *fixture, _ *server, _ string) { // the server with the lease does that when it is time
		bob := f.servers[1].connections[lastseen.UserKey{Namespace: ns, User: "bob"}]
		bob.since, bob.silent = f.monotonic(), true
	}
	// A connection that follows a call reads it at least this often: while it rings, four times in the timeout.
	const reread = timeout/4 + time.Second
	return []lastStep{
		{name: "start", do: start, known: lastseen.Missed, wait: ring + takeover},
		{
			name: "accept", before: lastseen.Ringing, do: act("bob", lastseen.Accept),
			known: lastseen.Active, wait: reread,
		},
		{name: "reject", before: lastseen.Ringing, do: act("bob", lastseen.Reject), known: lastseen.Rejected, wait: reread},
		{name: "cancel", before: lastseen.Ringing, do: act("alice", lastseen.End), known: lastseen.Cancelled, wait: reread},
		{name: "miss", before: lastseen.Ringing, do: expire, known: lastseen.Missed, wait: reread},
		{
			name: "end", before: lastseen.Active, do: act("bob", lastseen.End),
			known: lastseen.Ended, wait: timeout / 2,
		},
		{name: "lose", before: lastseen.Active, do: expire, known: lastseen.Lost, wait: timeout / 2},
	}
}

// dies has a server die before it sends a signal: nothing that it does from then on reaches the store or others.
func (s *server) dies() (died func() bool) {
	var dead atomic.Bool
	s.before = func(method string) { // visits call it in goroutines
		if method == "Signal" {
			dead.Store(true)
		}
	}
	s.fail = func(string) error {
		if dead.Load() {
			return store.ErrUnavailable
		}
		return nil
	}
	return dead.Load
}

// TestServerDiesAfterAStep: the server with the lease dies before it does anything because of a step. Without it, both
// parties are told what became of the call, and they are shown to be in it as long as it is active. The parties are
// connected to another server.
func TestServerDiesAfterAStep(t *testing.T) {
	for _, step := range lastSteps() {
		t.Run(step.name, func(t *testing.T) { testDeath(t, step) })
	}
}

func testDeath(t *testing.T, step lastStep) {
	f, dying, lives := newPair(t)
	f.acts(dying, f.rings(dying, "carol", "dave"), "carol", lastseen.End) // so that it has the lease
	f.pass(time.Second)
	require.Same(t, dying.handle, f.holder)
	connect(lives, lives)
	var told []lastseen.CallState // by the server that dies
	id := "call-2"
	if step.before != "" {
		require.Equal(t, id, f.rings(dying, "alice", "bob"))
		told = append(told, lastseen.Ringing)
	}
	f.settle()
	if step.before == lastseen.Active {
		f.acts(dying, id, "bob", lastseen.Accept)
		told = append(told, lastseen.Active)
	}
	f.settle()
	died := dying.dies()
	step.do(f, dying, id)
	for passed := time.Duration(0); !died(); passed += tick {
		require.Less(t, passed, 2*timeout, "the server did not do the step")
		f.pass(tick)
	}
	f.kill(dying)

	f.pass(max(step.wait, takeover))
	told = append(told, step.known)
	require.Equal(t, told, lives.states("bob"))
	require.Equal(t, told, lives.states("alice"))
	f.requireState(id, step.known)
	if step.known == lastseen.Active {
		f.requireInCall("alice", "bob")
		f.acts(lives, id, "alice", lastseen.End)
		f.settle()
		require.Equal(t, lastseen.Ended, lives.told["alice"][len(lives.told["alice"])-1].State)
		require.Equal(t, lastseen.Ended, lives.told["bob"][len(lives.told["bob"])-1].State)
	}
	f.requireInCall()
	f.requireNotRecorded("alice", "bob")
}

// requireNotRecorded requires that details do not say that users are in a call, not even until a time that has passed.
func (f *fixture) requireNotRecorded(users ...string) {
	f.t.Helper()
	_, details, err := f.store.Describe(f.t.Context(), ns, users)
	require.NoError(f.t, err)
	for _, user := range users {
		require.Zero(f.t, details[user].InCallUntil, user)
	}
}
