package api

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/problem"
)

// TestCall goes through a call: each response is the call as it is then, and so is what others read.
func TestCall(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, w *testServer) {
		call := w.call(`{"from":"alice","to":"bób","device":"tab","app":{"offer": [1, "x"]}}`)
		require.Regexp(t, `^[A-Z2-7]{26}$`, call["id"])
		path := callPath(call)
		is := func(changed map[string]any) {
			t.Helper()
			for name, value := range changed {
				call[name] = value
			}
			got := w.get(path)
			for name := range got {
				if strings.HasSuffix(name, "_at") && changed[name] == "some" {
					require.NotNil(t, got[name], name)
					call[name] = got[name]
				}
			}
			require.Equal(t, call, got)
			for _, user := range []string{"alice", "b%C3%B3b"} {
				calls := w.get(callsPath + "?user=" + user)["calls"]
				if call["ended_at"] == nil {
					require.Equal(t, []any{call}, calls)
				} else {
					require.Empty(t, calls)
				}
			}
			require.Empty(t, w.get(callsPath + "?user=carol")["calls"])
		}
		is(map[string]any{
			"from": "alice", "to": "bób", "state": "ringing", "from_device": "tab", "to_device": nil,
			"by": map[string]any{"user": "alice", "device": "tab"}, "app": map[string]any{"offer": []any{1., "x"}},
			"created_at": "some", "accepted_at": nil, "ended_at": nil, "expires_at": "some",
		})
		expires, created := parseTime(t, call["expires_at"]), parseTime(t, call["created_at"])
		require.Equal(t, DefaultRingTimeout, expires.Sub(created))

		w.post(path+"/alive", `{"user":"alice","device":"tab","app":"candidate"}`)
		is(map[string]any{"app": "candidate"})
		accepted := w.post(path+"/accept", `{"user":"bób","device":"phone","app":{"answer":0}}`)
		is(map[string]any{
			"state": "active", "to_device": "phone", "by": map[string]any{"user": "bób", "device": "phone"},
			"app": map[string]any{"answer": 0.}, "accepted_at": "some", "expires_at": "some",
		})
		require.Equal(t, call, accepted)
		require.Equal(t, "active", w.post(path+"/accept", `{"user":"bób","device":"phone"}`)["state"], "again")

		for _, late := range []string{`{"user":"bób","device":"laptop"}`, `{"user":"bób"}`, `{"user":"alice"}`} {
			refused := w.fails(problem.CallRefused, "POST", path+"/accept", late)
			is(map[string]any{"expires_at": "some"})
			require.Equal(t, call["state"], refused["call"].(map[string]any)["state"])
			require.Equal(t, "phone", refused["call"].(map[string]any)["to_device"])
		}
		w.fails(problem.CallRefused, "POST", path+"/reject", `{"user":"bób"}`)
		w.fails(problem.CallNotFound, "POST", path+"/end", `{"user":"carol"}`)

		ended := w.post(path+"/end", `{"user":"alice"}`)
		is(map[string]any{
			"state": "ended", "by": map[string]any{"user": "alice", "device": nil}, "app": nil, "ended_at": "some",
			"expires_at": nil,
		})
		require.Equal(t, call, ended)
		for _, user := range []string{"alice", "bób"} {
			require.Equal(t, ended, w.post(path+"/end", `{"user":"`+user+`"}`), "again")
		}
		refused := w.fails(problem.CallRefused, "POST", path+"/alive", `{"user":"alice"}`)
		require.Equal(t, ended, refused["call"])
	})
}

func parseTime(t *testing.T, text any) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text.(string))
	require.NoError(t, err)
	return at
}

// TestCallEnds goes through the ways in which a call that rings is over, and what is refused then.
func TestCallEnds(t *testing.T) {
	t.Parallel()
	w := newTestServer(t, fileStore(t))
	for _, end := range []struct{ action, user, state string }{
		{"reject", "bob", "rejected"}, {"end", "bob", "rejected"}, {"end", "alice", "cancelled"},
	} {
		call := w.call(`{"from":"alice","to":"bob"}`)
		if end.action == "reject" {
			refused := w.fails(problem.CallRefused, "POST", callPath(call)+"/reject", `{"user":"alice"}`)
			require.Equal(t, "Only the callee can reject this call.", refused["detail"])
		}
		over := w.post(callPath(call)+"/"+end.action, `{"user":"`+end.user+`","device":"tab"}`)
		require.Equal(t, end.state, over["state"])
		require.Equal(t, map[string]any{"user": end.user, "device": "tab"}, over["by"])
		refused := w.fails(problem.CallRefused, "POST", callPath(call)+"/accept", `{"user":"bob"}`)
		require.Equal(t, over, refused["call"])
		require.Contains(t, refused["detail"], "it is "+end.state)
	}
	for state, settings := range map[string]func(*Settings){
		"missed": func(s *Settings) { s.RingTimeout = 50 * time.Millisecond },
		"lost":   func(s *Settings) { s.RingTimeout, s.Thresholds.Green = 0, 50*time.Millisecond },
	} {
		w.reload(func(c *Config) { settings(&c.Settings) })
		call := w.call(`{"from":"alice","to":"bob"}`)
		if state == "lost" {
			w.post(callPath(call)+"/accept", `{"user":"bob"}`)
		}
		await(t, func() bool { return w.get(callPath(call))["state"] == state })
		w.fails(problem.CallRefused, "POST", callPath(call)+"/alive", `{"user":"bob"}`)
		w.reload(func(c *Config) { c.Settings = testSettings() })
	}
}

// TestCallsArePresent: with if, only users who are green or yellow can be called. Repeating a request returns its call.
func TestCallsArePresent(t *testing.T) {
	t.Parallel()
	w := newTestServer(t, fileStore(t))
	const call, key = `{"from":"alice","to":"bob","if":"present"}`, "Idempotency-Key: k"
	w.fails(problem.CalleeUnavailable, "POST", callsPath, call)
	for age, there := range map[time.Duration]bool{0: true, 4 * time.Minute: true, 5 * time.Minute: false} {
		w.store.set(testNow)
		w.post("/chat/users/bob/ping", "")
		w.store.set(testNow.Add(age))
		if !there {
			w.fails(problem.CalleeUnavailable, "POST", callsPath, call)
			continue
		}
		w.call(call)
		w.hangUp("alice")
	}
	w.store.set(testNow)
	begun := w.call(call, key)
	w.post("/chat/users/bob/leave", "")
	require.Equal(t, begun, w.call(call, key))
	w.fails(problem.IdempotencyKeyReused, "POST", callsPath, `{"from":"alice","to":"bob"}`, key)
	w.hangUp("alice")
	w.fails(problem.CalleeUnavailable, "POST", callsPath, call)
	w.call(`{"from":"alice","to":"bob"}`)
}

// TestCallErrors checks what is refused, and that no call was started then.
func TestCallErrors(t *testing.T) {
	t.Parallel()
	w := newTestServer(t, fileStore(t))
	long, both := strings.Repeat("u", 257), `{"from":"alice","to":"bob"`
	for want, bodies := range map[problem.Code][]string{
		problem.InvalidJSON: {
			"", "{", "[]", "null", `{"from":"alice","to":["bob"]}`, `{"from":1,"to":"bob"}`, both + `,"to":"bob"}`,
			both + `,"if":true}`, both + `,"device":{"id":"tab"}}`, both + `,"app":{"a":1,"a":2}}`, both + `,"app":{"a":1}`,
		},
		problem.InvalidUser: {
			"{}", `{"from":"alice"}`, `{"to":"bob"}`, `{"from":null,"to":"bob"}`, `{"from":"alice","to":""}`,
			`{"from":"alice","to":"."}`, `{"from":"a\u0000","to":"bob"}`, `{"from":"alice","to":"` + long + `"}`,
			`{"from":"` + long + `","to":"bob"}`,
		},
		problem.InvalidCall: {
			`{"from":"alice","to":"alice"}`, both + `,"if":"online"}`, both + `,"app":"` + appOf(1<<14+1) + `"}`,
		},
		problem.InvalidDevice: {both + `,"device":"` + long + `"}`, both + `,"device":"a\nb"}`},
		problem.UnknownField:  {both + `,"user":"alice"}`, both + `,"id":"c1"}`},
		problem.BodyTooLarge:  {both + strings.Repeat(" ", 1<<15) + `}`},
	} {
		for _, body := range bodies {
			w.fails(want, "POST", callsPath, body)
		}
	}
	w.fails(problem.UnsupportedMediaType, "POST", callsPath, both+`}`, "Content-Type: text/xml")
	w.fails(problem.UnknownParameter, "POST", callsPath+"?if=present", both+`}`)
	w.fails(problem.InvalidNamespace, "POST", "/.chat/calls", both+`}`)
	require.Empty(t, w.get(callsPath + "?user=alice")["calls"], "nothing had an effect")

	call := w.call(both + `}`)
	for _, action := range []string{"accept", "reject", "end", "alive"} {
		for body, want := range map[string]problem.Code{
			"": problem.InvalidUser, "{}": problem.InvalidUser, "[]": problem.InvalidJSON, `{"user":"."}`: problem.InvalidUser,
			`{"user":"carol"}`: problem.CallNotFound, `{"user":"Bob"}`: problem.CallNotFound,
			`{"user":"bob","device":"` + long + `"}`: problem.InvalidDevice, `{"user":"bob","from":"bob"}`: problem.UnknownField,
			`{"user":"bob"` + strings.Repeat(" ", 1<<15) + `}`: problem.BodyTooLarge,
		} {
			w.fails(want, "POST", callPath(call)+"/"+action, body)
		}
		app, want := `"`+appOf(1<<14+1)+`"`, problem.InvalidCall
		if action == "reject" || action == "end" {
			app, want = `null`, problem.UnknownField
		}
		w.fails(want, "POST", callPath(call)+"/"+action, `{"user":"bob","app":`+app+`}`)
		for _, id := range []string{"x", "a%20b", "%00", strings.Repeat("x", 65), "%2e%2e", "a%2Fb", "é"} {
			w.fails(problem.CallNotFound, "POST", callsPath+"/"+id+"/"+action, `{"user":"bob"}`)
		}
		w.fails(problem.InvalidParameter, "POST", callsPath+"//"+action, `{"user":"bob"}`)
		w.fails(problem.CallNotFound, "POST", "/other/calls/"+call["id"].(string)+"/"+action, `{"user":"bob"}`)
	}
	w.fails(problem.NotFound, "POST", callPath(call)+"/hold", `{"user":"bob"}`)
	w.fails(problem.CallNotFound, "GET", callsPath+"/x", "")
	w.fails(problem.CallNotFound, "GET", "/other/calls/"+call["id"].(string), "")
	w.fails(problem.UnknownParameter, "GET", callPath(call)+"?wait=1s", "")
	require.Equal(t, "ringing", w.get(callPath(call))["state"])
	for query, want := range map[string]problem.Code{
		"": problem.InvalidUser, "?user=": problem.InvalidUser, "?user=.": problem.InvalidUser,
		"?user=alice&user=bob": problem.InvalidParameter, "?user=alice&wait=51s": problem.InvalidDuration,
		"?user=alice&wait=soon": problem.InvalidDuration, "?user=alice&cursor=": problem.InvalidCursor,
		"?user=alice&limit=1": problem.UnknownParameter,
	} {
		w.fails(want, "GET", callsPath+query, "")
	}
}

// appOf returns the content of a JSON string of n bytes, with its quotes.
func appOf(n int) string { return strings.Repeat("x", n-2) }

// TestCallApp: any JSON value can be stored, up to its limit. Spaces and needless escapes are lost.
func TestCallApp(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("[", lastseen.MaxDepth-1) + strings.Repeat("]", lastseen.MaxDepth-1)
	eachStore(t, func(t *testing.T, w *testServer) {
		for app, want := range map[string]string{
			`0`: `0`, `-1.50`: `-1.50`, `"a\u00e9é\n<>"`: `"aéé\n<>"`, `false`: `false`, `[]`: `[]`, `null`: `null`,
			"{ \"b\" : [ 1 ,\n{} ] , \"a\":null}": `{"b":[1,{}],"a":null}`,
			`{"x":12345678901234567}`:             `{"x":12345678901234567}`,
			`"` + appOf(1<<14) + `"`:              `"` + appOf(1<<14) + `"`, "[" + strings.Repeat(" ", 10_000) + "1" + "]": `[1]`,
			deep: deep,
		} {
			r := w.send("POST", callsPath, `{"from":"alice","to":"bob","app":`+app+`}`).is(t, http.StatusCreated)
			require.True(t, strings.HasSuffix(r.body, `,"app":`+want+"}\n"), "%.100s: %.300s", app, r.body)
			id := r.json(t)["id"].(string)
			require.Equal(t, r.body, w.send("GET", callsPath+"/"+id, "").body)
			alive := w.send("POST", callsPath+"/"+id+"/alive", `{"user":"bob","app":null}`)
			require.Equal(t, r.body, alive.body, "null leaves it")
			w.hangUp("alice")
		}
	})
}

// TestIdempotencyKey: a repeated request returns the call that the first one started, as it is now.
func TestIdempotencyKey(t *testing.T) {
	t.Parallel()
	w := newTestServer(t, fileStore(t))
	const body = `{"from":"alice","to":"bob","device":"tab","app":{"a": 1}}`
	key := "Idempotency-Key: 5d3a c0ff ~!"
	call := w.call(body, key)
	require.Equal(t, call, w.call(` { "app" : {"a":1}, "to":"bob", "from":"alice","device":"tab"}`, key))
	for _, other := range []string{
		`{"from":"alice","to":"carol","device":"tab","app":{"a": 1}}`, `{"from":"alice","to":"bob","app":{"a": 1}}`,
		`{"from":"alice","to":"bob","device":"tab","app":{"a": 2}}`, `{"from":"alice","to":"bob","device":"tab"}`,
	} {
		w.fails(problem.IdempotencyKeyReused, "POST", callsPath, other, key)
	}
	w.fails(problem.CallerBusy, "POST", callsPath, body, "Idempotency-Key: 5d3a c0ff ~")
	w.fails(problem.CallerBusy, "POST", callsPath, body)
	accepted := w.post(callPath(call)+"/accept", `{"user":"bob"}`)
	require.Equal(t, accepted, w.call(body, key))
	ended := w.post(callPath(call)+"/end", `{"user":"bob"}`)
	require.Equal(t, ended, w.call(body, key))
	require.Empty(t, w.get(callsPath + "?user=alice")["calls"])

	another := w.call(`{"from":"carol","to":"bob"}`, key)
	require.NotEqual(t, call["id"], another["id"], "keys of different users are different")
	for _, bad := range []string{"", "é", strings.Repeat("k", 256), "a\tb"} {
		w.fails(problem.InvalidCall, "POST", callsPath, body, "Idempotency-Key: "+bad)
	}
	w.fails(problem.InvalidCall, "POST", callsPath, body, "Idempotency-Key: a", "Idempotency-Key: b")
	w.hangUp("bob")
	w.call(body, "Idempotency-Key: "+strings.Repeat("k", 255))
}

// TestCallsOfTokens: a token speaks for its user, whom requests can omit, and who is told of other calls that they do
// not exist. Keys say for whom they act. See also TestPermissions.
func TestCallsOfTokens(t *testing.T) {
	t.Parallel()
	w, headers := newGuardedServer(t)
	send := func(caller, method, path, body string, status int) map[string]any {
		t.Helper()
		return w.send(method, path, body, headersOf(headers[caller])...).is(t, status).json(t)
	}
	call := send("alice", "POST", callsPath, `{"to":"bob"}`, http.StatusCreated)
	require.Equal(t, "alice", call["from"])
	path := callPath(call)
	require.Equal(t, call["id"], firstOf(send("bob", "GET", callsPath, "", http.StatusOK), "calls")["id"])
	require.Equal(t, call, send("bob", "GET", path, "", http.StatusOK))
	require.Equal(t, call, send("all", "GET", path, "", http.StatusOK))
	require.Equal(t, "active", send("bob", "POST", path+"/accept", "", http.StatusOK)["state"])
	send("ping", "POST", path+"/end", `{"user":"bob"}`, http.StatusOK)
	for _, bad := range []struct {
		want                       problem.Code
		caller, method, path, body string
	}{
		{problem.Forbidden, "alice", "POST", callsPath, `{"from":"bob","to":"alice"}`},
		{problem.InvalidCall, "alice", "POST", callsPath, `{"to":"alice"}`},
		{problem.InvalidUser, "ping", "POST", callsPath, `{"to":"bob"}`},
		{problem.InvalidUser, "ping", "POST", path + "/end", ""},
		{problem.InvalidUser, "all", "GET", callsPath, ""},
		{problem.Forbidden, "ping", "POST", callsPath, `{"from":"alice","to":"bob","if":"present"}`},
		// what everyone can read has no calls
		{problem.Unauthenticated, "nobody", "GET", "/public-x/calls?user=alice", ""},
		{problem.Forbidden, "ping", "GET", "/public-x/calls?user=alice", ""},
		{problem.Unauthenticated, "nobody", "GET", "/public-x/calls/others", ""},
	} {
		w.fails(bad.want, bad.method, bad.path, bad.body, headersOf(headers[bad.caller])...)
	}
	w.ring("others", "carol", "dave")
	get := func(method, path string) testResponse { return w.send(method, path, "", bearerOf(headers["alice"])) }
	unknown := withoutID(t, get("GET", callsPath+"/none"))
	require.Equal(t, unknown, withoutID(t, get("GET", callsPath+"/others")))
	for _, action := range []string{"/end", "/accept"} {
		require.Equal(t, unknown, withoutID(t, get("POST", callsPath+"/others"+action)))
	}
	send("all", "GET", callsPath+"/others", "", http.StatusOK)
}

// TestCallJSONOfOthers checks what a call shows of which the store has no valid JSON, and no device.
func TestCallJSONOfOthers(t *testing.T) {
	text := string(appendCall(nil, lastseen.Call{
		ID: "c1", From: "alice", To: `"bob"`, State: lastseen.Ended, By: "bob", App: "not JSON", Over: testNow,
	}))
	require.Contains(t, text, `"to":"\"bob\""`)
	require.Contains(t, text, `"by":{"user":"bob","device":null}`)
	require.Contains(t, text, `"app":null`)
	require.Contains(t, text, `"ended_at":"2026-11-20T12:00:00.000Z"`)
}
