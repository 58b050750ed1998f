package api

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/api/limit"
)

// TestEndTokenInBody ends a call as a closing page does: with the token in the body, as text/plain, and without other
// credentials.
func TestEndTokenInBody(t *testing.T) {
	t.Parallel()
	const hour = 3_600_000
	authenticator, headers := callers(t)
	eachStore(t, func(t *testing.T, open *testServer) {
		w := newAuthServer(t, open.store.Store, authenticator)
		beacon := func(token string) string { return fmt.Sprintf(`{"token":%q,"device":"tab"}`, token) }
		alice, text := token(t, "alice", testNow+hour, "chat"), "Content-Type: text/plain;charset=UTF-8"
		expired, elsewhere := token(t, "alice", testNow-hour, "chat"), token(t, "alice", testNow+hour, "other")
		w.ring("c1", "alice", "bob")
		end := callsPath + "/c1/end"

		for body, want := range map[string]code{
			"": codeUnauthenticated, "{}": codeUnauthenticated, `{"token":"","user":"alice"}`: codeUnauthenticated,
			beacon("x"): codeUnauthenticated, beacon(expired): codeUnauthenticated,
			beacon(headers["all"][len("Bearer "):]):         codeUnauthenticated, // a key
			beacon(token(t, "carol", testNow+hour, "chat")): codeCallNotFound,
			beacon(elsewhere): codeForbidden,
			fmt.Sprintf(`{"user":"bob","token":%q}`, alice):  codeForbidden,
			fmt.Sprintf(`{"device":"\n","token":%q}`, alice): codeInvalidDevice,
			`{"token":5}`: codeInvalidJSON,
		} {
			problem := w.fails(want, http.MethodPost, end, body, text)
			require.NotContains(t, fmt.Sprint(problem), "eyJ", "a token is not repeated")
		}
		for _, path := range []string{"", "/c1/accept", "/c1/reject", "/c1/alive"} {
			w.fails(codeUnauthenticated, http.MethodPost, callsPath+path, beacon(alice), text)
		}
		w.fails(codeUnauthenticated, http.MethodPost, end, beacon(alice), text, "Authorization: Bearer x")
		w.fails(codeCallNotFound, http.MethodPost, end, beacon(alice), text,
			"Authorization: Bearer "+token(t, "carol", testNow+hour, "chat"))
		require.Equal(t, "ringing", open.get(callsPath + "/c1")["state"])

		crossSite := append(crossSite("https://evil.example"), text)
		r := w.send(http.MethodPost, end, beacon(alice), crossSite...)
		require.Equal(t, http.StatusOK, r.status, r.body)
		require.Equal(t, "cancelled", r.json(t)["state"])
		require.Equal(t, map[string]any{"user": "alice", "device": "tab"}, r.json(t)["by"])
		r = w.send(http.MethodPost, end, beacon("x"), text, "Authorization: "+headers["alice"])
		require.Equal(t, http.StatusOK, r.status, "the header counts: %s", r.body)
		r = open.send(http.MethodPost, end, `{"user":"alice","token":"x"}`, text)
		require.Equal(t, http.StatusOK, r.status, "nobody is asked: %s", r.body)
		require.NotContains(t, w.log.String(), alice)
	})
}

// TestEndIgnoresBodyWithoutJWTs: the body of an unauthenticated request is not read if only keys are configured.
func TestEndIgnoresBodyWithoutJWTs(t *testing.T) {
	t.Parallel()
	_, hash := auth.NewKey()
	authenticator := newAuthenticator(t, auth.Config{Keys: []auth.Key{{
		Name: "k", Hash: hash, Scopes: auth.Scopes(), Namespaces: []auth.Pattern{"*"},
	}}})
	w := newAuthServer(t, fileStore(t), authenticator)
	w.fails(codeUnauthenticated, http.MethodPost, callsPath+"/c1/end", "{")
}

// TestLimitsOfTokensThatEndCalls: a token in the body counts as its user, and one that is not valid as the address.
func TestLimitsOfTokensThatEndCalls(t *testing.T) {
	t.Parallel()
	guarded, _, _, token := twoKeys(t)
	w := newTestServer(t, fileStore(t), guarded)
	body := `{"token":"` + token("alice") + `"}`
	for range limit.Burst(2) {
		w.fails(codeCallNotFound, http.MethodPost, callsPath+"/c1/end", body)
	}
	w.fails(codeRateLimited, http.MethodPost, callsPath+"/c1/end", body)
	w.fails(codeRateLimited, http.MethodPost, "/chat/users/alice/ping", "", bearer(token("alice")))
	office := from("203.0.113.7")
	for range limit.Burst(1) / 2 { // each counts as a request of somebody unknown, and as a failure
		w.fails(codeUnauthenticated, http.MethodPost, callsPath+"/c1/end", `{"token":"wrong"}`, office)
	}
	w.fails(codeRateLimited, http.MethodPost, callsPath+"/c1/end", `{"token":"wrong"}`, office)
}
