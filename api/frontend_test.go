package api

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestAnswersCarryThresholds: each answer with presences holds the effective thresholds once, so that a client can
// age its users from green to grey without another request.
func TestAnswersCarryThresholds(t *testing.T) {
	w := newWorld(t, fileStore(t))
	w.post("/chat/pings", `{"pings":[{"user":"alice"},{"user":"bob"}]}`)
	for _, r := range []struct{ method, path, body string }{
		{http.MethodGet, aliceUser, ""},
		{http.MethodGet, aliceLookup, ""},
		{http.MethodPost, "/chat/lookup", `{"users":["alice"]}`},
		{http.MethodGet, "/chat/users", ""},
		{http.MethodPost, alicePing, ""},
		{http.MethodPost, "/chat/users/bob/leave", ""},
	} {
		requireThresholds(t, w.send(r.method, r.path, r.body), 60_000, 300_000)
	}
	for _, path := range []string{aliceUser + "?", aliceLookup + "&", "/chat/users?"} {
		requireThresholds(t, w.send(http.MethodGet, path+"green=1s&yellow=2.5", ""), 1000, 2500)
		requireThresholds(t, w.send(http.MethodGet, path+"yellow=2m", ""), 60_000, 120_000)
	}
	first := w.get("/chat/users?limit=1&green=1s&yellow=2s")
	next := w.send(http.MethodGet, "/chat/users?cursor="+first["next_cursor"].(string), "")
	requireThresholds(t, next, 1000, 2000)
}

func requireThresholds(t *testing.T, r reply, green, yellow int) {
	t.Helper()
	require.Equal(t, http.StatusOK, r.status, r.body)
	found := r.json(t)
	require.EqualValues(t, green, found["green_ms"], r.body)
	require.EqualValues(t, yellow, found["yellow_ms"], r.body)
}

// TestThresholdsChangeTheTag: a client that keeps its answer after a 304 keeps the thresholds in it, too, so the tag
// changes with them, even when no presence does: grey users have no valid_until.
func TestThresholdsChangeTheTag(t *testing.T) {
	w := newWorld(t, fileStore(t))
	for _, path := range []string{"/chat/users/zoe", "/chat/lookup?user=zoe"} {
		tag := w.send(http.MethodGet, path, "").header.Get("ETag")
		for _, change := range []func(*Config){
			func(c *Config) { c.Settings.Thresholds.Green += time.Second },
			func(c *Config) { c.Settings.Thresholds.Yellow += time.Second },
		} {
			w.reload(change)
			changed := w.send(http.MethodGet, path, "", "If-None-Match: "+tag)
			require.Equal(t, http.StatusOK, changed.status, path)
			tag = changed.header.Get("ETag")
			require.Equal(t, http.StatusNotModified, w.send(http.MethodGet, path, "", "If-None-Match: "+tag).status,
				path)
		}
	}
}

// TestUnknownFieldListsTheAllowed: the detail names the field, where it is if that is below the top, and what is
// allowed there.
func TestUnknownFieldListsTheAllowed(t *testing.T) {
	w := newWorld(t, fileStore(t))
	for _, c := range []struct{ path, body, want string }{
		{alicePing, `{"x":1}`, `Unknown field "x". Allowed: at.`},
		{alicePing, `{"At":1}`, `Unknown field "At". Allowed: at.`},
		{alicePing, `{"":1}`, `Unknown field "". Allowed: at.`},
		{alicePing, `{"a/b":1}`, `Unknown field "a/b". Allowed: at.`},
		{"/chat/users/alice/leave", `{"x":1}`, `Unknown field "x". Allowed: at, token.`},
		{"/chat/lookup", `{"user":"alice"}`, `Unknown field "user". Allowed: users.`},
		{"/chat/pings", `{"leaves":[]}`, `Unknown field "leaves". Allowed: pings.`},
		{"/chat/leaves", `{"pings":[]}`, `Unknown field "pings". Allowed: leaves.`},
		{"/chat/pings", `{"pings":[{"user":"a"},{"usr":"b"}]}`, `Unknown field "usr" in /pings/1. Allowed: user, at.`},
		{"/chat/leaves", `{"leaves":[{"user":"a","was":1}]}`, `Unknown field "was" in /leaves/0. Allowed: user, at.`},
	} {
		require.Equal(t, c.want, w.fails(codeUnknownField, http.MethodPost, c.path, c.body)["detail"], c.body)
	}
	line := w.fails(codeUnknownField, http.MethodPost, "/chat/pings", "{\"user\":\"a\"}\n{\"usr\":\"b\"}", ndjson)
	require.Equal(t, `Unknown field "usr". Allowed: user, at.`, line["detail"])
	require.EqualValues(t, 2, line["line"])
}

// TestCommaHint: `user=a,b` names one user, which is a valid ID. If that user was never seen, the answer says how to
// look up several. Nobody else gets a hint.
func TestCommaHint(t *testing.T) {
	eachStore(t, func(t *testing.T, w *world) {
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
