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
func (w *world) active(a, b *server) (id string, alice, bob *connection) {
	w.t.Helper()
	id, alice, bob = w.ringing(a, b, a)
	w.pass(2 * time.Second)
	w.accept(b, id)
	return id, alice, bob
}

// ringing is active without the acceptance, on a server that starts the call.
func (w *world) ringing(a, b, starter *server) (id string, alice, bob *connection) {
	w.t.Helper()
	alice, bob = a.connect("alice", "phone"), b.connect("bob", "tablet")
	c := w.call("alice", "bob")
	c.FromDevice = "phone"
	return w.starts(starter, c), alice, bob
}

func (w *world) accept(s *server, id string) {
	w.t.Helper()
	act := store.CallAct{ID: id, User: "bob", Device: "tablet", Action: lastseen.Accept}
	step, err := done(s.Act(w.t.Context(), ns, act))
	require.NoError(w.t, err)
	require.Equal(w.t, lastseen.Active, step.Call.State)
}

// TestHeard: a call goes on while both parties are connected, and they stay in a call.
func TestHeard(t *testing.T) {
	for caller := range 2 {
		w := newWorld(t, 2)
		id, _, _ := w.active(w.servers[caller], w.servers[1])
		for range 20 {
			w.pass(time.Minute)
			w.requireState(id, lastseen.Active)
			w.requireInCall("alice", "bob")
		}
		for _, s := range w.servers {
			require.Less(t, s.counts["HearCalls"], 2*20*4+10)
			require.LessOrEqual(t, len(s.told["alice"]), 2, "nothing is signalled while all is well")
		}
		w.acts(w.servers[0], id, "alice", lastseen.End)
		w.pass(time.Second)
		for _, s := range w.servers {
			require.Zero(t, s.Stats().Followed)
			require.Empty(t, s.hearing.due.queue)
		}
	}
}

// TestNotHeard: a call is lost soon after a party was not heard for the quiet time, on the device of the call.
func TestNotHeard(t *testing.T) {
	for _, gone := range []string{"alice", "bob"} {
		for _, how := range []string{"silent", "other device", "other server"} {
			w, a, b := newPair(t)
			id, alice, bob := w.active(a, b)
			w.pass(10 * time.Minute)
			w.requireState(id, lastseen.Active)
			c, s := alice, a
			if gone == "bob" {
				c, s = bob, b
			}
			switch how {
			case "silent":
				c.since, c.silent = w.monotonic(), true
			case "other device":
				c.device = "laptop"
			case "other server":
				delete(s.connections, lastseen.UserKey{Namespace: ns, User: gone})
			}
			w.pass(quiet - heardEach - quiet/4)
			w.requireState(id, lastseen.Active)
			w.pass(heardEach + quiet/2 + quiet/4)
			w.requireState(id, lastseen.Lost)
			w.requireInCall()
			w.pass(2 * quiet)
			require.Zero(t, a.Stats().Followed+b.Stats().Followed)
		}
	}
}

// TestReconnect: a party who comes back through another server in time keeps the call.
func TestReconnect(t *testing.T) {
	w := newWorld(t, 3)
	a, b := w.servers[0], w.servers[1]
	id, _, _ := w.active(a, b)
	for i := range 30 {
		w.pass(40 * time.Second)
		delete(w.servers[i%3].connections, lastseen.UserKey{Namespace: ns, User: "alice"})
		next := w.servers[(i+1)%3]
		w.pass(10 * time.Second)
		next.connect("alice", "phone")
		calls, err := next.ReadCalls(t.Context(), ns, nil, []string{"alice"})
		require.NoError(t, err)
		next.Follow(ns, "alice", calls[0])
	}
	w.requireState(id, lastseen.Active)
	w.pass(time.Minute)
	require.LessOrEqual(t, a.Stats().Followed+b.Stats().Followed+w.servers[2].Stats().Followed, 5)
}

// TestLostSignals: a call goes on although any one server had no signals of its beginning, and its end is noticed.
func TestLostSignals(t *testing.T) {
	for deaf := range 3 {
		for _, from := range []string{"start", "accept"} {
			w := newWorld(t, 3)
			a, b, other := w.servers[0], w.servers[1], w.servers[2]
			w.servers[deaf].deaf = from == "start"
			id, _, _ := w.ringing(a, b, other)
			w.pass(time.Second)
			w.servers[deaf].deaf = true
			w.accept(other, id)
			w.pass(time.Second)
			w.servers[deaf].deaf = false
			w.pass(10 * time.Minute)
			w.requireState(id, lastseen.Active)

			w.servers[deaf].deaf = true
			w.acts(other, id, "bob", lastseen.End)
			w.servers[deaf].deaf = false
			w.pass(quiet / 2)
			if deaf < 2 {
				states := append(a.states("alice"), b.states("bob")...)
				require.Equal(t, lastseen.Ended, states[len(states)-1])
			}
			require.Zero(t, a.Stats().Followed+b.Stats().Followed)
		}
	}
}

// TestOutage: a call goes on after the store was away for long.
func TestOutage(t *testing.T) {
	for _, away := range []time.Duration{30 * time.Second, time.Minute, time.Hour} {
		w := newWorld(t, 2)
		id, _, _ := w.active(w.servers[0], w.servers[1])
		w.pass(quiet + 13*time.Second)
		w.away()
		w.pass(away)
		w.back()
		w.pass(10 * time.Minute)
		w.requireState(id, lastseen.Active)
		w.requireInCall("alice", "bob")
		require.LessOrEqual(t, countLines(w.log.String()), 4, w.log.String())
	}
}

// TestGoneInAnOutage: a party who goes away while the store is away is lost soon after it.
func TestGoneInAnOutage(t *testing.T) {
	w := newWorld(t, 2)
	id, alice, _ := w.active(w.servers[0], w.servers[1])
	w.pass(time.Minute)
	w.away()
	w.pass(quiet)
	alice.since, alice.silent = w.monotonic(), true
	w.pass(quiet)
	w.back()
	w.pass(quiet)
	w.requireState(id, lastseen.Lost)
}

// TestShorterQuiet: calls are heard often enough whatever the quiet time of new calls becomes.
func TestShorterQuiet(t *testing.T) {
	for _, later := range []time.Duration{quiet / 3, 5 * quiet, time.Hour} {
		w, a, b := newPair(t)
		id, _, _ := w.active(a, b)
		w.pass(time.Minute)
		for _, s := range w.servers {
			s.Quiet = func(string) time.Duration { return later }
		}
		c, err := store.ReadCall(t.Context(), a, ns, id)
		require.NoError(t, err)
		a.hearing.follow(lastseen.UserKey{Namespace: ns, User: "alice"}, c)
		a.hearing.drop(lastseen.UserKey{Namespace: ns, User: "alice"}) // as after another connection
		a.Follow(ns, "alice", c)
		before := a.counts["HearCalls"]
		w.pass(10 * time.Minute)
		w.requireState(id, lastseen.Active)
		require.Less(t, a.counts["HearCalls"]-before, 10*60/4)
	}
}

// TestAcceptThatWasNotSignalled: a connection that missed it learns that the call is active, although it goes on.
func TestAcceptThatWasNotSignalled(t *testing.T) {
	w, a, b := newPair(t)
	id, _, _ := w.ringing(a, b, b)
	w.pass(time.Second)
	a.deaf = true
	w.accept(b, id)
	a.deaf = false
	w.pass(quiet / 4)
	require.Equal(t, []lastseen.CallState{lastseen.Ringing, lastseen.Active}, a.states("alice"))
	require.Len(t, b.told["bob"], 2)
}

// TestAcceptedLate: a party of a call that rang for long is heard soon after it was accepted.
func TestAcceptedLate(t *testing.T) {
	w, s := newSingle(t)
	s.Quiet = func(string) time.Duration { return time.Hour } // as after a reload
	connect(s, s)
	c := w.call("alice", "bob")
	c.Ring = 10 * time.Minute
	w.starts(s, c)
	w.pass(5 * time.Minute)
	w.acts(s, c.ID, "bob", lastseen.Accept)
	w.pass(30 * time.Minute)
	w.requireState(c.ID, lastseen.Active)
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
		if p := s.hearing.parties[lastseen.UserKey{Namespace: ns, User: "alice"}]; p != nil {
			known = p.call
		}
		require.Equal(t, step.known, known, step.what)
	}
	s.Follow(ns, "carol", first)
	require.Empty(t, s.hearing.parties, "not a party")
}

// manyActive begins a number of calls, one after the other, between users who are connected to one server.
func (w *world) manyActive(s *server, n int, each time.Duration) {
	w.t.Helper()
	for i := range n {
		from, to := fmt.Sprint("from-", i), fmt.Sprint("to-", i)
		s.connect(from, "")
		s.connect(to, "")
		w.acts(s, w.rings(s, from, to), to, lastseen.Accept)
		w.pass(each)
	}
}

// TestManyHeard: parties are heard in batches.
func TestManyHeard(t *testing.T) {
	const n = 600
	w, s := newSingle(t)
	w.manyActive(s, n, 0)
	w.pass(time.Minute)
	before := s.counts["HearCalls"]
	w.pass(2 * time.Minute)
	require.Equal(t, 2*n, s.Stats().Followed)
	require.Equal(t, n, s.Stats().GoingOn)
	require.LessOrEqual(t, s.counts["HearCalls"]-before, 2*6*(2*n/store.MaxCallBatch+1))
}

// TestHeardTogether: parties whose calls began at different times are heard in few calls, and no call is read while all
// is well.
func TestHeardTogether(t *testing.T) {
	const n = 100
	w, s := newSingle(t)
	s.Heard = func(string, string, string, time.Duration) bool { return true }
	w.manyActive(s, n, tick)
	w.pass(time.Minute)
	heard, read := s.counts["HearCalls"], s.counts["ReadCalls"]
	w.pass(2 * time.Minute)
	const began = n * tick
	require.LessOrEqual(t, s.counts["HearCalls"]-heard, 9*int(began/hearingGrid+1))
	require.Equal(t, read, s.counts["ReadCalls"])
	require.Equal(t, n, s.Stats().GoingOn)
}

// TestNotHeardIsAskedSoon: a party whose connection was not heard in time is asked for again soon, since it may be
// heard any moment.
func TestNotHeardIsAskedSoon(t *testing.T) {
	w, s := newSingle(t)
	silent, asked := false, 0
	s.Heard = func(_, user, _ string, _ time.Duration) bool {
		if user != "bob" || !silent {
			return true
		}
		asked++
		return false
	}
	connect(s, s)
	id := w.rings(s, "alice", "bob")
	w.acts(s, id, "bob", lastseen.Accept)
	w.pass(quiet)
	silent = true
	w.pass(quiet * 3 / 5)
	require.GreaterOrEqual(t, asked, 8)
	silent = false
	w.pass(quiet)
	w.acts(s, id, "bob", lastseen.End) // it was not lost
}

// TestRest: it is known how long an active call goes on while its parties are heard, and not of any other.
func TestRest(t *testing.T) {
	w, a, b := newPair(t)
	id, _, _ := w.active(a, b)
	for range 100 {
		w.pass(9 * time.Second)
		c, err := store.ReadCall(t.Context(), a, ns, id)
		require.NoError(t, err)
		now, err := a.Now(t.Context())
		require.NoError(t, err)
		left := c.Expires.Sub(now)
		for _, rest := range []time.Duration{a.Rest(ns, "alice", id), b.Rest(ns, "bob", id)} {
			require.LessOrEqual(t, rest, left)
			require.Greater(t, rest, quiet/4)
		}
	}
	require.Zero(t, a.Rest(ns, "alice", "other"))
	require.Zero(t, a.Rest(ns, "bob", id), "bob is connected to the other server")
	w.acts(b, id, "bob", lastseen.End)
	w.pass(time.Second)
	require.Zero(t, a.Rest(ns, "alice", id))
}

// TestNothingToHear: parties in a namespace that cannot have calls any longer are not followed.
func TestNothingToHear(t *testing.T) {
	w := newWorld(t, 2)
	w.active(w.servers[0], w.servers[1])
	for _, s := range w.servers {
		s.fail = func(string) error { return store.ErrNoCalls }
	}
	w.pass(quiet)
	for _, s := range w.servers {
		require.Zero(t, s.Stats().Followed)
	}
}
