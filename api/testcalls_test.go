package api

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

const callsPath = "/chat/calls"

// ring begins a call in the namespace chat.
func (w *testServer) ring(id, from, to string) {
	w.t.Helper()
	_, err := w.store.StartCall(context.Background(), "chat", store.NewCall{
		ID: id, From: from, To: to, Ring: time.Hour, Quiet: time.Hour,
	})
	require.NoError(w.t, err)
}

// act does an action in a call in the namespace chat.
func (w *testServer) act(id, user string, action lastseen.CallAction) {
	w.t.Helper()
	step, err := w.store.StepCall(context.Background(), "chat", store.CallAct{ID: id, User: user, Action: action})
	require.NoError(w.t, err)
	require.NotEqual(w.t, lastseen.Refused, step.Outcome)
}

// hangUp ends the call of a user that goes on, if there is one.
func (w *testServer) hangUp(user string) {
	w.t.Helper()
	going, err := w.store.ReadCalls(context.Background(), "chat", []string{user})
	require.NoError(w.t, err)
	if going[0].ID != "" {
		w.act(going[0].ID, user, lastseen.End)
	}
}

// call begins a call with a request, and returns it.
func (w *testServer) call(body string, headers ...string) map[string]any {
	w.t.Helper()
	r := w.send(http.MethodPost, callsPath, body, headers...)
	require.Equal(w.t, http.StatusCreated, r.status, r.body)
	made := r.json(w.t)
	require.Equal(w.t, "/v1/namespaces/chat/calls/"+made["id"].(string), r.header.Get("Location"))
	return made
}

// callPath returns the path of a call in a response.
func callPath(call map[string]any) string { return callsPath + "/" + call["id"].(string) }

// callResponses provokes those responses about calls that depend on calls before.
func callResponses(t *testing.T, s store.Store) map[string]bool {
	t.Helper()
	w := newTestServer(t, s)
	user := func(name string) string { return "documented " + name }
	body := func(from, to string) string { return `{"from":"` + user(from) + `","to":"` + user(to) + `"}` }
	by := func(name string) string { return `{"user":"` + user(name) + `"}` }
	w.fails(codeInvalidCall, http.MethodPost, callsPath, body("alice", "alice"))
	w.fails(codeCalleeUnavailable, http.MethodPost, callsPath,
		strings.Replace(body("alice", "bob"), "{", `{"if":"present",`, 1))
	first := w.call(body("alice", "bob"), "Idempotency-Key: documented")
	w.fails(codeIdempotencyKeyReused, http.MethodPost, callsPath, body("alice", "carol"), "Idempotency-Key: documented")
	w.fails(codeCallerBusy, http.MethodPost, callsPath, body("alice", "carol"))
	w.fails(codeCalleeBusy, http.MethodPost, callsPath, body("carol", "bob"))
	w.get(callPath(first))
	w.post(callPath(first)+"/accept", by("bob"))
	w.post(callPath(first)+"/alive", by("alice"))
	for _, action := range []string{"accept", "alive"} {
		w.fails(codeInvalidCall, http.MethodPost, callPath(first)+"/"+action,
			strings.Replace(by("bob"), "{", `{"app":"`+appOf(store.MaxCallApp+1)+`",`, 1))
	}
	w.post(callPath(first)+"/end", by("alice"))
	for _, action := range []string{"accept", "alive", "reject"} {
		w.fails(codeCallRefused, http.MethodPost, callPath(first)+"/"+action, by("bob"))
	}
	second := w.call(body("alice", "bob"))
	w.post(callPath(second)+"/reject", by("bob"))
	w.fails(codeCallRefused, http.MethodPost, callPath(second)+"/end", by("alice"))
	crowded := newTestServer(t, crowdedStore{s})
	r := crowded.send(http.MethodPost, callsPath, body("alice", "bob"))
	require.Equal(t, http.StatusTooManyRequests, r.status, r.body)
	responded := w.responses()
	for kind := range crowded.responses() {
		responded[kind] = true
	}
	return responded
}

// crowdedStore is a store with too many calls. A real one would need 100 of them.
type crowdedStore struct{ store.Store }

func (crowdedStore) StartCall(context.Context, string, store.NewCall) (store.CallStep, error) {
	return store.CallStep{}, store.ErrTooManyCalls
}
