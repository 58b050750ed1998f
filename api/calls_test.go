package api

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
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
			refused := w.fails(codeCallRefused, http.MethodPost, path+"/accept", late)
			is(map[string]any{"expires_at": "some"})
			require.Equal(t, call["state"], refused["call"].(map[string]any)["state"])
			require.Equal(t, "phone", refused["call"].(map[string]any)["to_device"])
		}
		w.fails(codeCallRefused, http.MethodPost, path+"/reject", `{"user":"bób"}`)
		w.fails(codeCallNotFound, http.MethodPost, path+"/end", `{"user":"carol"}`)

		ended := w.post(path+"/end", `{"user":"alice"}`)
		is(map[string]any{
			"state": "ended", "by": map[string]any{"user": "alice", "device": nil}, "app": nil, "ended_at": "some",
			"expires_at": nil,
		})
		require.Equal(t, call, ended)
		for _, user := range []string{"alice", "bób"} {
			require.Equal(t, ended, w.post(path+"/end", `{"user":"`+user+`"}`), "again")
		}
		refused := w.fails(codeCallRefused, http.MethodPost, path+"/alive", `{"user":"alice"}`)
		require.Equal(t, ended, refused["call"])
	})
}

func parseTime(t *testing.T, text any) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text.(string))
	require.NoError(t, err)
	return at
}

// TestCallEnds goes through the ways in which a call that rings is over.
func TestCallEnds(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, w *testServer) {
		for _, end := range []struct{ action, user, state string }{
			{"reject", "bob", "rejected"}, {"end", "bob", "rejected"}, {"end", "alice", "cancelled"},
		} {
			call := w.call(`{"from":"alice","to":"bob"}`)
			if end.action == "reject" {
				refused := w.fails(codeCallRefused, http.MethodPost, callPath(call)+"/reject", `{"user":"alice"}`)
				require.Equal(t, "Only the callee can reject this call.", refused["detail"])
			}
			over := w.post(callPath(call)+"/"+end.action, `{"user":"`+end.user+`","device":"tab"}`)
			require.Equal(t, end.state, over["state"])
			require.Equal(t, map[string]any{"user": end.user, "device": "tab"}, over["by"])
			refused := w.fails(codeCallRefused, http.MethodPost, callPath(call)+"/accept", `{"user":"bob"}`)
			require.Equal(t, over, refused["call"])
			require.Contains(t, refused["detail"], "it is "+end.state)
		}
		w.reload(func(c *Config) { c.Settings.RingTimeout = 50 * time.Millisecond })
		call := w.call(`{"from":"alice","to":"bob"}`)
		require.Eventually(t, func() bool { return w.get(callPath(call))["state"] == "missed" }, eventually, tick)
		require.Nil(t, w.get(callPath(call))["by"])
		refused := w.fails(codeCallRefused, http.MethodPost, callPath(call)+"/accept", `{"user":"bob"}`)
		require.Equal(t, "missed", refused["call"].(map[string]any)["state"])

		w.reload(func(c *Config) {
			c.Settings.RingTimeout = 0
			c.Settings.Thresholds.Green = 50 * time.Millisecond
		})
		call = w.call(`{"from":"alice","to":"bob"}`)
		w.post(callPath(call)+"/accept", `{"user":"bob"}`)
		require.Eventually(t, func() bool { return w.get(callPath(call))["state"] == "lost" }, eventually, tick)
		w.fails(codeCallRefused, http.MethodPost, callPath(call)+"/alive", `{"user":"bob"}`)
	})
}

// TestBusy: a user has one call at a time, whichever side the user is on.
func TestBusy(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, w *testServer) {
		call := w.call(`{"from":"alice","to":"bob"}`)
		for _, state := range []string{"ringing", "active"} {
			require.Equal(t, state, w.get(callPath(call))["state"])
			for _, busy := range []string{"alice", "bob"} {
				w.fails(codeCalleeBusy, http.MethodPost, callsPath, `{"from":"carol","to":"`+busy+`"}`)
				w.fails(codeCallerBusy, http.MethodPost, callsPath, `{"from":"`+busy+`","to":"carol"}`)
			}
			w.fails(codeCallerBusy, http.MethodPost, callsPath, `{"from":"bob","to":"alice"}`)
			r := w.send(http.MethodPost, "/other/calls", `{"from":"alice","to":"bob"}`)
			require.Equal(t, map[string]int{"ringing": 201, "active": 409}[state], r.status, "in another namespace")
			w.send(http.MethodPost, callPath(call)+"/accept", `{"user":"bob"}`)
		}
		w.post(callPath(call)+"/end", `{"user":"bob"}`)
		w.call(`{"from":"bob","to":"alice"}`)
	})
}

// TestCallsArePresent: with if, only users who are green or yellow can be called.
func TestCallsArePresent(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, w *testServer) {
		const call = `{"from":"alice","to":"bob","if":"present"}`
		w.fails(codeCalleeUnavailable, http.MethodPost, callsPath, call)
		for age, there := range map[time.Duration]bool{0: true, 4 * time.Minute: true, 5 * time.Minute: false} {
			w.post("/chat/users/bob/ping", "")
			w.store.now = testNow.Add(age)
			if r := w.send(http.MethodPost, callsPath, call); there {
				require.Equal(t, http.StatusCreated, r.status, r.body)
				w.hangUp("alice")
			} else {
				require.Equal(t, string(codeCalleeUnavailable), r.json(t)["code"])
			}
			w.store.now = testNow
		}
		w.post("/chat/users/bob/leave", "")
		w.fails(codeCalleeUnavailable, http.MethodPost, callsPath, call)
		w.call(`{"from":"alice","to":"bob"}`)
	})
}

// TestCallErrors checks what is refused, and that no call was started then.
func TestCallErrors(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, w *testServer) {
		long := strings.Repeat("u", 257)
		for body, want := range map[string]code{
			"": codeInvalidJSON, "{": codeInvalidJSON, "[]": codeInvalidJSON, "null": codeInvalidJSON,
			"{}": codeInvalidUser, `{"from":"alice"}`: codeInvalidUser, `{"to":"bob"}`: codeInvalidUser,
			`{"from":null,"to":"bob"}`: codeInvalidUser, `{"from":"alice","to":""}`: codeInvalidUser,
			`{"from":"alice","to":"."}`: codeInvalidUser, `{"from":"a\u0000","to":"bob"}`: codeInvalidUser,
			`{"from":"alice","to":"` + long + `"}`: codeInvalidUser, `{"from":"` + long + `","to":"bob"}`: codeInvalidUser,
			`{"from":"alice","to":["bob"]}`: codeInvalidJSON, `{"from":1,"to":"bob"}`: codeInvalidJSON,
			`{"from":"alice","to":"bob","to":"bob"}`:                        codeInvalidJSON,
			`{"from":"alice","to":"alice"}`:                                 codeInvalidCall,
			`{"from":"alice","to":"bob","if":"online"}`:                     codeInvalidCall,
			`{"from":"alice","to":"bob","if":true}`:                         codeInvalidJSON,
			`{"from":"alice","to":"bob","device":"` + long + `"}`:           codeInvalidDevice,
			`{"from":"alice","to":"bob","device":"a\nb"}`:                   codeInvalidDevice,
			`{"from":"alice","to":"bob","device":{"id":"tab"}}`:             codeInvalidJSON,
			`{"from":"alice","to":"bob","user":"alice"}`:                    codeUnknownField,
			`{"from":"alice","to":"bob","id":"c1"}`:                         codeUnknownField,
			`{"from":"alice","to":"bob","app":{"a":1,"a":2}}`:               codeInvalidJSON,
			`{"from":"alice","to":"bob","app":{"a":1}`:                      codeInvalidJSON,
			`{"from":"alice","to":"bob","app":"` + appOf(1<<14+1) + `"}`:    codeInvalidCall,
			`{"from":"alice","to":"bob"` + strings.Repeat(" ", 1<<15) + `}`: codeBodyTooLarge,
		} {
			w.fails(want, http.MethodPost, callsPath, body)
		}
		w.fails(codeUnsupportedMediaType, http.MethodPost, callsPath, `{"from":"alice","to":"bob"}`, "Content-Type: text/xml")
		w.fails(codeUnknownParameter, http.MethodPost, callsPath+"?if=present", `{"from":"alice","to":"bob"}`)
		w.fails(codeInvalidNamespace, http.MethodPost, "/.chat/calls", `{"from":"alice","to":"bob"}`)
		require.Empty(t, w.get(callsPath + "?user=alice")["calls"], "nothing had an effect")

		call := w.call(`{"from":"alice","to":"bob"}`)
		for _, action := range []string{"accept", "reject", "end", "alive"} {
			for body, want := range map[string]code{
				"": codeInvalidUser, "{}": codeInvalidUser, "[]": codeInvalidJSON, `{"user":"."}`: codeInvalidUser,
				`{"user":"carol"}`: codeCallNotFound, `{"user":"Bob"}`: codeCallNotFound,
				`{"user":"bob","device":"` + long + `"}`: codeInvalidDevice, `{"user":"bob","from":"bob"}`: codeUnknownField,
				`{"user":"bob"` + strings.Repeat(" ", 1<<15) + `}`: codeBodyTooLarge,
			} {
				w.fails(want, http.MethodPost, callPath(call)+"/"+action, body)
			}
			app := `{"user":"bob","app":"` + appOf(1<<14+1) + `"}`
			want := codeInvalidCall
			if action == "reject" || action == "end" {
				app, want = `{"user":"bob","app":null}`, codeUnknownField
			}
			w.fails(want, http.MethodPost, callPath(call)+"/"+action, app)
			for _, id := range []string{"x", "a%20b", "%00", strings.Repeat("x", 65), "%2e%2e", "a%2Fb", "é"} {
				w.fails(codeCallNotFound, http.MethodPost, callsPath+"/"+id+"/"+action, `{"user":"bob"}`)
			}
			w.fails(codeInvalidParameter, http.MethodPost, callsPath+"//"+action, `{"user":"bob"}`)
			w.fails(codeCallNotFound, http.MethodPost, "/other/calls/"+call["id"].(string)+"/"+action, `{"user":"bob"}`)
		}
		w.fails(codeNotFound, http.MethodPost, callPath(call)+"/hold", `{"user":"bob"}`)
		w.fails(codeCallNotFound, http.MethodGet, callsPath+"/x", "")
		w.fails(codeCallNotFound, http.MethodGet, "/other/calls/"+call["id"].(string), "")
		w.fails(codeUnknownParameter, http.MethodGet, callPath(call)+"?wait=1s", "")
		require.Equal(t, "ringing", w.get(callPath(call))["state"])
		for query, want := range map[string]code{
			"": codeInvalidUser, "?user=": codeInvalidUser, "?user=.": codeInvalidUser,
			"?user=alice&user=bob": codeInvalidParameter, "?user=alice&wait=51s": codeInvalidDuration,
			"?user=alice&wait=soon": codeInvalidDuration, "?user=alice&cursor=": codeInvalidCursor,
			"?user=alice&limit=1": codeUnknownParameter,
		} {
			w.fails(want, http.MethodGet, callsPath+query, "")
		}
	})
}

// appOf returns the content of a JSON string of n bytes, with its quotes.
func appOf(n int) string { return strings.Repeat("x", n-2) }

// TestCallApp: any JSON value can be stored, up to its limit. Spaces and needless escapes are lost.
func TestCallApp(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("[", 5000) + strings.Repeat("]", 5000)
	eachStore(t, func(t *testing.T, w *testServer) {
		for app, want := range map[string]string{
			`0`: `0`, `-1.50`: `-1.50`, `"a\u00e9é\n<>"`: `"aéé\n<>"`, `false`: `false`, `[]`: `[]`, `null`: `null`,
			"{ \"b\" : [ 1 ,\n{} ] , \"a\":null}":         `{"b":[1,{}],"a":null}`,
			`"` + appOf(1<<14) + `"`:                      `"` + appOf(1<<14) + `"`,
			"[" + strings.Repeat(" ", 10_000) + "1" + "]": `[1]`,
			deep:                      deep,
			`{"x":12345678901234567}`: `{"x":12345678901234567}`,
		} {
			r := w.send(http.MethodPost, callsPath, `{"from":"alice","to":"bob","app":`+app+`}`)
			require.Equal(t, http.StatusCreated, r.status, r.body)
			require.True(t, strings.HasSuffix(r.body, `,"app":`+want+"}\n"), "%.100s: %.300s", app, r.body)
			id := r.json(t)["id"].(string)
			read := w.send(http.MethodGet, callsPath+"/"+id, "")
			require.Equal(t, r.body, read.body)
			alive := w.send(http.MethodPost, callsPath+"/"+id+"/alive", `{"user":"bob","app":null}`)
			require.Equal(t, r.body, alive.body, "null leaves it")
			w.hangUp("alice")
		}
	})
}

// TestIdempotencyKey: a repeated request returns the call that the first one started, as it is now.
func TestIdempotencyKey(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, w *testServer) {
		const body = `{"from":"alice","to":"bob","device":"tab","app":{"a": 1}}`
		key := "Idempotency-Key: 5d3a c0ff ~!"
		call := w.call(body, key)
		require.Equal(t, call, w.call(` { "app" : {"a":1}, "to":"bob", "from":"alice","device":"tab"}`, key))
		for _, other := range []string{
			`{"from":"alice","to":"carol","device":"tab","app":{"a": 1}}`, `{"from":"alice","to":"bob","app":{"a": 1}}`,
			`{"from":"alice","to":"bob","device":"tab","app":{"a": 2}}`, `{"from":"alice","to":"bob","device":"tab"}`,
		} {
			w.fails(codeIdempotencyKeyReused, http.MethodPost, callsPath, other, key)
		}
		w.fails(codeCallerBusy, http.MethodPost, callsPath, body, "Idempotency-Key: 5d3a c0ff ~")
		w.fails(codeCallerBusy, http.MethodPost, callsPath, body)
		accepted := w.post(callPath(call)+"/accept", `{"user":"bob"}`)
		require.Equal(t, accepted, w.call(body, key))
		ended := w.post(callPath(call)+"/end", `{"user":"bob"}`)
		require.Equal(t, ended, w.call(body, key))
		require.Empty(t, w.get(callsPath + "?user=alice")["calls"])

		another := w.call(`{"from":"carol","to":"bob"}`, key)
		require.NotEqual(t, call["id"], another["id"], "keys of different users are different")
		for _, bad := range []string{"", "é", strings.Repeat("k", 256), "a\tb"} {
			w.fails(codeInvalidCall, http.MethodPost, callsPath, body, "Idempotency-Key: "+bad)
		}
		w.fails(codeInvalidCall, http.MethodPost, callsPath, body, "Idempotency-Key: a", "Idempotency-Key: b")
		w.hangUp("bob")
		w.call(body, "Idempotency-Key: "+strings.Repeat("k", 255))
	})
}

// TestIdempotencyKeyOfPresent: repeating a request returns its call, also if it would be refused now.
func TestIdempotencyKeyOfPresent(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, w *testServer) {
		const body, key = `{"from":"alice","to":"bob","if":"present"}`, "Idempotency-Key: k"
		w.fails(codeCalleeUnavailable, http.MethodPost, callsPath, body, key)
		w.post("/chat/users/bob/ping", "")
		call := w.call(body, key)
		w.post("/chat/users/bob/leave", "")
		require.Equal(t, call, w.call(body, key))
		w.fails(codeIdempotencyKeyReused, http.MethodPost, callsPath, `{"from":"alice","to":"bob"}`, key)
		w.fails(codeCalleeUnavailable, http.MethodPost, callsPath, body, key+"2")
	})
}

// TestTooManyCalls: a user cannot start more calls than are kept.
func TestTooManyCalls(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, w *testServer) {
		for range store.MaxCallsOfUser {
			call := w.call(`{"from":"alice","to":"bob"}`)
			w.post(callPath(call)+"/end", `{"user":"alice"}`)
		}
		r := w.send(http.MethodPost, callsPath, `{"from":"alice","to":"bob"}`)
		require.Equal(t, http.StatusTooManyRequests, r.status, r.body)
		require.Equal(t, string(codeTooManyCalls), r.json(t)["code"])
		require.Equal(t, tooManyCallsWait, r.header.Get("Retry-After"))
		w.call(`{"from":"bob","to":"alice"}`)
	})
}

// TestCallsOfTokens: a token speaks for its user, whom requests can omit, and who is told of other calls that they do
// not exist. Keys say for whom they act.
func TestCallsOfTokens(t *testing.T) {
	t.Parallel()
	authenticator, headers := callers(t)
	w := newAuthServer(t, fileStore(t), authenticator)
	send := func(caller, method, path, body string) testResponse {
		t.Helper()
		return w.send(method, path, body, headersOf(headers[caller])...)
	}
	refused := func(want code, caller, method, path, body string) {
		t.Helper()
		r := send(caller, method, path, body)
		require.Equal(t, string(want), r.json(t)["code"], r.body)
	}
	r := send("alice", http.MethodPost, callsPath, `{"to":"bob"}`)
	require.Equal(t, http.StatusCreated, r.status, r.body)
	call := r.json(t)
	require.Equal(t, "alice", call["from"])
	path := callPath(call)
	require.Equal(t, call["id"], send("bob", http.MethodGet, callsPath, "").json(t)["calls"].([]any)[0].(map[string]any)["id"])
	require.Equal(t, call, send("bob", http.MethodGet, path, "").json(t))
	require.Equal(t, call, send("all", http.MethodGet, path, "").json(t))
	accepted := send("bob", http.MethodPost, path+"/accept", "")
	require.Equal(t, http.StatusOK, accepted.status, accepted.body)
	require.Equal(t, "active", accepted.json(t)["state"])
	require.Equal(t, http.StatusOK, send("ping", http.MethodPost, path+"/end", `{"user":"bob"}`).status)

	refused(codeForbidden, "alice", http.MethodPost, callsPath, `{"from":"bob","to":"alice"}`)
	refused(codeInvalidCall, "alice", http.MethodPost, callsPath, `{"to":"alice"}`)
	refused(codeInvalidUser, "ping", http.MethodPost, callsPath, `{"to":"bob"}`)
	refused(codeInvalidUser, "ping", http.MethodPost, path+"/end", "")
	refused(codeInvalidUser, "all", http.MethodGet, callsPath, "")
	refused(codeForbidden, "read", http.MethodGet, path, "")
	refused(codeForbidden, "bob", http.MethodGet, callsPath+"?user=alice", "")
	refused(codeForbidden, "ping", http.MethodPost, callsPath, `{"from":"alice","to":"bob","if":"present"}`)

	w.ring("others", "carol", "dave")
	unknown := send("alice", http.MethodGet, callsPath+"/none", "")
	for _, request := range [][2]string{{http.MethodGet, ""}, {http.MethodPost, "/end"}, {http.MethodPost, "/accept"}} {
		r := send("alice", request[0], callsPath+"/others"+request[1], "")
		require.Equal(t, withoutID(t, unknown), withoutID(t, r))
	}
	require.Equal(t, http.StatusOK, send("all", http.MethodGet, callsPath+"/others", "").status)

	anonymous := w.send(http.MethodGet, "/public-x/calls?user=alice", "")
	require.Equal(t, http.StatusUnauthorized, anonymous.status, "what everyone can read has no calls")
	require.Equal(t, http.StatusForbidden, send("ping", http.MethodGet, "/public-x/calls?user=alice", "").status)
	require.Equal(t, http.StatusUnauthorized, w.send(http.MethodGet, "/public-x/calls/others", "").status)
}

// TestNoCalls: a namespace without calls says so.
func TestNoCalls(t *testing.T) {
	t.Parallel()
	w := newTestServer(t, &errStore{Store: fileStore(t), err: store.ErrNoCalls})
	w.fails(codeNoCalls, http.MethodPost, callsPath, `{"from":"alice","to":"bob"}`)
	w.fails(codeNoCalls, http.MethodGet, callsPath+"?user=alice", "")
	w.fails(codeNoCalls, http.MethodGet, callsPath+"/c1", "")
	for _, action := range lastseen.CallActions() {
		w.fails(codeNoCalls, http.MethodPost, fmt.Sprintf("%s/c1/%s", callsPath, action), `{"user":"alice"}`)
	}
}
