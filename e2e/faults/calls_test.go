//go:build faults

package faults

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// TestCallsInSentinelFailover kills the primary in mid-call. The replica that takes over lacks the last steps, which
// were acknowledged. Every call is decided, both parties are sent how, and their users can be called again.
func TestCallsInSentinelFailover(t *testing.T) {
	t.Parallel()
	watched := redistest.StartSentinel(t)
	one, two := startServer(t, watched.URL(), callsArgs()...), startServer(t, watched.URL(), callsArgs()...)
	pairOf := func(name string) *ringing { return callers(t, name, one, two) }

	over := pairOf("over").ring(t).accept(t).end(t)
	active, ends := pairOf("active").ring(t).accept(t), pairOf("ends").ring(t).accept(t)
	rings, cancels, rejects := pairOf("rings").ring(t), pairOf("cancels").ring(t), pairOf("rejects").ring(t)
	accepts, talks, begins := pairOf("accepts").ring(t), pairOf("talks").ring(t), pairOf("begins")
	active.awaitInCall(t, two, true)
	ends.awaitInCall(t, two, true)

	cutReplica(t, watched)
	ends.end(t)
	cancels.act(t, "end", cancels.caller, "cancelled")
	rejects.act(t, "reject", rejects.callee, "rejected")
	accepts.accept(t)
	talks.accept(t).say(t, "one").say(t, "two").say(t, "three")
	begins.ring(t)
	watched.Nodes[0].Stop(t)
	await(t, "the replica to be the primary", func() bool { return watched.Primary() == watched.Nodes[1] })

	require.Empty(t, begins.stored(t, two), "its begin was lost")
	require.Equal(t, "ended", over.stored(t, two))
	require.Equal(t, "active", active.stored(t, two))
	active.end(t)
	rings.accept(t).end(t)
	active.requireSent(t, "ringing", "active", "ended")
	rings.requireSent(t, "ringing", "active", "ended")
	begins.await(t, "ended")
	begins.requireSent(t, "ringing", "ended")
	accepts.await(t, "missed")
	accepts.requireSent(t, "ringing", "active", "ringing", "missed") // as the store has it
	talks.await(t, "missed")
	all := []*ringing{over, active, ends, rings, cancels, rejects, accepts, talks, begins}
	for _, r := range all {
		r.again(t, two)
	}
}

// cutReplica has the replica get nothing any longer of what the primary acknowledges.
func cutReplica(t testing.TB, watched *redistest.Sentinel) {
	t.Helper()
	primary, replica := watched.Nodes[0].Client(t), watched.Nodes[1].Client(t)
	require.Equal(t, int64(1), primary.Wait(t.Context(), 1, awaitFor).Val())
	require.NoError(t, replica.ConfigSet(t.Context(), "masterauth", "wrong").Err())
	require.NoError(t, primary.ClientKillByFilter(t.Context(), "TYPE", "replica").Err())
	await(t, "the end of replication", func() bool {
		killed, err := primary.ClientKillByFilter(t.Context(), "TYPE", "replica").Result()
		return err == nil && killed == 0
	})
}

// TestCallsWhenServerKilled kills the server that ends calls, to which the callers are connected. The other one ends
// what rings and what nobody takes part in any longer. What goes on elsewhere is not affected.
func TestCallsWhenServerKilled(t *testing.T) {
	t.Parallel()
	redis := redistest.StartProcess(t)
	killed, other := startServer(t, redis.URL(), callsArgs()...), startServer(t, redis.URL(), callsArgs()...)
	first := callers(t, "first", killed, other).ring(t)
	if endsCalls(t, killed, other) == other {
		killed, other = other, killed
	}
	first.act(t, "end", first.caller, "cancelled")
	elsewhere := callers(t, "elsewhere", other, other).ring(t).accept(t)
	rings, returns := callers(t, "rings", killed, other).ring(t), callers(t, "returns", killed, other).ring(t)
	active := callers(t, "active", killed, other).ring(t).accept(t)
	comes := callers(t, "comes", killed, other).ring(t).accept(t)
	active.awaitInCall(t, other, true)
	killed.kill(t)
	for _, r := range []*ringing{rings, returns, active, comes} {
		r.sockets[0].awaitEnd(t)
		r.sockets[0] = nil
	}
	returns.reconnect(t, other)
	comes.reconnect(t, other)

	rings.await(t, "missed")
	returns.await(t, "missed")
	active.await(t, "lost")
	for state, calls := range map[string]float64{"missed": 2, "lost": 1} { // not only for those who read them
		other.awaitMetric(t, `lastseen_calls_total{state="`+state+`"}`, calls)
	}
	for _, r := range []*ringing{rings, active} {
		r.reconnect(t, other)
		r.again(t, other)
	}
	returns.again(t, other)
	for _, r := range []*ringing{elsewhere, comes} { // longer than green
		require.Equal(t, "active", r.stored(t, other))
		r.awaitInCall(t, other, true)
		r.end(t)
		r.again(t, other)
	}
}

// endsCalls returns the one of the servers that ends calls whose time has passed.
func endsCalls(t testing.TB, servers ...*server) (found *server) {
	t.Helper()
	await(t, "a server to end calls", func() bool {
		for _, s := range servers {
			if s.metric(t, "lastseen_calls") > 0 {
				found = s
			}
		}
		return found != nil
	})
	return found
}

// TestCallsWhenRedisIsEmpty restarts Redis in mid-call, without any data. The calls are gone: all parties are sent that
// theirs has ended, and can be called again.
func TestCallsWhenRedisIsEmpty(t *testing.T) {
	t.Parallel()
	redis := redistest.StartProcess(t, "--appendonly", "no")
	one, two := startServer(t, redis.URL(), callsArgs()...), startServer(t, redis.URL(), callsArgs()...)
	rings, active := callers(t, "rings", one, two).ring(t), callers(t, "active", one, two).ring(t).accept(t)
	over := callers(t, "over", one, two).ring(t).accept(t).end(t)
	active.awaitInCall(t, two, true)
	redis.Stop(t)
	redis.Start(t)
	for _, r := range []*ringing{rings, active} {
		r.await(t, "ended")
	}
	await(t, "servers to count no calls", func() bool {
		return one.metric(t, "lastseen_calls")+two.metric(t, "lastseen_calls") == 0
	})
	for _, r := range []*ringing{rings, active, over} {
		require.Empty(t, r.stored(t, two))
		r.again(t, two)
	}
}

// callsPath is where the calls of the namespace chat are.
const callsPath = "/v1/namespaces/chat/calls"

// callsArgs are the arguments of servers whose users call each other: times as short as a busy machine allows.
func callsArgs() []string { return holdArgs("--ring-timeout", "12s", "--redial-wait", "off") }

// ringing is a call between two users, each with a connection that is sent it.
type ringing struct {
	caller, callee     string
	atCaller, atCallee *server    // to which they are connected
	sockets            [2]*socket // of the caller and the callee; nil for one whose server was killed
	id                 string     // of the newest call
}

// callers connects two users, each to a server.
func callers(t testing.TB, name string, atCaller, atCallee *server) *ringing {
	t.Helper()
	r := &ringing{caller: name + "-from", callee: name + "-to", atCaller: atCaller, atCallee: atCallee}
	r.sockets[0] = connect(t, socketOptions{url: atCaller.url, hello: device(r.caller, r.caller, "web")})
	r.sockets[1] = connect(t, socketOptions{url: atCallee.url, hello: device(r.callee, r.callee, "web")})
	return r
}

// callState is what these tests need of a call.
type callState struct{ ID, State string }

// ring starts a call, and waits until both parties are sent it.
func (r *ringing) ring(t testing.TB) *ringing {
	t.Helper()
	got := r.atCaller.served(t, http.MethodPost, callsPath, object{"from": r.caller, "to": r.callee})
	require.Equal(t, http.StatusCreated, got.status, "%s calls %s: %s", r.caller, r.callee, got.body)
	r.id = decode[callState](t, got).ID
	r.await(t, "ringing")
	return r
}

// act does what a party wants, on the server of that party, and waits until both parties are sent the state.
func (r *ringing) act(t testing.TB, action, user, state string) *ringing {
	t.Helper()
	s := r.atCaller
	if user == r.callee {
		s = r.atCallee
	}
	got := s.served(t, http.MethodPost, callsPath+"/"+r.id+"/"+action, object{"user": user})
	require.Equal(t, state, decode[callState](t, got).State, "%s does %s", user, action)
	r.await(t, state)
	return r
}

// accept has the callee accept.
func (r *ringing) accept(t testing.TB) *ringing { return r.act(t, "accept", r.callee, "active") }

// end has the caller end an active call.
func (r *ringing) end(t testing.TB) *ringing { return r.act(t, "end", r.caller, "ended") }

// say has the caller change what the app says, with which the call gets a new version.
func (r *ringing) say(t testing.TB, app string) *ringing {
	t.Helper()
	got := r.atCaller.served(t, http.MethodPost, callsPath+"/"+r.id+"/alive", object{"user": r.caller, "app": app})
	require.Equal(t, http.StatusOK, got.status, "%s", got.body)
	return r
}

// states returns the states of the newest call that a party was sent, each once.
func (r *ringing) states(t testing.TB, party int) (states []string) {
	t.Helper()
	for _, f := range r.sockets[party].received() {
		var call callState
		if f.name != "call" {
			continue
		}
		require.NoError(t, json.Unmarshal(f.data, &call))
		if call.ID == r.id && (len(states) == 0 || states[len(states)-1] != call.State) {
			states = append(states, call.State)
		}
	}
	return states
}

// await waits until each connected party was sent a state, and no other one after it.
func (r *ringing) await(t testing.TB, state string) {
	t.Helper()
	for party, s := range r.sockets {
		if s == nil {
			continue
		}
		await(t, r.caller+" or "+r.callee+" to be sent "+state, func() bool {
			got := r.states(t, party)
			require.True(t, s.open(), "%s: party %d: %v", r.caller, party, s.why())
			return len(got) > 0 && got[len(got)-1] == state
		})
	}
}

// requireSent checks the states that both parties were sent.
func (r *ringing) requireSent(t testing.TB, states ...string) {
	t.Helper()
	for party := range r.sockets {
		require.Equal(t, states, r.states(t, party), "%s: party %d", r.caller, party)
	}
}

// stored returns the state of the call that a server reads; "" if there is none.
func (r *ringing) stored(t testing.TB, s *server) string {
	t.Helper()
	got := s.served(t, http.MethodGet, callsPath+"/"+r.id, nil)
	if got.status == http.StatusNotFound {
		return ""
	}
	return decode[callState](t, got).State
}

// awaitInCall waits until a server shows that both users are in a call, or that neither is.
func (r *ringing) awaitInCall(t testing.TB, s *server, want bool) {
	t.Helper()
	for _, user := range []string{r.caller, r.callee} {
		await(t, user+" to be in a call, or not", func() bool {
			found := decode[struct {
				InCall bool `json:"in_call"`
			}](t, s.served(t, http.MethodGet, userPath(user), nil))
			return found.InCall == want
		})
	}
}

// again has the users call each other once more, now that no call of theirs goes on.
func (r *ringing) again(t testing.TB, s *server) {
	t.Helper()
	r.awaitInCall(t, s, false)
	r.ring(t).accept(t)
	r.awaitInCall(t, s, true)
	r.end(t)
	r.awaitInCall(t, s, false)
}

// reconnect connects the caller to another server. The newest call, if it goes on, is in the welcome.
func (r *ringing) reconnect(t testing.TB, s *server) {
	t.Helper()
	r.atCaller = s
	r.sockets[0] = connect(t, socketOptions{url: s.url, hello: device(r.caller, r.caller, "web")})
}
