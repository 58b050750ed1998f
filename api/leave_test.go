package api

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api/auth"
)

func TestLeave(t *testing.T) {
	eachStore(t, func(t *testing.T, w *testServer) {
		unseen := w.send(http.MethodPost, "/game/users/zoe/leave", "")
		require.JSONEq(t, `{"user":"zoe","status":"grey","last_seen":"2026-11-20T12:00:00.000Z","left":true,"valid_until":null,
			"as_of":"2026-11-20T12:00:00.000Z","green_ms":60000,"yellow_ms":300000}`, unseen.body)
		require.Equal(t, 1, w.total("game"), "a leave of a user never seen is recorded")
		require.Len(t, w.get("")["namespaces"], 1, "and its namespace exists")
		require.Equal(t, "grey", w.post("/game/users/zoe/ping", `{"at":"2026-11-20T11:59:59Z"}`)["status"],
			"the ping was earlier")

		w.post("/chat/users/alice/ping", "")
		left := w.send(http.MethodPost, "/chat/users/alice/leave", "")
		require.JSONEq(t, `{"user":"alice","status":"grey","last_seen":"2026-11-20T12:00:00.000Z","left":true,
			"valid_until":null,"as_of":"2026-11-20T12:00:00.000Z","green_ms":60000,"yellow_ms":300000}`, left.body)
		require.Equal(t, true, w.post("/chat/users/alice/ping", "")["left"], "at one millisecond left beats present")
		w.store.now++
		require.Equal(t, "green", w.post("/chat/users/alice/ping", "")["status"], "another device")
		require.Equal(t, "green", w.post("/chat/users/alice/leave", `{"at":"2026-11-20T11:59:00Z"}`)["status"],
			"too old")
	})
}

// TestLeaveTokenInBody sends a leave as a closing page does: with the token in the body, as text/plain, and without
// other credentials.
func TestLeaveTokenInBody(t *testing.T) {
	const hour = 3_600_000
	eachStore(t, func(t *testing.T, open *testServer) {
		authenticator, headers := callers(t)
		w := newAuthServer(t, open.store.Store, authenticator)
		beacon := func(token string) string { return fmt.Sprintf(`{"token":%q,"at":%d}`, token, testNow/1000) }
		alice, expired := token(t, "alice", testNow+hour, "chat"), token(t, "alice", testNow-hour, "chat")
		leave, text := "/chat/users/alice/leave", "Content-Type: text/plain;charset=UTF-8"

		open.post("/chat/users/alice/ping", fmt.Sprintf(`{"at":%d}`, testNow/1000-10))
		r := w.send(http.MethodPost, leave, beacon(alice), text)
		require.Equal(t, http.StatusOK, r.status, r.body)
		require.Equal(t, true, r.json(t)["left"])
		require.Equal(t, "grey", open.get("/chat/users/alice")["status"])

		for body, want := range map[string]code{
			"": codeUnauthenticated, "{}": codeUnauthenticated, `{"token":""}`: codeUnauthenticated,
			beacon("x"):     codeUnauthenticated,
			beacon(expired): codeUnauthenticated, beacon(strings.TrimPrefix(headers["all"],
				"Bearer ")): codeUnauthenticated,
			beacon(token(t, "bob", testNow+hour, "chat")):    codeForbidden,
			beacon(token(t, "alice", testNow+hour, "other")): codeForbidden,
			`{"token":5}`: codeInvalidJSON, `{"token":null}`: codeUnauthenticated,
			`{"token":"a","token":"b"}`: codeInvalidJSON,
		} {
			problem := w.fails(want, http.MethodPost, leave, body, text)
			require.NotContains(t, fmt.Sprint(problem), "eyJ", "a token is not repeated")
		}
		for _, path := range []string{"/chat/users/alice/ping", "/chat/leaves", "/chat/pings"} {
			w.fails(codeUnauthenticated, http.MethodPost, path, beacon(alice), text)
		}
		w.fails(codeUnauthenticated, http.MethodPost, leave, beacon(alice), text, "Authorization: Bearer x")
		w.fails(codeForbidden, http.MethodPost, leave, beacon(alice), text, "Authorization: "+headers["bob"])
		require.Equal(t, http.StatusOK, w.send(http.MethodPost, leave, beacon("x"), text,
			"Authorization: "+headers["alice"]).status)
		require.Equal(t, http.StatusOK, open.send(http.MethodPost, leave, beacon("x"), text).status, "nobody is asked")
		require.NotContains(t, w.log.String(), alice)
		require.NotContains(t, w.log.String(), expired)
	})
}

// TestLeaveIgnoresBodyWithoutJWTs checks that the body of an unauthenticated leave is not read if only keys are
// configured.
func TestLeaveIgnoresBodyWithoutJWTs(t *testing.T) {
	_, hash := auth.NewKey()
	authenticator := newAuthenticator(t, auth.Config{Keys: []auth.Key{{
		Name: "k", Hash: hash, Scopes: auth.Scopes(),
		Namespaces: []auth.Pattern{"*"},
	}}})
	w := newAuthServer(t, fileStore(t), authenticator)
	w.fails(codeUnauthenticated, http.MethodPost, "/chat/users/alice/leave", "{")
}
