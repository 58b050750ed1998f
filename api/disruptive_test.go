package api

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/store"
)

// TestDisruptiveText: what other clients show beside other text has no characters that change the direction of that
// text, or break the line.
func TestDisruptiveText(t *testing.T) {
	w := newTestServer(t, fileStore(t))
	for _, bad := range []string{"\u202eecila", "a\u2028b", "\u2066a"} {
		path := url.PathEscape(bad)
		for _, asked := range []struct {
			method, path, body string
			want               problem.Code
		}{
			{"POST", "/chat/users/" + path + "/ping", "", problem.InvalidUser},
			{"POST", "/chat/pings", `{"pings":[{"user":"` + bad + `"}]}`, problem.InvalidUser},
			{"PUT", "/chat/users/" + path + "/contacts", `{"users":["bob"]}`, problem.InvalidUser},
			{"PUT", "/chat/users/bob/contacts", `{"users":["` + bad + `"]}`, problem.InvalidUser},
			{"POST", "/chat/calls", `{"from":"` + bad + `","to":"bob"}`, problem.InvalidUser},
			{"POST", "/chat/users/bob/ping", `{"device":{"id":"` + bad + `"}}`, problem.InvalidDevice},
		} {
			w.fails(asked.want, asked.method, asked.path, asked.body)
		}
		err := typingBody{To: []string{"bob"}, In: bad}.check()
		require.ErrorContains(t, err, "bidirectional")
	}
}

// TestStoredDisruptiveUsers: earlier versions took such IDs. Lists go on after them, and they can be deleted.
func TestStoredDisruptiveUsers(t *testing.T) {
	s := fileStore(t)
	w := newTestServer(t, s)
	const old = "a\u202eb"
	_, err := s.Ping(t.Context(), "chat", []store.Sighting{{User: old, At: testNow}, {User: "bob", At: testNow - 1}})
	require.NoError(t, err)
	first := w.get("/chat/users?limit=1")
	require.Equal(t, []string{old}, names(first))
	next := w.get("/chat/users?limit=1&cursor=" + first["next_cursor"].(string))
	require.Equal(t, []string{"bob"}, names(next))
	require.Equal(t, http.StatusNoContent, w.send("DELETE", "/chat/users/"+url.PathEscape(old), "").status)
	require.Equal(t, []string{"bob"}, names(w.get("/chat/users")))
}
