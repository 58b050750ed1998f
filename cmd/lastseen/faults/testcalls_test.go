//go:build faults

package faults

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// callsPath is where the calls of the namespace chat are.
const callsPath = "/v1/namespaces/chat/calls"

// callsArgs are the arguments of servers whose users call each other: times as short as a busy machine allows.
func callsArgs() []string { return holdArgs("--ring-timeout", "12s") }

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

// post sends a request with a body until Redis serves it, and returns the status and the state of the call in the
// response.
func post(t testing.TB, s *server, path string, body object) (status int, call struct{ ID, State string }) {
	t.Helper()
	text, err := json.Marshal(body)
	require.NoError(t, err)
	client := &http.Client{Timeout: awaitFor}
	defer client.CloseIdleConnections()
	var r response
	await(t, path, func() bool {
		request, err := http.NewRequest(http.MethodPost, s.url+path, strings.NewReader(string(text)))
		require.NoError(t, err)
		request.Header.Set("Content-Type", "application/json")
		r, err = send(client, request)
		require.NoError(t, err)
		return r.status != http.StatusServiceUnavailable
	})
	require.NoError(t, json.Unmarshal(r.body, &call), "%s", r.body)
	return r.status, call
}

// ring starts a call, and waits until both parties are sent it.
func (r *ringing) ring(t testing.TB) *ringing {
	t.Helper()
	status, call := post(t, r.atCaller, callsPath, object{"from": r.caller, "to": r.callee})
	require.Equal(t, http.StatusCreated, status, "%s calls %s", r.caller, r.callee)
	r.id = call.ID
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
	status, call := post(t, s, callsPath+"/"+r.id+"/"+action, object{"user": user})
	require.Equal(t, http.StatusOK, status, "%s does %s", user, action)
	require.Equal(t, state, call.State)
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
	status, _ := post(t, r.atCaller, callsPath+"/"+r.id+"/alive", object{"user": r.caller, "app": app})
	require.Equal(t, http.StatusOK, status)
	return r
}

// states returns the states of the newest call that a party was sent, each once.
func (r *ringing) states(t testing.TB, party int) (states []string) {
	t.Helper()
	for _, f := range r.sockets[party].received() {
		var call struct{ ID, State string }
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
	var found response
	await(t, "the call to be read", func() bool {
		found = s.request(t, http.MethodGet, callsPath+"/"+r.id)
		return found.status != http.StatusServiceUnavailable
	})
	var call struct{ State string }
	require.NoError(t, json.Unmarshal(found.body, &call))
	return call.State
}

// awaitInCall waits until a server shows that both users are in a call, or that neither is.
func (r *ringing) awaitInCall(t testing.TB, s *server, want bool) {
	t.Helper()
	for _, user := range []string{r.caller, r.callee} {
		await(t, user+" to be in a call, or not", func() bool {
			var found struct {
				InCall bool `json:"in_call"`
			}
			got := s.request(t, http.MethodGet, "/v1/namespaces/chat/users/"+user)
			return got.status == http.StatusOK && json.Unmarshal(got.body, &found) == nil && found.InCall == want
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
