package api

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDelete(t *testing.T) {
	eachStore(t, func(t *testing.T, w *testServer) {
		w.post("/chat/pings", `{"pings":[{"user":"alice"},{"user":"a/b"},{"user":"c"}]}`)
		for _, user := range []string{"alice", "a%2Fb", "nobody"} {
			require.Equal(t, http.StatusNoContent, w.send(http.MethodDelete, "/chat/users/"+user, "").status)
		}
		require.Equal(t, []string{"c"}, names(w.get("/chat/users")))
		require.Equal(t, http.StatusNoContent, w.send(http.MethodDelete, "/chat?confirm=chat", "").status)
		require.Equal(t, http.StatusNoContent, w.send(http.MethodDelete, "/chat?confirm=chat", "").status)
		require.Zero(t, w.total("chat"))
		require.Empty(t, w.get("")["namespaces"])
	})
}

// TestPathsAreDecodedOnce also checks that + is a space in a query only.
func TestPathsAreDecodedOnce(t *testing.T) {
	eachStore(t, func(t *testing.T, w *testServer) {
		for path, user := range map[string]string{
			"a%2Fb": "a/b", "%2541": "%41", "a+b": "a+b", "a%20b": "a b", "%E2%82%AC": "€", "%2e%2e%2e": "...",
			"a:b@c": "a:b@c", "a%3Fb": "a?b", "...": "...", "%25": "%", "%2F": "/",
		} {
			require.Equal(t, user, w.post("/chat/users/"+path+"/ping", "")["user"], path)
			require.Equal(t, user, w.get("/chat/users/" + path)["user"], path)
			looked := w.get("/chat/lookup?user=" + url.QueryEscape(user))["users"].([]any)[0].(map[string]any)
			require.Equal(t, "green", looked["status"], path)
			require.Equal(t, user, looked["user"])
		}
		require.Equal(t, []string{"a b"}, names(w.get("/chat/lookup?user=a+b")))
	})
}
