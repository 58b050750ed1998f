package presencetests

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/apitest"
	"github.com/lastseen/lastseen/api/apitest/kit"
	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/api/problem"
)

// eachNamespaceOfAWriter runs a test with a key that has the scope ping alone, in a namespace that nobody else can read
// and in one that everybody can. What everybody can read gives the key nothing.
func eachNamespaceOfAWriter(t *testing.T, test func(t *testing.T, w *apitest.Server, path, credentials string)) {
	key, hash := auth.NewKey()
	authenticator := kit.NewAuthenticator(t, auth.Config{
		Keys: []auth.Key{{
			Name: "writer", Hash: hash, Scopes: []auth.Scope{auth.Ping}, Namespaces: []auth.Pattern{"*"},
		}},
		AnonymousRead: []auth.Pattern{"public"},
	})
	for _, namespace := range []string{"chat", "public"} {
		t.Run(namespace, func(t *testing.T) {
			w := apitest.NewAuthServer(t, kit.FileStore(t), authenticator)
			test(t, w, "/"+namespace, kit.Bearer(key))
		})
	}
}

// TestWriterReadsNothing: a key with the scope ping alone cannot read a user's availability or contacts.
func TestWriterReadsNothing(t *testing.T) {
	eachNamespaceOfAWriter(t, func(t *testing.T, w *apitest.Server, path, key string) {
		alice := path + "/users/alice"
		require.Equal(t, http.StatusNoContent, w.Send("PUT", alice+"/contacts", `{"users":["bob"]}`, key).Status)
		hidden := w.Send("PUT", alice+"/availability", `{"availability":"invisible","note":"at the dentist"}`, key)
		require.Less(t, hidden.Status, 300, "%s", hidden.Body)
		ping := w.Send("POST", alice+"/ping", "", key)
		require.Equal(t, http.StatusNoContent, ping.Status, "%s", ping.Body)
		for _, read := range []string{
			"/users/alice/availability", "/users/alice/contacts", "/changes?contacts_of=alice", "/users/alice/devices",
		} {
			w.Fails(problem.Forbidden, "GET", path+read, "", key)
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
	eachNamespaceOfAWriter(t, func(t *testing.T, w *apitest.Server, path, key string) {
		calls := path + "/calls"
		call := func(want int, what, body string, headers ...string) map[string]any {
			t.Helper()
			response := w.Send("POST", calls+what, body, append(headers, key)...)
			require.Equal(t, want, response.Status, "%s", response.Body)
			require.NotContains(t, response.Body, "offer of bob", what)
			require.NotContains(t, response.Body, phone, what)
			return response.JSON(t)
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
