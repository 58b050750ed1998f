package api

import (
	"net/http"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// TestAppendJSON checks that our own encoding equals that of package json.
func TestAppendJSON(t *testing.T) {
	instant := rapid.Map(rapid.Int64Range(0, int64(lastseen.MaxInstant)),
		func(n int64) timestamp { return timestamp(n) })
	details := rapid.Custom(func(t *rapid.T) *userDetails {
		d := &userDetails{
			Availability:      rapid.SampledFrom([]lastseen.Availability{"", "away", "busy"}).Draw(t, "availability"),
			AvailabilityUntil: instant.Draw(t, "until"), Note: rapid.String().Draw(t, "note"),
			IdleSince: instant.Draw(t, "idle"), InCall: rapid.Bool().Draw(t, "in_call"),
		}
		if d.IdleSince != 0 {
			d.Activity = activityIdle
		}
		return d
	})
	user := rapid.Custom(func(t *rapid.T) presence {
		return presence{
			User: rapid.String().Draw(t, "user"), Status: rapid.SampledFrom(lastseen.Statuses()).Draw(t, "status"),
			LastSeen: instant.Draw(t, "last_seen"), Left: rapid.Bool().Draw(t, "left"),
			ValidUntil:  instant.Draw(t, "valid_until"),
			userDetails: rapid.OneOf(rapid.Just((*userDetails)(nil)), details).Draw(t, "details"),
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
		view{testNow, lastseen.Thresholds{Green: time.Minute, Yellow: 5 * time.Minute}, testNow}.evaluated(),
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

// TestDetails checks what responses show of users who say something or are idle. Pings and leaves do not show it.
func TestDetails(t *testing.T) {
	t.Parallel()
	s := &sayingStore{fileStore(t), map[string]store.Details{
		"alice": {
			Said:      lastseen.Said{Availability: lastseen.Busy, Note: `"in" <a> meeting`, Until: testNow + 5000},
			IdleSince: testNow - 1000,
		},
		"bob": {Said: lastseen.Said{Note: "back soon"}},
		"carol": {
			Said: lastseen.Said{Availability: lastseen.Away}, IdleSince: testNow - 1000, InCallUntil: testNow + 1000,
		},
		"dave": {InCallUntil: testNow + 1},
		"erin": {InCallUntil: testNow},
	}}
	w := newTestServer(t, s)
	w.post("/chat/pings", `{"pings":[{"user":"alice"},{"user":"bob"},{"user":"dave"},{"user":"erin"}]}`)
	w.post("/chat/users/carol/leave", "")
	const green = `"last_seen":"2026-11-20T12:00:00.000Z","left":false,"valid_until":"2026-11-20T12:01:00.000Z"`
	alice := `"user":"alice","status":"green",` + green + `,"availability":"busy",` +
		`"availability_until":"2026-11-20T12:00:05.000Z","note":"\"in\" <a> meeting",` +
		`"activity":"idle","idle_since":"2026-11-20T11:59:59.000Z"`
	bob := `"user":"bob","status":"green",` + green + `,"note":"back soon"`
	dave := `"user":"dave","status":"green",` + green + `,"in_call":true`
	erin := `"user":"erin","status":"green",` + green
	carol := `"user":"carol","status":"grey","last_seen":"2026-11-20T12:00:00.000Z","left":true,"valid_until":null,` +
		`"availability":"away"`
	zoe := `"user":"zoe","status":"grey","last_seen":null,"left":false,"valid_until":null}`
	for path, want := range map[string][]string{
		"/chat/users/alice": {alice}, "/chat/users/bob": {bob}, "/chat/users/carol": {carol},
		"/chat/users/dave": {dave}, "/chat/users/erin": {erin + ","},
		"/chat/lookup?user=alice&user=zoe&user=dave": {"{" + alice + "}", "{" + zoe, "{" + dave + "}"},
		"/chat/users":                  {"{" + alice + "}", "{" + bob + "}", "{" + carol + "}", "{" + dave + "}"},
		"/chat/users?limit=1&offset=1": {"{" + erin + "}"},
	} {
		body := w.send("GET", path, "").body
		for _, part := range want {
			require.Contains(t, body, part, path)
		}
	}
	found := w.send("POST", "/chat/lookup", `{"users":["carol","alice"]}`)
	require.Contains(t, found.body, `"users":[{`+carol+`},{`+alice+`}]`)
	require.NotContains(t, w.send("POST", alicePing, "").body, "busy")
	require.NotContains(t, w.send("POST", "/chat/users/alice/leave", "").body, "busy")
}

// TestWhatEndedIsNotShown checks that what a user says is evaluated at as_of, or at the present if that is later, and
// that a grey user is neither idle nor in a call by the thresholds of the query.
func TestWhatEndedIsNotShown(t *testing.T) {
	t.Parallel()
	said := lastseen.Said{Availability: lastseen.Away, Note: "lunch", Until: testNow + 60_000}
	w := newTestServer(t, &sayingStore{fileStore(t), map[string]store.Details{
		"alice": {Said: said, IdleSince: testNow - 1000, InCallUntil: testNow + 90_000},
	}})
	w.post(alicePing, "")
	all := []string{"availability", "availability_until", "note", "activity", "idle_since", "in_call"}
	shows := func(age time.Duration, query string, fields ...string) {
		t.Helper()
		w.store.set(testNow.Add(age))
		for _, path := range []string{"/chat/users/alice?", "/chat/lookup?user=alice&", "/chat/users?"} {
			found := w.get(path + query)
			if users, several := found["users"]; several {
				found = users.([]any)[0].(map[string]any)
			}
			shown := []string{}
			for _, field := range all {
				if _, there := found[field]; there {
					shown = append(shown, field)
				}
			}
			require.Equal(t, fields, shown, "%s %s", age, path)
		}
	}
	idle := all[3:]
	shows(0, "", all...)
	shows(59_999*time.Millisecond, "", all...)
	shows(time.Minute, "", idle...)
	shows(time.Minute, "as_of=2026-11-20T12:00:30Z", idle...)
	shows(0, "as_of=2026-11-20T12:00:59.999Z", all...)
	shows(0, "as_of=2026-11-20T12:01:00Z", idle...)
	shows(89_999*time.Millisecond, "", idle...)
	shows(90*time.Second, "", all[3:5]...)
	shows(0, "as_of=2026-11-20T12:01:30Z", all[3:5]...)
	shows(30*time.Second, "green=1s&yellow=2s", all[:3]...)
}

// TestPublishedDetails checks what responses show of users in a changes feed. What has ended is shown until the feed
// says so. Otherwise that change would be sent although the one before looked the same.
func TestPublishedDetails(t *testing.T) {
	t.Parallel()
	thresholds := lastseen.Thresholds{Green: time.Minute, Yellow: 2 * time.Minute}
	details := store.Details{
		Said:      lastseen.Said{Availability: lastseen.Busy, Until: testNow - 10},
		IdleSince: testNow - 100, InCallUntil: testNow + 10,
	}
	state, shown := lastseen.State{At: testNow - 90_000}, userDetails{
		Availability: lastseen.Busy, AvailabilityUntil: timestamp(testNow - 10),
		Activity: activityIdle, IdleSince: timestamp(testNow - 100), InCall: true, inCallUntil: lastseen.MaxInstant,
	}
	of := func(watermark lastseen.Instant) presence {
		return published("alice", store.Publish(thresholds, state, details, watermark))
	}
	require.Equal(t, presence{
		User: "alice", Status: lastseen.Yellow, LastSeen: timestamp(state.At), userDetails: &shown,
	}, of(testNow-11))
	shown.Availability, shown.AvailabilityUntil = "", 0
	require.Equal(t, &shown, of(testNow-10).userDetails)
	require.Nil(t, of(testNow+60_000).userDetails)
}

// TestResponsesCarryThresholds checks that each response with presences has the effective thresholds once, so that a
// client can turn its users yellow and grey without another request.
func TestResponsesCarryThresholds(t *testing.T) {
	w := newTestServer(t, fileStore(t))
	w.post("/chat/pings", `{"pings":[{"user":"alice"},{"user":"bob"}]}`)
	carries := func(green, yellow int, method, path, body string) {
		t.Helper()
		found := w.send(method, path, body).is(t, http.StatusOK).json(t)
		require.EqualValues(t, green, found["green_ms"], path)
		require.EqualValues(t, yellow, found["yellow_ms"], path)
	}
	carries(60_000, 300_000, "POST", "/chat/lookup", `{"users":["alice"]}`)
	carries(60_000, 300_000, "POST", alicePing, "")
	carries(60_000, 300_000, "POST", "/chat/users/bob/leave", "")
	for _, path := range []string{aliceUser + "?", aliceLookup + "&", "/chat/users?"} {
		carries(60_000, 300_000, "GET", path, "")
		carries(1000, 2500, "GET", path+"green=1s&yellow=2.5", "")
		carries(60_000, 120_000, "GET", path+"yellow=2m", "")
	}
	next := w.get("/chat/users?limit=1&green=1s&yellow=2s")["next_cursor"].(string)
	carries(1000, 2000, "GET", "/chat/users?cursor="+next, "")
}
