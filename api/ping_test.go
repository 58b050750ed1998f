package api

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/api/limit"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/api/telemetry"
	"github.com/lastseen/lastseen/store/connections"
)

func TestPing(t *testing.T) {
	eachStore(t, func(t *testing.T, w *testServer) {
		r := w.send("POST", "/chat/users/alice/ping", "")
		require.JSONEq(t, `{"user":"alice","status":"green","last_seen":"2026-11-20T12:00:00.000Z","left":false,
			"valid_until":"2026-11-20T12:01:00.000Z","as_of":"2026-11-20T12:00:00.000Z","green_ms":60000,"yellow_ms":300000,"ping_after_ms":27000}`, r.body)
		require.Equal(t, "application/json", r.header.Get("Content-Type"))

		older := w.post("/chat/users/alice/ping", `{"at":"2026-11-20T11:00:00Z"}`)
		require.Equal(t, "2026-11-20T12:00:00.000Z", older["last_seen"], "what is stored")
		ahead := w.post("/chat/users/alice/ping", `{"at":1795176005}`)
		require.Equal(t, "2026-11-20T12:00:05.000Z", ahead["last_seen"], "5 seconds ahead are allowed")
		require.Equal(t, "green", ahead["status"])
		require.Equal(t, "2026-11-20T12:01:05.000Z", ahead["valid_until"])
	})
}

func TestTimeFormats(t *testing.T) {
	w := newTestServer(t, fileStore(t))
	for i, at := range []string{
		`"2026-11-20T11:00:00.1239Z"`, `"2026-11-20T12:00:00.123+01:00"`, `1795172400.1239`, `"1795172400.123"`,
		`17951724001.239e-1`,
	} {
		response := w.post(fmt.Sprintf("/chat/users/u%d/ping", i), `{"at":`+at+`}`)
		require.Equal(t, "2026-11-20T11:00:00.123Z", response["last_seen"], at)
	}
}

func TestPingAfter(t *testing.T) {
	for random, want := range map[float64]int64{0: 24_000, 0.5: 27_000, 0.9999999: 29_999} {
		s := &server{Shared: NewShared(Config{}), Config: Config{Random: func() float64 { return random }}}
		require.Equal(t, want, s.pingAfter(Settings{PingInterval: 30 * time.Second}))
	}
}

func TestPreferMinimal(t *testing.T) {
	w := newTestServer(t, fileStore(t))
	for _, prefer := range []string{"return=minimal", "respond-async, Return=minimal; foo", `return="minimal"`} {
		r := w.send("POST", "/chat/users/alice/ping", "", "Prefer: "+prefer).is(t, http.StatusNoContent, prefer)
		require.Equal(t, "return=minimal", r.header.Get("Preference-Applied"))
		require.Equal(t, "27000", r.header.Get("Lastseen-Ping-After-Ms"))
		r = w.send("POST", "/chat/users/alice/leave", "", "Prefer: "+prefer).is(t, http.StatusNoContent)
		require.Empty(t, r.header.Get("Lastseen-Ping-After-Ms"), "who leaves need not ping")
	}
	for _, prefer := range []string{"return=representation", "minimal", ""} {
		w.send("POST", "/chat/users/alice/ping", "", "Prefer: "+prefer).is(t, http.StatusOK)
	}
}

// TestWriteOnlyKeyGetsNoBody checks that the response to a caller that may not read does not reveal what is stored.
func TestWriteOnlyKeyGetsNoBody(t *testing.T) {
	eachStore(t, func(t *testing.T, open *testServer) {
		authenticator, headers := callers(t)
		w := newAuthServer(t, open.store.Store, authenticator)
		as := func(name string) string { return "Authorization: " + headers[name] }
		for _, verb := range []string{"ping", "leave"} {
			r := w.send("POST", "/chat/users/alice/"+verb, "", as("ping")).is(t, http.StatusNoContent)
			require.Equal(t, "return=minimal", r.header.Get("Preference-Applied"))
			require.Equal(t, verb == "ping", r.header.Get("Lastseen-Ping-After-Ms") != "")
		}
		require.Equal(t, "green", w.post("/chat/users/alice/ping", `{"at":1795176001}`, as("alice"))["status"],
			"users see themselves")
		require.Equal(t, "green", w.post("/chat/users/alice/ping", "", as("all"))["status"])
		w.fails(problem.Forbidden, "POST", "/public-1/users/alice/ping", "", as("ping"))
	})
}

func TestLeave(t *testing.T) {
	eachStore(t, func(t *testing.T, w *testServer) {
		unseen := w.send("POST", "/game/users/zoe/leave", "")
		require.JSONEq(t, `{"user":"zoe","status":"grey","last_seen":"2026-11-20T12:00:00.000Z","left":true,"valid_until":null,
			"as_of":"2026-11-20T12:00:00.000Z","green_ms":60000,"yellow_ms":300000}`, unseen.body)
		require.Equal(t, 1, w.total("game"), "a leave of a user never seen is recorded")
		require.Len(t, w.get("")["namespaces"], 1, "and its namespace exists")
		require.Equal(t, "grey", w.post("/game/users/zoe/ping", `{"at":"2026-11-20T11:59:59Z"}`)["status"],
			"the ping was earlier")

		w.post("/chat/users/alice/ping", "")
		left := w.send("POST", "/chat/users/alice/leave", "")
		require.JSONEq(t, `{"user":"alice","status":"grey","last_seen":"2026-11-20T12:00:00.000Z","left":true,
			"valid_until":null,"as_of":"2026-11-20T12:00:00.000Z","green_ms":60000,"yellow_ms":300000}`, left.body)
		require.Equal(t, true, w.post("/chat/users/alice/ping", "")["left"], "at one millisecond left beats present")
		w.store.pass(1)
		require.Equal(t, "green", w.post("/chat/users/alice/ping", "")["status"], "another device")
		require.Equal(t, "green", w.post("/chat/users/alice/leave", `{"at":"2026-11-20T11:59:00Z"}`)["status"],
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
			false, "{", problem.Forbidden, problem.UnknownField, []string{alicePing, "/chat/leaves", "/chat/pings"},
		},
		callsPath + "/c1/end": {
			true, `{"user":"alice",`, problem.CallNotFound, problem.Forbidden,
			[]string{callsPath, callsPath + "/c1/accept", callsPath + "/c1/reject", callsPath + "/c1/alive"},
		},
	}
}

// TestTokenInBody leaves, and ends a call, as a closing page does.
func TestTokenInBody(t *testing.T) {
	t.Parallel()
	const hour, text = 3_600_000, "Content-Type: text/plain;charset=UTF-8"
	authenticator, headers := callers(t)
	for path, b := range beacons() {
		open := newTestServer(t, fileStore(t))
		w := newAuthServer(t, open.store.Store, authenticator)
		w.ring("c1", "alice", "dave")
		open.post(alicePing, fmt.Sprintf(`{"at":%d}`, testNow/1000-10))
		body := func(token string) string { return fmt.Sprintf(`{"token":%q}`, token) }
		alice, expired := token(t, "alice", testNow+hour, "chat"), token(t, "alice", testNow-hour, "chat")
		for bad, want := range map[string]problem.Code{
			"": problem.Unauthenticated, "{}": problem.Unauthenticated, `{"token":""}`: problem.Unauthenticated,
			`{"token":null}`: problem.Unauthenticated, `{"token":5}`: problem.InvalidJSON, `{"token":"a","token":"b"}`: problem.InvalidJSON,
			body("x"): problem.Unauthenticated, body(expired): problem.Unauthenticated,
			body(strings.TrimPrefix(headers["all"], "Bearer ")): problem.Unauthenticated, // a key
			body(token(t, "bob", testNow+hour, "chat")):         b.stranger,
			body(token(t, "alice", testNow+hour, "other")):      problem.Forbidden,
			fmt.Sprintf(`{"user":"bob","token":%q}`, alice):     b.bob,
		} {
			refusal := w.fails(want, "POST", path, bad, text)
			require.NotContains(t, fmt.Sprint(refusal), "eyJ", "a token is not repeated")
		}
		for _, other := range b.others {
			w.fails(problem.Unauthenticated, "POST", other, body(alice), text)
		}
		w.fails(problem.Unauthenticated, "POST", path, body(alice), text, "Authorization: Bearer x")
		w.fails(b.stranger, "POST", path, body(alice), text, "Authorization: "+headers["bob"])
		require.Equal(t, "ringing", open.get(callsPath + "/c1")["state"])
		require.Equal(t, "green", open.get(aliceUser)["status"])

		w.post(path, body(alice), append(crossSite("https://evil.example"), text)...)
		require.Equal(t, b.end, open.get(callsPath + "/c1")["state"] == "cancelled")
		require.Equal(t, !b.end, open.get(aliceUser)["status"] == "grey")
		w.send("POST", path, body("x"), text, "Authorization: "+headers["alice"]).is(t, http.StatusOK,
			"the header counts")
		open.send("POST", path, b.user+`"token":"x"}`, text).is(t, http.StatusOK, "nobody is asked")
		require.NotContains(t, w.log.String(), alice)
		require.NotContains(t, w.log.String(), expired)
	}
}

// TestBodiesWithoutJWTs checks that the body of an unauthenticated request is not read if only keys are configured.
func TestBodiesWithoutJWTs(t *testing.T) {
	t.Parallel()
	key, _ := newKey("k", "*", auth.Scopes()...)
	w := newAuthServer(t, fileStore(t), newAuthenticator(t, auth.Config{Keys: []auth.Key{key}}))
	for path := range beacons() {
		w.fails(problem.Unauthenticated, "POST", path, "{")
	}
}

// TestLimitsOfTokensInBodies: a token in a body counts like one in a header, and one that is not valid as the address.
func TestLimitsOfTokensInBodies(t *testing.T) {
	t.Parallel()
	for path, b := range beacons() {
		guarded, _, _, token := twoKeys(t)
		w := newTestServer(t, fileStore(t), guarded)
		body := `{"token":"` + token("alice") + `"}`
		for range limit.Burst(2) {
			r := w.send("POST", path, body)
			require.Equal(t, b.end, r.status == http.StatusNotFound, r.body) // there is no call
		}
		w.fails(problem.RateLimited, "POST", path, body)
		w.fails(problem.RateLimited, "POST", alicePing, "", bearer(token("alice")))
		office := from("203.0.113.7")
		for range limit.Burst(1) / 2 { // each counts as a request of somebody unknown, and as a failure
			w.fails(problem.Unauthenticated, "POST", path, `{"token":"wrong"}`, office)
		}
		w.fails(problem.RateLimited, "POST", path, `{"token":"wrong"}`, office)
	}
}

func TestBulk(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, w *testServer) {
		response := w.post("/chat/pings",
			`{"pings":[{"user":"alice"},{"user":"bob","at":100123},{"user":"alice","at":1}]}`)
		require.EqualValues(t, 3, response["recorded"], "superseded ones count")
		require.Equal(t, 2, w.total("chat"))
		require.EqualValues(t, 3, w.post("/chat/leaves",
			`{"leaves":[{"user":"alice"},{"user":"zoe"},{"user":"bob"}]}`)["recorded"])
		require.Equal(t, 3, w.total("chat"), "a leave of a user never seen is recorded")
		require.EqualValues(t, 0, w.post("/chat/leaves", `{"leaves":[]}`)["recorded"])

		var items []string
		for i := range 50 {
			item := fmt.Sprintf(`{"user":"new-%d"}`, i)
			if i%2 == 1 {
				item = `{"user":"new","at":-1}`
			}
			items = append(items, item)
		}
		refusal := w.fails(problem.InvalidTime, "POST", "/chat/pings", `{"pings":[`+strings.Join(items, ",")+`]}`)
		bad := refusal["errors"].([]any)
		require.Len(t, bad, 20, "the first 20")
		for i, e := range bad {
			require.EqualValues(t, 2*i+1, e.(map[string]any)["index"])
			require.NotEmpty(t, e.(map[string]any)["detail"])
		}
		require.Equal(t, 3, w.total("chat"), "one bad item and nothing is recorded")

		most := `{"pings":[` + strings.Repeat(`{"user":"u"},`, 9_999) + `{"user":"u"}]}`
		require.EqualValues(t, 10_000, w.post("/chat/pings", most)["recorded"])
	})
}

// TestItemErrors checks that errors found during decoding name the item, as later errors do.
func TestItemErrors(t *testing.T) {
	w := newTestServer(t, fileStore(t))
	refusal := w.fails(problem.InvalidTime, "POST", "/chat/pings", `{"pings":[{"user":"a"},{"user":"b","at":{}}]}`)
	require.Len(t, refusal["errors"], 1)
	require.EqualValues(t, 1, refusal["errors"].([]any)[0].(map[string]any)["index"])
	refusal = w.fails(problem.InvalidJSON, "POST", "/chat/pings", `{"pings":[{"user":"a"},{"user":[]}]}`)
	require.Equal(t, "/pings/1/user is a JSON array; a string is expected.", refusal["detail"])
	refusal = w.fails(problem.InvalidJSON, "POST", "/chat/lookup", `{"users":["a",{}]}`)
	require.Equal(t, "/users/1 is a JSON object; a string is expected.", refusal["detail"])
	refusal = w.fails(problem.InvalidJSON, "POST", "/chat/lookup", `{"users":{}}`)
	require.Equal(t, "/users is a JSON object; an array is expected.", refusal["detail"])
	refusal = w.fails(problem.InvalidJSON, "POST", "/chat/leaves", `{"leaves":[[]]}`)
	require.Equal(t, "/leaves/0 is a JSON array; an object is expected.", refusal["detail"])
	require.Zero(t, w.total("chat"))
}

// FuzzItem checks that an accepted item is a valid ping or leave.
func FuzzItem(f *testing.F) {
	for _, seed := range []string{
		`{"user":"alice","at":1}`, `{"user":"\u00e9","at":"2026-11-20T12:00:00Z"}`, `{}`,
		`null`, `{"at":1e400}`, `{"user":"a","device":{"id":"d","kind":"web","meta":{"a":[{}]}},"activity":"idle"}`,
		`{"user":"a","device":{"id":"d"},"after":"5s"}`, `{"user":"a","device":null,"after":"1"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var i item
		if unmarshal(data, &i) != nil {
			return
		}
		for _, e := range []telemetry.Event{telemetry.Ping, telemetry.Leave} {
			var b batch
			if b.add(e, "chat", i.User, i.assertion, testNow) != nil {
				require.Zero(t, b.size())
				continue
			}
			require.Equal(t, 1, b.size())
			for _, s := range b.plain {
				requireValidSighting(t, s.User, s.At)
			}
			for _, d := range b.later {
				require.Equal(t, telemetry.Leave, e)
				require.Positive(t, d.After)
				require.LessOrEqual(t, d.After, connections.MaxGrace)
				requireValidSighting(t, d.User, d.At)
				if d.ID != "" {
					b.devices = append(b.devices, d.DeviceSighting)
				}
			}
			for _, d := range b.devices {
				requireValidSighting(t, d.User, d.At)
				require.NoError(t, lastseen.CheckDevice(d.ID))
				require.Contains(t, append(lastseen.DeviceKinds(), ""), d.Kind)
				require.Equal(t, e == telemetry.Leave, d.Gone)
				require.LessOrEqual(t, d.Idle, d.At)
				require.LessOrEqual(t, len(d.Meta), lastseen.MaxMetaLen)
				require.True(t, d.Meta == "" || jsontext.Value(d.Meta).IsValid() && d.Meta[0] == '{')
			}
		}
	})
}

func requireValidSighting(t *testing.T, user string, at lastseen.Instant) {
	t.Helper()
	require.NoError(t, lastseen.CheckUser(user))
	require.GreaterOrEqual(t, at, lastseen.MinInstant)
	require.LessOrEqual(t, at, testNow+maxAhead)
}
