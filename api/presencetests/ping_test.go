package presencetests

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api/apitest"
	"github.com/lastseen/lastseen/api/apitest/kit"
	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/api/limit"
	"github.com/lastseen/lastseen/api/problem"
)

func TestPing(t *testing.T) {
	apitest.EachStore(t, func(t *testing.T, w *apitest.Server) {
		r := w.Send("POST", "/chat/users/alice/ping", "")
		require.JSONEq(t, `{"user":"alice","status":"green","last_seen":"2026-11-20T12:00:00.000Z","left":false,
			"valid_until":"2026-11-20T12:01:00.000Z","as_of":"2026-11-20T12:00:00.000Z","green_ms":60000,"yellow_ms":300000,"ping_after_ms":27000}`, r.Body)
		require.Equal(t, "application/json", r.Header.Get("Content-Type"))

		older := w.Post("/chat/users/alice/ping", `{"at":"2026-11-20T11:00:00Z"}`)
		require.Equal(t, "2026-11-20T12:00:00.000Z", older["last_seen"], "what is stored")
		ahead := w.Post("/chat/users/alice/ping", `{"at":1795176005}`)
		require.Equal(t, "2026-11-20T12:00:05.000Z", ahead["last_seen"], "5 seconds ahead are allowed")
		require.Equal(t, "green", ahead["status"])
		require.Equal(t, "2026-11-20T12:01:05.000Z", ahead["valid_until"])
	})
}

func TestPreferMinimal(t *testing.T) {
	w := apitest.NewServer(t, kit.FileStore(t))
	for _, prefer := range []string{"return=minimal", "respond-async, Return=minimal; foo", `return="minimal"`} {
		r := w.Send("POST", "/chat/users/alice/ping", "", "Prefer: "+prefer).Is(t, http.StatusNoContent, prefer)
		require.Equal(t, "return=minimal", r.Header.Get("Preference-Applied"))
		require.Equal(t, "27000", r.Header.Get("Lastseen-Ping-After-Ms"))
		r = w.Send("POST", "/chat/users/alice/leave", "", "Prefer: "+prefer).Is(t, http.StatusNoContent)
		require.Empty(t, r.Header.Get("Lastseen-Ping-After-Ms"), "who leaves need not ping")
	}
	for _, prefer := range []string{"return=representation", "minimal", ""} {
		w.Send("POST", "/chat/users/alice/ping", "", "Prefer: "+prefer).Is(t, http.StatusOK)
	}
}

// TestWriteOnlyKeyGetsNoBody checks that the response to a caller that may not read does not reveal what is stored.
func TestWriteOnlyKeyGetsNoBody(t *testing.T) {
	apitest.EachStore(t, func(t *testing.T, open *apitest.Server) {
		authenticator, headers := kit.Callers(t)
		w := apitest.NewAuthServer(t, open.Store.Store, authenticator)
		as := func(name string) string { return "Authorization: " + headers[name] }
		for _, verb := range []string{"ping", "leave"} {
			r := w.Send("POST", "/chat/users/alice/"+verb, "", as("ping")).Is(t, http.StatusNoContent)
			require.Equal(t, "return=minimal", r.Header.Get("Preference-Applied"))
			require.Equal(t, verb == "ping", r.Header.Get("Lastseen-Ping-After-Ms") != "")
		}
		require.Equal(t, "green", w.Post("/chat/users/alice/ping", `{"at":1795176001}`, as("alice"))["status"],
			"users see themselves")
		require.Equal(t, "green", w.Post("/chat/users/alice/ping", "", as("all"))["status"])
		w.Fails(problem.Forbidden, "POST", "/public-1/users/alice/ping", "", as("ping"))
	})
}

func TestLeave(t *testing.T) {
	apitest.EachStore(t, func(t *testing.T, w *apitest.Server) {
		unseen := w.Send("POST", "/game/users/zoe/leave", "")
		require.JSONEq(t, `{"user":"zoe","status":"grey","last_seen":"2026-11-20T12:00:00.000Z","left":true,"valid_until":null,
			"as_of":"2026-11-20T12:00:00.000Z","green_ms":60000,"yellow_ms":300000}`, unseen.Body)
		require.Equal(t, 1, w.Total("game"), "a leave of a user never seen is recorded")
		require.Len(t, w.Get("")["namespaces"], 1, "and its namespace exists")
		require.Equal(t, "grey", w.Post("/game/users/zoe/ping", `{"at":"2026-11-20T11:59:59Z"}`)["status"],
			"the ping was earlier")

		w.Post("/chat/users/alice/ping", "")
		left := w.Send("POST", "/chat/users/alice/leave", "")
		require.JSONEq(t, `{"user":"alice","status":"grey","last_seen":"2026-11-20T12:00:00.000Z","left":true,
			"valid_until":null,"as_of":"2026-11-20T12:00:00.000Z","green_ms":60000,"yellow_ms":300000}`, left.Body)
		require.Equal(t, true, w.Post("/chat/users/alice/ping", "")["left"], "at one millisecond left beats present")
		w.Store.Pass(1)
		require.Equal(t, "green", w.Post("/chat/users/alice/ping", "")["status"], "another device")
		require.Equal(t, "green", w.Post("/chat/users/alice/leave", `{"at":"2026-11-20T11:59:00Z"}`)["status"],
			"too old")
	})
}

// beacon is a request of a closing page: with the token in the body, as text/plain, and without other credentials.
type beacon struct {
	end      bool         // a call, and not a leave
	user     string       // the beginning of a body that names alice, on a server that asks nobody
	stranger problem.Code // of a user who has nothing to do with it
	bob      problem.Code // for a body with a token of alice and the user bob
	others   []string     // requests that cannot have a token in their bodies
}

func beacons() map[string]beacon {
	return map[string]beacon{
		"/chat/users/alice/leave": {
			false, "{", problem.Forbidden, problem.UnknownField, []string{kit.AlicePing, "/chat/leaves", "/chat/pings"},
		},
		kit.CallsPath + "/c1/end": {
			true, `{"user":"alice",`, problem.CallNotFound, problem.Forbidden,
			[]string{
				kit.CallsPath, kit.CallsPath + "/c1/accept", kit.CallsPath + "/c1/reject", kit.CallsPath + "/c1/alive",
			},
		},
	}
}

// TestTokenInBody leaves, and ends a call, as a closing page does.
func TestTokenInBody(t *testing.T) {
	t.Parallel()
	const hour, text = 3_600_000, "Content-Type: text/plain;charset=UTF-8"
	authenticator, headers := kit.Callers(t)
	for path, b := range beacons() {
		open := apitest.NewServer(t, kit.FileStore(t))
		w := apitest.NewAuthServer(t, open.Store.Store, authenticator)
		w.Ring("c1", "alice", "dave")
		open.Post(kit.AlicePing, fmt.Sprintf(`{"at":%d}`, kit.Now/1000-10))
		body := func(token string) string { return fmt.Sprintf(`{"token":%q}`, token) }
		alice, expired := kit.Token(t, "alice", kit.Now+hour, "chat"), kit.Token(t, "alice", kit.Now-hour, "chat")
		for bad, want := range map[string]problem.Code{
			"": problem.Unauthenticated, "{}": problem.Unauthenticated, `{"token":""}`: problem.Unauthenticated,
			`{"token":null}`: problem.Unauthenticated, `{"token":5}`: problem.InvalidJSON, `{"token":"a","token":"b"}`: problem.InvalidJSON,
			body("x"): problem.Unauthenticated, body(expired): problem.Unauthenticated,
			body(strings.TrimPrefix(headers["all"], "Bearer ")): problem.Unauthenticated, // a key
			body(kit.Token(t, "bob", kit.Now+hour, "chat")):     b.stranger,
			body(kit.Token(t, "alice", kit.Now+hour, "other")):  problem.Forbidden,
			fmt.Sprintf(`{"user":"bob","token":%q}`, alice):     b.bob,
		} {
			refusal := w.Fails(want, "POST", path, bad, text)
			require.NotContains(t, fmt.Sprint(refusal), "eyJ", "a token is not repeated")
		}
		for _, other := range b.others {
			w.Fails(problem.Unauthenticated, "POST", other, body(alice), text)
		}
		w.Fails(problem.Unauthenticated, "POST", path, body(alice), text, "Authorization: Bearer x")
		w.Fails(b.stranger, "POST", path, body(alice), text, "Authorization: "+headers["bob"])
		require.Equal(t, "ringing", open.Get(kit.CallsPath + "/c1")["state"])
		require.Equal(t, "green", open.Get(kit.AliceUser)["status"])

		w.Post(path, body(alice), append(kit.CrossSite("https://evil.example"), text)...)
		require.Equal(t, b.end, open.Get(kit.CallsPath + "/c1")["state"] == "cancelled")
		require.Equal(t, !b.end, open.Get(kit.AliceUser)["status"] == "grey")
		w.Send("POST", path, body("x"), text, "Authorization: "+headers["alice"]).Is(t, http.StatusOK,
			"the header counts")
		open.Send("POST", path, b.user+`"token":"x"}`, text).Is(t, http.StatusOK, "nobody is asked")
		require.NotContains(t, w.Log.String(), alice)
		require.NotContains(t, w.Log.String(), expired)
	}
}

// TestBodiesWithoutJWTs checks that the body of an unauthenticated request is not read if only keys are configured.
func TestBodiesWithoutJWTs(t *testing.T) {
	t.Parallel()
	key, _ := kit.NewKey("k", "*", auth.Scopes()...)
	w := apitest.NewAuthServer(t, kit.FileStore(t), kit.NewAuthenticator(t, auth.Config{Keys: []auth.Key{key}}))
	for path := range beacons() {
		w.Fails(problem.Unauthenticated, "POST", path, "{")
	}
}

// TestLimitsOfTokensInBodies: a token in a body counts like one in a header, and one that is not valid as the address.
func TestLimitsOfTokensInBodies(t *testing.T) {
	t.Parallel()
	for path, b := range beacons() {
		guarded, _, _, token := apitest.TwoKeys(t)
		w := apitest.NewServer(t, kit.FileStore(t), guarded)
		body := `{"token":"` + token("alice") + `"}`
		for range limit.Burst(2) {
			r := w.Send("POST", path, body)
			require.Equal(t, b.end, r.Status == http.StatusNotFound, r.Body) // there is no call
		}
		w.Fails(problem.RateLimited, "POST", path, body)
		w.Fails(problem.RateLimited, "POST", kit.AlicePing, "", kit.Bearer(token("alice")))
		office := kit.ForwardedFor("203.0.113.7")
		for range limit.Burst(1) / 2 { // each counts as a request of somebody unknown, and as a failure
			w.Fails(problem.Unauthenticated, "POST", path, `{"token":"wrong"}`, office)
		}
		w.Fails(problem.RateLimited, "POST", path, `{"token":"wrong"}`, office)
	}
}

func TestBulk(t *testing.T) {
	t.Parallel()
	apitest.EachStore(t, func(t *testing.T, w *apitest.Server) {
		response := w.Post("/chat/pings",
			`{"pings":[{"user":"alice"},{"user":"bob","at":100123},{"user":"alice","at":1}]}`)
		require.EqualValues(t, 3, response["recorded"], "superseded ones count")
		require.Equal(t, 2, w.Total("chat"))
		require.EqualValues(t, 3, w.Post("/chat/leaves",
			`{"leaves":[{"user":"alice"},{"user":"zoe"},{"user":"bob"}]}`)["recorded"])
		require.Equal(t, 3, w.Total("chat"), "a leave of a user never seen is recorded")
		require.EqualValues(t, 0, w.Post("/chat/leaves", `{"leaves":[]}`)["recorded"])

		var items []string
		for i := range 50 {
			item := fmt.Sprintf(`{"user":"new-%d"}`, i)
			if i%2 == 1 {
				item = `{"user":"new","at":-1}`
			}
			items = append(items, item)
		}
		refusal := w.Fails(problem.InvalidTime, "POST", "/chat/pings", `{"pings":[`+strings.Join(items, ",")+`]}`)
		bad := refusal["errors"].([]any)
		require.Len(t, bad, 20, "the first 20")
		for i, e := range bad {
			require.EqualValues(t, 2*i+1, e.(map[string]any)["index"])
			require.NotEmpty(t, e.(map[string]any)["detail"])
		}
		require.Equal(t, 3, w.Total("chat"), "one bad item and nothing is recorded")

		most := `{"pings":[` + strings.Repeat(`{"user":"u"},`, 9_999) + `{"user":"u"}]}`
		require.EqualValues(t, 10_000, w.Post("/chat/pings", most)["recorded"])
	})
}

// TestItemErrors checks that errors found during decoding name the item, as later errors do.
func TestItemErrors(t *testing.T) {
	w := apitest.NewServer(t, kit.FileStore(t))
	refusal := w.Fails(problem.InvalidTime, "POST", "/chat/pings", `{"pings":[{"user":"a"},{"user":"b","at":{}}]}`)
	require.Len(t, refusal["errors"], 1)
	require.EqualValues(t, 1, refusal["errors"].([]any)[0].(map[string]any)["index"])
	refusal = w.Fails(problem.InvalidJSON, "POST", "/chat/pings", `{"pings":[{"user":"a"},{"user":[]}]}`)
	require.Equal(t, "/pings/1/user is a JSON array; a string is expected.", refusal["detail"])
	refusal = w.Fails(problem.InvalidJSON, "POST", "/chat/lookup", `{"users":["a",{}]}`)
	require.Equal(t, "/users/1 is a JSON object; a string is expected.", refusal["detail"])
	refusal = w.Fails(problem.InvalidJSON, "POST", "/chat/lookup", `{"users":{}}`)
	require.Equal(t, "/users is a JSON object; an array is expected.", refusal["detail"])
	refusal = w.Fails(problem.InvalidJSON, "POST", "/chat/leaves", `{"leaves":[[]]}`)
	require.Equal(t, "/leaves/0 is a JSON array; an object is expected.", refusal["detail"])
	require.Zero(t, w.Total("chat"))
}
