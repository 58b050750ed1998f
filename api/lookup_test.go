package api

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLookup(t *testing.T) {
	eachStore(t, func(t *testing.T, w *testServer) {
		w.post("/chat/pings",
			`{"pings":[{"user":"alice"},{"user":"bob","at":"2026-11-20T11:59:00Z"},{"user":"eve","at":"2026-11-20T11:55:00Z"}]}`)
		want := `{"as_of":"2026-11-20T12:00:00.000Z","green_ms":60000,"yellow_ms":300000,"users":[
			{"user":"bob","status":"yellow","last_seen":"2026-11-20T11:59:00.000Z","left":false,"valid_until":"2026-11-20T12:04:00.000Z"},
			{"user":"zoe","status":"grey","last_seen":null,"left":false,"valid_until":null},
			{"user":"alice","status":"green","last_seen":"2026-11-20T12:00:00.000Z","left":false,"valid_until":"2026-11-20T12:01:00.000Z"},
			{"user":"bob","status":"yellow","last_seen":"2026-11-20T11:59:00.000Z","left":false,"valid_until":"2026-11-20T12:04:00.000Z"},
			{"user":"eve","status":"grey","last_seen":"2026-11-20T11:55:00.000Z","left":false,"valid_until":null}]}`
		require.JSONEq(t, want, w.send(http.MethodPost, "/chat/lookup",
			`{"users":["bob","zoe","alice","bob","eve"]}`).body)
		require.JSONEq(t, want, w.send(http.MethodGet, "/chat/lookup?user=bob&user=zoe&user=alice&user=bob&user=eve",
			"").body)
		require.Empty(t, names(w.post("/chat/lookup", `{"users":[]}`)))
		require.Len(t, names(w.post("/chat/lookup", `{"users":[`+strings.Repeat(`"u",`, 999)+`"u"]}`)), 1000)
		require.Len(t, names(w.get("/chat/lookup?"+strings.Repeat("user=u&", 99)+"user=u")), 100)
	})
}

// TestCommaHint checks the hint for `user=a,b`, which names one user with a valid ID. If that user was never seen,
// the response explains how to look up several. Other responses have no hint.
func TestCommaHint(t *testing.T) {
	eachStore(t, func(t *testing.T, w *testServer) {
		w.post("/chat/pings", `{"pings":[{"user":"alice"},{"user":"Doe, Jane"}]}`)
		const want = `was looked up as one user and was never seen. To look up several users, repeat the parameter: user=a&user=b.`
		for query, hint := range map[string]any{
			"user=alice,bob":                     `"alice,bob" ` + want,
			"user=alice&user=bob%2Ccarol":        `"bob,carol" ` + want,
			"user=a,b&user=c,d":                  `"a,b" ` + want,
			"user=alice&user=zoe":                nil,
			"user=Doe,+Jane":                     nil,
			"user=Doe,+Jane&user=zoe&user=alice": nil,
		} {
			found := w.get("/chat/lookup?" + query)
			require.Equal(t, hint, found["hint"], query)
			_, there := found["hint"]
			require.Equal(t, hint != nil, there, query)
		}
		require.NotContains(t, w.post("/chat/lookup", `{"users":["alice,bob"]}`), "hint", "an array leaves no doubt")

		tag := w.send(http.MethodGet, "/chat/lookup?user=a,b", "").header.Get("ETag")
		w.post("/chat/users/a%2Cb/ping", "")
		seen := w.send(http.MethodGet, "/chat/lookup?user=a,b", "", "If-None-Match: "+tag)
		require.Equal(t, http.StatusOK, seen.status)
		require.NotContains(t, seen.json(t), "hint", "seen since")

		long := fmt.Sprintf("%0255d,", 0)
		require.Less(t, len(w.get("/chat/lookup?user=" + long)["hint"].(string)), 200, "bounded")
	})
}
