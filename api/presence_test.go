package api

import (
	"net/http"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lastseen/lastseen"
)

// TestAppendJSON checks that our own encoding equals that of package json.
func TestAppendJSON(t *testing.T) {
	instant := rapid.Map(rapid.Int64Range(0, int64(lastseen.MaxInstant)),
		func(n int64) timestamp { return timestamp(n) })
	user := rapid.Custom(func(t *rapid.T) presence {
		return presence{
			User: rapid.String().Draw(t, "user"), Status: rapid.SampledFrom(lastseen.Statuses()).Draw(t, "status"),
			LastSeen: instant.Draw(t, "last_seen"), Left: rapid.Bool().Draw(t, "left"),
			ValidUntil: instant.Draw(t, "valid_until"),
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		ms := rapid.Int64Range(1, lastseen.MaxDuration.Milliseconds())
		by := evaluated{AsOf: instant.Draw(t, "as_of"), GreenMs: ms.Draw(t, "green"), YellowMs: ms.Draw(t, "yellow")}
		users := presences{by, rapid.SliceOfN(user, 0, 3).Draw(t, "users")}
		for _, response := range []appender{
			userResponse{
				presence: user.Draw(t, "one"), evaluated: by,
				PingAfterMs: rapid.Int64Range(0, 9).Draw(t, "after"),
			},
			lookupResponse{users, rapid.String().Draw(t, "hint")},
			listResponse{users, rapid.Ptr(rapid.String(), true).Draw(t, "cursor")},
		} {
			want, err := json.Marshal(response)
			require.NoError(t, err)
			require.Equal(t, string(want), string(response.appendJSON(nil)))
		}
	})
}

func BenchmarkEncode(b *testing.B) {
	response := lookupResponse{presences: presences{
		view{testNow, lastseen.Thresholds{Green: time.Minute, Yellow: 5 * time.Minute}}.evaluated(),
		make([]presence, 100),
	}}
	for i := range response.Users {
		response.Users[i] = presence{
			User: "alice", Status: lastseen.Green, LastSeen: timestamp(testNow),
			ValidUntil: timestamp(testNow),
		}
	}
	b.Run("by hand", func(b *testing.B) {
		var buffer []byte
		for b.Loop() {
			buffer = response.appendJSON(buffer[:0])
		}
	})
	b.Run("by package json", func(b *testing.B) {
		for b.Loop() {
			if _, err := json.Marshal(response); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// TestEvaluation checks that as_of and the thresholds come from the query. A user seen after as_of has age 0.
func TestEvaluation(t *testing.T) {
	w := newTestServer(t, fileStore(t))
	w.post("/chat/users/alice/ping", `{"at":"2026-11-20T11:50:00Z"}`)
	for query, want := range map[string]string{
		"":                                   "grey",
		"?yellow=11m":                        "yellow",
		"?yellow=660":                        "yellow",
		"?green=600.001&yellow=1h":           "green",
		"?green=10m&yellow=1h":               "yellow",
		"?as_of=2026-11-20T11:50:59.999Z":    "green",
		"?as_of=2026-11-20T11:51:00Z":        "yellow",
		"?as_of=2026-11-20T11:54:59.999Z":    "yellow",
		"?as_of=2026-11-20T11:55:00Z":        "grey",
		"?as_of=2026-11-20T12:55:00%2B01:00": "grey",
		"?as_of=2026-11-20T10:00:00Z":        "green", // seen later: age 0
		"?_=1&utm_source=mail":               "grey",
	} {
		require.Equal(t, want, w.get("/chat/users/alice" + query)["status"], query)
	}
	require.Empty(t, names(w.get("/chat/users?as_of=2026-11-20T10:00:00Z")), "lists leave out who was seen later")
	require.EqualValues(t, 0, w.get("/chat/counts?as_of=2026-11-20T10:00:00Z")["total"])
}

// TestResponsesCarryThresholds checks that each response with presences has the effective thresholds once, so that a
// client can turn its users yellow and grey without another request.
func TestResponsesCarryThresholds(t *testing.T) {
	w := newTestServer(t, fileStore(t))
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

func requireThresholds(t *testing.T, r testResponse, green, yellow int) {
	t.Helper()
	require.Equal(t, http.StatusOK, r.status, r.body)
	found := r.json(t)
	require.EqualValues(t, green, found["green_ms"], r.body)
	require.EqualValues(t, yellow, found["yellow_ms"], r.body)
}
