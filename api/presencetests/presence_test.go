package presencetests

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/apitest"
	"github.com/lastseen/lastseen/api/apitest/kit"
	"github.com/lastseen/lastseen/store"
)

// TestEvaluation checks that as_of and the thresholds come from the query. A user seen after as_of has age 0.
func TestEvaluation(t *testing.T) {
	w := apitest.NewServer(t, kit.FileStore(t))
	w.Post("/chat/users/alice/ping", `{"at":"2026-11-20T11:50:00Z"}`)
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
		require.Equal(t, want, w.Get("/chat/users/alice" + query)["status"], query)
	}
	require.Empty(t, kit.Names(w.Get("/chat/users?as_of=2026-11-20T10:00:00Z")), "lists leave out who was seen later")
	require.EqualValues(t, 0, w.Get("/chat/counts?as_of=2026-11-20T10:00:00Z")["total"])
}

// TestDetails checks what responses show of users who have an availability or are idle. Pings and leaves do not show
// it.
func TestDetails(t *testing.T) {
	t.Parallel()
	s := &sayingStore{kit.FileStore(t), map[string]store.Details{
		"alice": {
			Availability: lastseen.AvailabilityState{
				Availability: lastseen.Busy, Note: `"in" <a> meeting`, Until: kit.Now + 5000,
			},
			IdleSince: kit.Now - 1000,
		},
		"bob": {Availability: lastseen.AvailabilityState{Note: "back soon"}},
		"carol": {
			Availability: lastseen.AvailabilityState{Availability: lastseen.Away},
			IdleSince:    kit.Now - 1000, InCallUntil: kit.Now + 1000,
		},
		"dave": {InCallUntil: kit.Now + 1},
		"erin": {InCallUntil: kit.Now},
	}}
	w := apitest.NewServer(t, s)
	w.Post("/chat/pings", `{"pings":[{"user":"alice"},{"user":"bob"},{"user":"dave"},{"user":"erin"}]}`)
	w.Post("/chat/users/carol/leave", "")
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
		body := w.Send("GET", path, "").Body
		for _, part := range want {
			require.Contains(t, body, part, path)
		}
	}
	found := w.Send("POST", "/chat/lookup", `{"users":["carol","alice"]}`)
	require.Contains(t, found.Body, `"users":[{`+carol+`},{`+alice+`}]`)
	require.NotContains(t, w.Send("POST", kit.AlicePing, "").Body, "busy")
	require.NotContains(t, w.Send("POST", "/chat/users/alice/leave", "").Body, "busy")
}

// TestWhatEndedIsNotShown checks that a user's availability is evaluated at as_of, or at the present if that is later,
// and that a grey user is neither idle nor in a call by the thresholds of the query.
func TestWhatEndedIsNotShown(t *testing.T) {
	t.Parallel()
	availability := lastseen.AvailabilityState{Availability: lastseen.Away, Note: "lunch", Until: kit.Now + 60_000}
	w := apitest.NewServer(t, &sayingStore{kit.FileStore(t), map[string]store.Details{
		"alice": {Availability: availability, IdleSince: kit.Now - 1000, InCallUntil: kit.Now + 90_000},
	}})
	w.Post(kit.AlicePing, "")
	all := []string{"availability", "availability_until", "note", "activity", "idle_since", "in_call"}
	shows := func(age time.Duration, query string, fields ...string) {
		t.Helper()
		w.Store.Set(kit.Now.Add(age))
		for _, path := range []string{"/chat/users/alice?", "/chat/lookup?user=alice&", "/chat/users?"} {
			found := w.Get(path + query)
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

// TestResponsesCarryThresholds checks that each response with presences has the effective thresholds once, so that a
// client can turn its users yellow and grey without another request.
func TestResponsesCarryThresholds(t *testing.T) {
	w := apitest.NewServer(t, kit.FileStore(t))
	w.Post("/chat/pings", `{"pings":[{"user":"alice"},{"user":"bob"}]}`)
	carries := func(green, yellow int, method, path, body string) {
		t.Helper()
		found := w.Send(method, path, body).Is(t, http.StatusOK).JSON(t)
		require.EqualValues(t, green, found["green_ms"], path)
		require.EqualValues(t, yellow, found["yellow_ms"], path)
	}
	carries(60_000, 300_000, "POST", "/chat/lookup", `{"users":["alice"]}`)
	carries(60_000, 300_000, "POST", kit.AlicePing, "")
	carries(60_000, 300_000, "POST", "/chat/users/bob/leave", "")
	for _, path := range []string{kit.AliceUser + "?", kit.AliceLookup + "&", "/chat/users?"} {
		carries(60_000, 300_000, "GET", path, "")
		carries(1000, 2500, "GET", path+"green=1s&yellow=2.5", "")
		carries(60_000, 120_000, "GET", path+"yellow=2m", "")
	}
	next := w.Get("/chat/users?limit=1&green=1s&yellow=2s")["next_cursor"].(string)
	carries(1000, 2000, "GET", "/chat/users?cursor="+next, "")
}
