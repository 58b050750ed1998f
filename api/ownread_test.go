package api

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/api/problem"
)

// eachNamespaceOfAWriter runs a test with a key that has the scope ping alone, in a namespace that nobody else can read
// and in one that everybody can. What everybody can read gives the key nothing.
func eachNamespaceOfAWriter(t *testing.T, test func(t *testing.T, w *testServer, path, credentials string)) {
	key, hash := auth.NewKey()
	authenticator := newAuthenticator(t, auth.Config{
		Keys: []auth.Key{{
			Name: "writer", Hash: hash, Scopes: []auth.Scope{auth.Ping}, Namespaces: []auth.Pattern{"*"},
		}},
		AnonymousRead: []auth.Pattern{"public"},
	})
	for _, namespace := range []string{"chat", "public"} {
		t.Run(namespace, func(t *testing.T) {
			w := newAuthServer(t, fileStore(t), authenticator)
			test(t, w, "/"+namespace, bearer(key))
		})
	}
}

// TestWriterReadsNothing: a key with the scope ping alone is not told what a user says, or who their contacts are.
func TestWriterReadsNothing(t *testing.T) {
	eachNamespaceOfAWriter(t, func(t *testing.T, w *testServer, path, key string) {
		alice := path + "/users/alice"
		require.Equal(t, http.StatusNoContent, w.send("PUT", alice+"/contacts", `{"users":["bob"]}`, key).status)
		hidden := w.send("PUT", alice+"/availability", `{"availability":"invisible","note":"at the dentist"}`, key)
		require.Less(t, hidden.status, 300, "%s", hidden.body)
		ping := w.send("POST", alice+"/ping", "", key)
		require.Equal(t, http.StatusNoContent, ping.status, "%s", ping.body)
		for _, read := range []string{
			"/users/alice/availability", "/users/alice/contacts", "/changes?contacts_of=alice", "/users/alice/devices",
		} {
			w.fails(problem.Forbidden, "GET", path+read, "", key)
		}
	})
}

// TestWriterReadsNoCall: a key with the scope ping alone acts in calls, and gets neither what the other party's app
// stored with the call nor the devices.
func TestWriterReadsNoCall(t *testing.T) {
	const secret, phone = `"offer of bob"`, "phone-of-bob"
	device := func(user string) string {
		return `{"user":"` + user + `","device":"` + phone + `","app":` + secret + `}`
	}
	eachNamespaceOfAWriter(t, func(t *testing.T, w *testServer, path, key string) {
		calls := path + "/calls"
		call := func(want int, what, body string, headers ...string) map[string]any {
			t.Helper()
			response := w.send("POST", calls+what, body, append(headers, key)...)
			require.Equal(t, want, response.status, "%s", response.body)
			require.NotContains(t, response.body, "offer of bob", what)
			require.NotContains(t, response.body, phone, what)
			return response.json(t)
		}
		start := strings.ReplaceAll(device("bob"), `"user"`, `"from"`)
		start = strings.TrimSuffix(start, "}") + `,"to":"alice"}`
		once := "Idempotency-Key: once"
		id := "/" + call(http.StatusCreated, "", start, once)["id"].(string)
		require.Equal(t, id, "/"+call(http.StatusCreated, "", start, once)["id"].(string))
		require.Equal(t, string(lastseen.Active), call(http.StatusOK, id+"/accept", device("alice"))["state"])
		call(http.StatusOK, id+"/alive", device("bob"))
		refused := call(http.StatusConflict, id+"/accept", `{"user":"alice","device":"other"}`)
		require.Equal(t, string(lastseen.Active), refused["call"].(map[string]any)["state"])
		ended := call(http.StatusOK, id+"/end", `{"user":"bob","device":"`+phone+`"}`)
		require.Equal(t, "bob", ended["by"].(map[string]any)["user"])
		call(http.StatusConflict, id+"/alive", `{"user":"alice"}`)
	})
}
