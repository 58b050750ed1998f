package calls

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// active starts a call of alice on phone with bob on tablet, each connected to a server, and bob accepts.
func (f *fixture) active(a, b *server) (id string, alice, bob *connection) {
	f.t.Helper()
	id, alice, bob = f.ringing(a, b, a)
	f.pass(2 * time.Second)
	f.accept(b, id)
	return id, alice, bob
}

// ringing is active without the acceptance, on a server that starts the call.
func (f *fixture) ringing(a, b, starter *server) (id string, alice, bob *connection) {
	f.t.Helper()
	alice, bob = a.connect("alice", "phone"), b.connect("bob", "tablet")
	c := f.call("alice", "bob")
	c.FromDevice = "phone"
	return f.starts(starter, c), alice, bob
}

func (f *fixture) accept(s *server, id string) {
	f.t.Helper()
	act := store.CallAct{ID: id, User: "bob", Device: "tablet", Action: lastseen.Accept}
	step, err := done(s.Act(f.t.Context(), ns, act))
	require.NoError(f.t, err)
	require.Equal(f.t, lastseen.Active, step.Call.State)
}

// TestActive: a call continues while both parties are connected, and they stay in a call.
func TestActive(t *testing.T) {
	for caller := range 2 {
		f := newFixture(t, 2)
		id, _, _ := f.active(f.servers[caller], f.servers[1])
		for range 20 {
			f.pass(time.Minute)
			f.requireState(id, lastseen.Active)
			f.requireInCall("alice", "bob")
		}
		for _, s := range f.servers {
			require.Less(t, s.counts["KeepCallsAlive"], 2*20*4+10)
			require.LessOrEqual(t, len(s.told["alice"]), 2, "nothing is signalled while all is well")
		}
		f.acts(f.servers[0], id, "alice", lastseen.End)
		f.pass(time.Second)
		for _, s := range f.servers {
			require.Zero(t, s.Stats().Followed)
			require.Empty(t, s.keepAlive.due.slots)
		}
	}
}

// TestInactive: a call is lost soon after a party was not active for the timeout, on the device of the call.
func TestInactive(t *testing.T) {
	for _, gone := range []string{"alice", "bob"} {
		for _, how := range []string{"silent", "other device", "other server"} {
			f, a, b := newPair(t)
			id, alice, bob := f.active(a, b)
			f.pass(10 * time.Minute)
			f.requireState(id, lastseen.Active)
			c, s := alice, a
			if gone == "bob" {
				c, s = bob, b
			}
			switch how {
			case "silent":
				c.since, c.silent = f.monotonic(), true
			case "other device":
				c.device = "laptop"
			case "other server":
				delete(s.connections, lastseen.UserKey{Namespace: ns, User: gone})
			}
			f.pass(timeout - receivedEach - timeout/4)
			f.requireState(id, lastseen.Active)
			f.pass(receivedEach + timeout/2 + timeout/4)
			f.requireState(id, lastseen.Lost)
			f.requireInCall()
			f.pass(2 * timeout)
			require.Zero(t, a.Stats().Followed+b.Stats().Followed)
		}
	}
}

// TestReconnect: a party who comes back through another server in time keeps the call.
func TestReconnect(t *testing.T) {
	f := newFixture(t, 3)
	a, b := f.servers[0], f.servers[1]
	id, _, _ := f.active(a, b)
	for i := range 30 {
		f.pass(40 * time.Second)
		delete(f.servers[i%3].connections, lastseen.UserKey{Namespace: ns, User: "alice"})
		next := f.servers[(i+1)%3]
		f.pass(10 * time.Second)
		next.connect("alice", "phone")
		calls, err := next.ReadCalls(t.Context(), ns, nil, []string{"alice"})
		require.NoError(t, err)
		next.Follow(ns, "alice", calls[0])
	}
	f.requireState(id, lastseen.Active)
	f.pass(time.Minute)
	require.LessOrEqual(t, a.Stats().Followed+b.Stats().Followed+f.servers[2].Stats().Followed, 5)
}

// TestLostSignals: a call continues although any one server had no signals of its beginning, and its end is noticed.
func TestLostSignals(t *testing.T) {
	for deaf := range 3 {
		for _, from := range []string{"start", "accept"} {
			f := newFixture(t, 3)
			a, b, other := f.servers[0], f.servers[1], f.servers[2]
			f.servers[deaf].deaf = from == "start"
			id, _, _ := f.ringing(a, b, other)
			f.pass(time.Second)
			f.servers[deaf].deaf = true
			f.accept(other, id)
			f.pass(time.Second)
			f.servers[deaf].deaf = false
			f.pass(10 * time.Minute)
			f.requireState(id, lastseen.Active)

			f.servers[deaf].deaf = true
			f.acts(other, id, "bob", lastseen.End)
			f.servers[deaf].deaf = false
			f.pass(timeout / 2)
			if deaf < 2 {
				states := append(a.states("alice"), b.states("bob")...)
				require.Equal(t, lastseen.Ended, states[len(states)-1])
			}
			require.Zero(t, a.Stats().Followed+b.Stats().Followed)
		}
	}
}

// TestOutage: a call continues after the store was away for long.
func TestOutage(t *testing.T) {
	for _, away := range []time.Duration{30 * time.Second, time.Minute, time.Hour} {
		f := newFixture(t, 2)
		id, _, _ := f.active(f.servers[0], f.servers[1])
		f.pass(timeout + 13*time.Second)
		f.away()
		f.pass(away)
		f.back()
		f.pass(10 * time.Minute)
		f.requireState(id, lastseen.Active)
		f.requireInCall("alice", "bob")
		require.LessOrEqual(t, countLines(f.log.String()), 4, f.log.String())
	}
}

// TestGoneInAnOutage: a party who goes away while the store is away is lost soon after it.
func TestGoneInAnOutage(t *testing.T) {
	f := newFixture(t, 2)
	id, alice, _ := f.active(f.servers[0], f.servers[1])
	f.pass(time.Minute)
	f.away()
	f.pass(timeout)
	alice.since, alice.silent = f.monotonic(), true
	f.pass(timeout)
	f.back()
	f.pass(timeout)
	f.requireState(id, lastseen.Lost)
}

// TestShorterTimeout: calls are active often enough whatever the timeout of new calls becomes.
func TestShorterTimeout(t *testing.T) {
	for _, later := range []time.Duration{timeout / 3, 5 * timeout, time.Hour} {
		f, a, b := newPair(t)
		id, _, _ := f.active(a, b)
		f.pass(time.Minute)
		for _, s := range f.servers {
			s.Timeout = func(string) time.Duration { return later }
		}
		c, err := store.ReadCall(t.Context(), a, ns, id)
		require.NoError(t, err)
		a.Follow(ns, "alice", c)
		a.keepAlive.drop(lastseen.UserKey{Namespace: ns, User: "alice"}) // as after another connection
		a.Follow(ns, "alice", c)
		before := a.counts["KeepCallsAlive"]
		f.pass(10 * time.Minute)
		f.requireState(id, lastseen.Active)
		require.Less(t, a.counts["KeepCallsAlive"]-before, 10*60/4)
	}
}

// TestAcceptThatWasNotSignalled: a connection that missed it learns that the call is active, although it goes on.
func TestAcceptThatWasNotSignalled(t *testing.T) {
	f, a, b := newPair(t)
	id, _, _ := f.ringing(a, b, b)
	f.pass(time.Second)
	a.deaf = true
	f.accept(b, id)
	a.deaf = false
	f.pass(timeout / 4)
	require.Equal(t, []lastseen.CallState{lastseen.Ringing, lastseen.Active}, a.states("alice"))
	require.Len(t, b.told["bob"], 2)
}

// TestAcceptedLate: a party of a call that rang for long is active soon after it was accepted.
func TestAcceptedLate(t *testing.T) {
	f, s := newSingle(t)
	s.Timeout = func(string) time.Duration { return time.Hour } // as after a reload
	connect(s, s)
	c := f.call("alice", "bob")
	c.Ring = 10 * time.Minute
	f.starts(s, c)
	f.pass(5 * time.Minute)
	f.acts(s, c.ID, "bob", lastseen.Accept)
	f.pass(30 * time.Minute)
	f.requireState(c.ID, lastseen.Active)
}

// TestFollowIsNewer: what is older than what is known changes nothing.
func TestFollowIsNewer(t *testing.T) {
	_, s := newSingle(t)
	call := func(id string, state lastseen.CallState, version int64, age lastseen.Instant) lastseen.Call {
		return lastseen.Call{ID: id, From: "alice", To: "bob", State: state, Version: version, Created: base - age}
	}
	first, next := call("a", lastseen.Active, 2, 0), call("c", lastseen.Ringing, 1, -1)
	withApp := next
	withApp.App = "{}"
	for _, step := range []struct {
		what  string
		call  lastseen.Call
		known lastseen.Call
	}{
		{"the first one", first, first},
		{"an older version", call("a", lastseen.Ringing, 1, 0), first},
		{"an older call", call("b", lastseen.Active, 2, 1), first},
		{"the end of an older call", call("b", lastseen.Ended, 2, 1), first},
		{"what is over is never older: the store lost versions", call("a", lastseen.Missed, 1, 0), lastseen.Call{}},
		{"again", first, first},
		{"a newer call", withApp, next},
		{"its end", call("c", lastseen.Ended, 3, -1), lastseen.Call{}},
	} {
		s.Follow(ns, "alice", step.call)
		var known lastseen.Call
		if p := s.keepAlive.parties[lastseen.UserKey{Namespace: ns, User: "alice"}]; p != nil {
			known = p.call
		}
		require.Equal(t, step.known, known, step.what)
	}
	s.Follow(ns, "carol", first)
	require.Empty(t, s.keepAlive.parties, "not a party")
}

// manyActive begins a number of calls, one after the other, between users who are connected to one server.
func (f *fixture) manyActive(s *server, n int, each time.Duration) {
	f.t.Helper()
	for i := range n {
		from, to := fmt.Sprint("from-", i), fmt.Sprint("to-", i)
		s.connect(from, "")
		s.connect(to, "")
		f.acts(s, f.rings(s, from, to), to, lastseen.Accept)
		f.pass(each)
	}
}

// TestManyActive: parties are kept alive in batches.
func TestManyActive(t *testing.T) {
	const n = 600
	f, s := newSingle(t)
	f.manyActive(s, n, 0)
	f.pass(time.Minute)
	before := s.counts["KeepCallsAlive"]
	f.pass(2 * time.Minute)
	require.Equal(t, 2*n, s.Stats().Followed)
	require.Equal(t, n, s.Stats().Ongoing)
	require.LessOrEqual(t, s.counts["KeepCallsAlive"]-before, 2*6*(2*n/store.MaxCallBatch+1))
}

// TestActiveTogether: parties whose calls began at different times are kept alive in few calls, and no call is read
// while all is well.
func TestActiveTogether(t *testing.T) {
	const n = 100
	f, s := newSingle(t)
	s.Active = func(string, string, string, time.Duration) bool { return true }
	f.manyActive(s, n, tick)
	f.pass(time.Minute)
	active, read := s.counts["KeepCallsAlive"], s.counts["ReadCalls"]
	f.pass(2 * time.Minute)
	const began = n * tick
	require.LessOrEqual(t, s.counts["KeepCallsAlive"]-active, 9*int(began/keepAliveGrid+1))
	require.Equal(t, read, s.counts["ReadCalls"])
	require.Equal(t, n, s.Stats().Ongoing)
}

// TestInactiveIsAskedSoon: a party whose connection was not active in time is asked for again soon, since it may be
// active any moment.
func TestInactiveIsAskedSoon(t *testing.T) {
	f, s := newSingle(t)
	silent, asked := false, 0
	s.Active = func(_, user, _ string, _ time.Duration) bool {
		if user != "bob" || !silent {
			return true
		}
		asked++
		return false
	}
	connect(s, s)
	id := f.rings(s, "alice", "bob")
	f.acts(s, id, "bob", lastseen.Accept)
	f.pass(timeout)
	silent = true
	f.pass(timeout * 3 / 5)
	require.GreaterOrEqual(t, asked, 8)
	silent = false
	f.pass(timeout)
	f.acts(s, id, "bob", lastseen.End) // it was not lost
}

// TestRest: it is known how long an active call continues while its parties are active, and not of any other.
func TestRest(t *testing.T) {
	f, a, b := newPair(t)
	id, _, _ := f.active(a, b)
	for range 100 {
		f.pass(9 * time.Second)
		c, err := store.ReadCall(t.Context(), a, ns, id)
		require.NoError(t, err)
		now, err := a.Now(t.Context())
		require.NoError(t, err)
		left := c.Expires.Sub(now)
		for _, rest := range []time.Duration{a.Rest(ns, "alice", id), b.Rest(ns, "bob", id)} {
			require.LessOrEqual(t, rest, left)
			require.Greater(t, rest, timeout/4)
		}
	}
	require.Zero(t, a.Rest(ns, "alice", "other"))
	require.Zero(t, a.Rest(ns, "bob", id), "bob is connected to the other server")
	f.acts(b, id, "bob", lastseen.End)
	f.pass(time.Second)
	require.Zero(t, a.Rest(ns, "alice", id))
}

// TestNothingToKeepAlive: parties in a namespace that cannot have calls any longer are not followed.
func TestNothingToKeepAlive(t *testing.T) {
	f := newFixture(t, 2)
	f.active(f.servers[0], f.servers[1])
	for _, s := range f.servers {
		s.fail = func(string) error { return store.ErrNoCalls }
	}
	f.pass(timeout)
	for _, s := range f.servers {
		require.Zero(t, s.Stats().Followed)
	}
}
