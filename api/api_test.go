package api

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTranscript is the example that the project started from: times in Unix seconds.
func TestTranscript(t *testing.T) {
	eachStore(t, func(t *testing.T, w *testServer) {
		for _, ping := range []struct {
			user string
			at   int
		}{{"alice", 100123}, {"bob", 100135}, {"eve", 100141}, {"mallory", 100143}, {"timmy", 100163}, {
			"eve",
			100178,
		}} {
			w.post("/presence/users/"+ping.user+"/ping", fmt.Sprintf(`{"at":%d}`, ping.at))
		}
		list := w.get("/presence/users?from=100137&to=100197&as_of=100197")
		require.Equal(t, []string{"eve", "timmy", "mallory"}, names(list))
		for _, u := range list["users"].([]any) {
			require.Equal(t, "green", u.(map[string]any)["status"])
		}
		require.Nil(t, list["next_cursor"])
		require.Equal(t, "yellow", w.get("/presence/users/bob?as_of=100197")["status"])
		zoe := w.send(http.MethodGet, "/presence/users/zoe?as_of=100197", "")
		require.JSONEq(t, `{"user":"zoe","status":"grey","last_seen":null,"left":false,"valid_until":null,
			"as_of":"1970-01-02T03:49:57.000Z","green_ms":60000,"yellow_ms":300000}`, zoe.body)
	})
}
