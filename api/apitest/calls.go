package apitest

import (
	"context"
	"net/http"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/apitest/kit"
	"github.com/lastseen/lastseen/store"
)

// Ring begins a call in the namespace chat.
func (w *Server) Ring(id, from, to string) {
	w.T.Helper()
	_, err := w.Store.StartCall(context.Background(), "chat", store.NewCall{
		ID: id, From: from, To: to, Ring: time.Hour, Timeout: time.Hour,
	})
	require.NoError(w.T, err)
}

// Act does an action in a call in the namespace chat.
func (w *Server) Act(id, user string, action lastseen.CallAction) {
	w.T.Helper()
	step, err := w.Store.StepCall(context.Background(), "chat", store.CallAct{ID: id, User: user, Action: action})
	require.NoError(w.T, err)
	require.NotEqual(w.T, lastseen.Refused, step.Outcome)
}

// HangUp ends the call of a user that goes on, if there is one.
func (w *Server) HangUp(user string) {
	w.T.Helper()
	going, err := w.Store.ReadCalls(context.Background(), "chat", nil, []string{user})
	require.NoError(w.T, err)
	if going[0].ID != "" {
		w.Act(going[0].ID, user, lastseen.End)
	}
}

// Call begins a call with a request, and returns it.
func (w *Server) Call(body string, headers ...string) map[string]any {
	w.T.Helper()
	r := w.Send("POST", kit.CallsPath, body, headers...).Is(w.T, http.StatusCreated)
	made := r.JSON(w.T)
	require.Equal(w.T, "calls/"+made["id"].(string), r.Header.Get("Location"), "relative to the path of the request")
	return made
}
