package presencetests

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api"
	"github.com/lastseen/lastseen/api/apitest"
	"github.com/lastseen/lastseen/api/apitest/kit"
	"github.com/lastseen/lastseen/api/problem"
)

// TestCall goes through a call: each response is the call as it is then, and so is what others read.
func TestCall(t *testing.T) {
	t.Parallel()
	apitest.EachStore(t, func(t *testing.T, w *apitest.Server) {
		call := w.Call(`{"from":"alice","to":"bób","device":"tab","app":{"offer": [1, "x"]}}`)
		require.Regexp(t, `^[A-Z2-7]{26}$`, call["id"])
		path := kit.CallPath(call)
		is := func(changed map[string]any) {
			t.Helper()
			for name, value := range changed {
				call[name] = value
			}
			got := w.Get(path)
			for name := range got {
				if strings.HasSuffix(name, "_at") && changed[name] == "some" {
					require.NotNil(t, got[name], name)
					call[name] = got[name]
				}
			}
			require.Equal(t, call, got)
			for _, user := range []string{"alice", "b%C3%B3b"} {
				calls := w.Get(kit.CallsPath + "?user=" + user)["calls"]
				if call["ended_at"] == nil {
					require.Equal(t, []any{call}, calls)
				} else {
					require.Empty(t, calls)
				}
			}
			require.Empty(t, w.Get(kit.CallsPath + "?user=carol")["calls"])
		}
		is(map[string]any{
			"from": "alice", "to": "bób", "state": "ringing", "from_device": "tab", "to_device": nil,
			"by": map[string]any{"user": "alice", "device": "tab"}, "app": map[string]any{"offer": []any{1., "x"}},
			"created_at": "some", "accepted_at": nil, "ended_at": nil, "expires_at": "some",
		})
		expires, created := parseTime(t, call["expires_at"]), parseTime(t, call["created_at"])
		require.Equal(t, api.DefaultRingTimeout, expires.Sub(created))

		w.Post(path+"/alive", `{"user":"alice","device":"tab","app":"candidate"}`)
		is(map[string]any{"app": "candidate"})
		accepted := w.Post(path+"/accept", `{"user":"bób","device":"phone","app":{"answer":0}}`)
		is(map[string]any{
			"state": "active", "to_device": "phone", "by": map[string]any{"user": "bób", "device": "phone"},
			"app": map[string]any{"answer": 0.}, "accepted_at": "some", "expires_at": "some",
		})
		require.Equal(t, call, accepted)
		require.Equal(t, "active", w.Post(path+"/accept", `{"user":"bób","device":"phone"}`)["state"], "again")

		for _, late := range []string{`{"user":"bób","device":"laptop"}`, `{"user":"bób"}`, `{"user":"alice"}`} {
			refused := w.Fails(problem.CallRefused, "POST", path+"/accept", late)
			is(map[string]any{"expires_at": "some"})
			require.Equal(t, call["state"], refused["call"].(map[string]any)["state"])
			require.Equal(t, "phone", refused["call"].(map[string]any)["to_device"])
		}
		w.Fails(problem.CallRefused, "POST", path+"/reject", `{"user":"bób"}`)
		w.Fails(problem.CallNotFound, "POST", path+"/end", `{"user":"carol"}`)

		ended := w.Post(path+"/end", `{"user":"alice"}`)
		is(map[string]any{
			"state": "ended", "by": map[string]any{"user": "alice", "device": nil}, "app": nil, "ended_at": "some",
			"expires_at": nil,
		})
		require.Equal(t, call, ended)
		for _, user := range []string{"alice", "bób"} {
			require.Equal(t, ended, w.Post(path+"/end", `{"user":"`+user+`"}`), "again")
		}
		refused := w.Fails(problem.CallRefused, "POST", path+"/alive", `{"user":"alice"}`)
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
	w := apitest.NewServer(t, kit.FileStore(t))
	for _, end := range []struct{ action, user, state string }{
		{"reject", "bob", "rejected"}, {"end", "bob", "rejected"}, {"end", "alice", "cancelled"},
	} {
		call := w.Call(`{"from":"alice","to":"bob"}`)
		if end.action == "reject" {
			refused := w.Fails(problem.CallRefused, "POST", kit.CallPath(call)+"/reject", `{"user":"alice"}`)
			require.Equal(t, "Only the callee can reject this call.", refused["detail"])
		}
		over := w.Post(kit.CallPath(call)+"/"+end.action, `{"user":"`+end.user+`","device":"tab"}`)
		require.Equal(t, end.state, over["state"])
		require.Equal(t, map[string]any{"user": end.user, "device": "tab"}, over["by"])
		refused := w.Fails(problem.CallRefused, "POST", kit.CallPath(call)+"/accept", `{"user":"bob"}`)
		require.Equal(t, over, refused["call"])
		require.Contains(t, refused["detail"], "it is "+end.state)
	}
	for state, settings := range map[string]func(*api.Settings){
		"missed": func(s *api.Settings) { s.RingTimeout = 50 * time.Millisecond },
		"lost":   func(s *api.Settings) { s.RingTimeout, s.Thresholds.Green = 0, 50*time.Millisecond },
	} {
		w.Reload(func(c *api.Config) { settings(&c.Settings) })
		call := w.Call(`{"from":"alice","to":"bob"}`)
		if state == "lost" {
			w.Post(kit.CallPath(call)+"/accept", `{"user":"bob"}`)
		}
		kit.Await(t, func() bool { return w.Get(kit.CallPath(call))["state"] == state })
		w.Fails(problem.CallRefused, "POST", kit.CallPath(call)+"/alive", `{"user":"bob"}`)
		w.Reload(func(c *api.Config) { c.Settings = apitest.Settings() })
	}
}

// TestCallsArePresent: with if, only users who are green or yellow can be called. Repeating a request returns its call.
func TestCallsArePresent(t *testing.T) {
	t.Parallel()
	w := apitest.NewServer(t, kit.FileStore(t))
	const call, key = `{"from":"alice","to":"bob","if":"present"}`, "Idempotency-Key: k"
	w.Fails(problem.CalleeUnavailable, "POST", kit.CallsPath, call)
	for age, there := range map[time.Duration]bool{0: true, 4 * time.Minute: true, 5 * time.Minute: false} {
		w.Store.Set(kit.Now)
		w.Post("/chat/users/bob/ping", "")
		w.Store.Set(kit.Now.Add(age))
		if !there {
			w.Fails(problem.CalleeUnavailable, "POST", kit.CallsPath, call)
			continue
		}
		w.Call(call)
		w.HangUp("alice")
	}
	w.Store.Set(kit.Now)
	begun := w.Call(call, key)
	w.Post("/chat/users/bob/leave", "")
	require.Equal(t, begun, w.Call(call, key))
	w.Fails(problem.IdempotencyKeyReused, "POST", kit.CallsPath, `{"from":"alice","to":"bob"}`, key)
	w.HangUp("alice")
	w.Fails(problem.CalleeUnavailable, "POST", kit.CallsPath, call)
	w.Call(`{"from":"alice","to":"bob"}`)
}

// TestCallErrors checks what is refused, and that no call was started then.
func TestCallErrors(t *testing.T) {
	t.Parallel()
	w := apitest.NewServer(t, kit.FileStore(t))
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
			`{"from":"alice","to":"alice"}`, both + `,"if":"online"}`, both + `,"app":"` + kit.AppOf(1<<14+1) + `"}`,
		},
		problem.InvalidDevice: {both + `,"device":"` + long + `"}`, both + `,"device":"a\nb"}`},
		problem.UnknownField:  {both + `,"user":"alice"}`, both + `,"id":"c1"}`},
		problem.BodyTooLarge:  {both + strings.Repeat(" ", 1<<15) + `}`},
	} {
		for _, body := range bodies {
			w.Fails(want, "POST", kit.CallsPath, body)
		}
	}
	w.Fails(problem.UnsupportedMediaType, "POST", kit.CallsPath, both+`}`, "Content-Type: text/xml")
	w.Fails(problem.UnknownParameter, "POST", kit.CallsPath+"?if=present", both+`}`)
	w.Fails(problem.InvalidNamespace, "POST", "/.chat/calls", both+`}`)
	require.Empty(t, w.Get(kit.CallsPath + "?user=alice")["calls"], "nothing had an effect")

	call := w.Call(both + `}`)
	for _, action := range []string{"accept", "reject", "end", "alive"} {
		for body, want := range map[string]problem.Code{
			"": problem.InvalidUser, "{}": problem.InvalidUser, "[]": problem.InvalidJSON, `{"user":"."}`: problem.InvalidUser,
			`{"user":"carol"}`: problem.CallNotFound, `{"user":"Bob"}`: problem.CallNotFound,
			`{"user":"bob","device":"` + long + `"}`: problem.InvalidDevice, `{"user":"bob","from":"bob"}`: problem.UnknownField,
			`{"user":"bob"` + strings.Repeat(" ", 1<<15) + `}`: problem.BodyTooLarge,
		} {
			w.Fails(want, "POST", kit.CallPath(call)+"/"+action, body)
		}
		app, want := `"`+kit.AppOf(1<<14+1)+`"`, problem.InvalidCall
		if action == "reject" || action == "end" {
			app, want = `null`, problem.UnknownField
		}
		w.Fails(want, "POST", kit.CallPath(call)+"/"+action, `{"user":"bob","app":`+app+`}`)
		for _, id := range []string{"x", "a%20b", "%00", strings.Repeat("x", 65), "%2e%2e", "a%2Fb", "é"} {
			w.Fails(problem.CallNotFound, "POST", kit.CallsPath+"/"+id+"/"+action, `{"user":"bob"}`)
		}
		w.Fails(problem.InvalidParameter, "POST", kit.CallsPath+"//"+action, `{"user":"bob"}`)
		w.Fails(problem.CallNotFound, "POST", "/other/calls/"+call["id"].(string)+"/"+action, `{"user":"bob"}`)
	}
	w.Fails(problem.NotFound, "POST", kit.CallPath(call)+"/hold", `{"user":"bob"}`)
	w.Fails(problem.CallNotFound, "GET", kit.CallsPath+"/x", "")
	w.Fails(problem.CallNotFound, "GET", "/other/calls/"+call["id"].(string), "")
	w.Fails(problem.UnknownParameter, "GET", kit.CallPath(call)+"?wait=1s", "")
	require.Equal(t, "ringing", w.Get(kit.CallPath(call))["state"])
	for query, want := range map[string]problem.Code{
		"": problem.InvalidUser, "?user=": problem.InvalidUser, "?user=.": problem.InvalidUser,
		"?user=alice&user=bob": problem.InvalidParameter, "?user=alice&wait=51s": problem.InvalidDuration,
		"?user=alice&wait=soon": problem.InvalidDuration, "?user=alice&cursor=": problem.InvalidCursor,
		"?user=alice&limit=1": problem.UnknownParameter,
	} {
		w.Fails(want, "GET", kit.CallsPath+query, "")
	}
}

// TestCallApp: any JSON value can be stored, up to its limit. Spaces and needless escapes are lost.
func TestCallApp(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("[", lastseen.MaxDepth-1) + strings.Repeat("]", lastseen.MaxDepth-1)
	apitest.EachStore(t, func(t *testing.T, w *apitest.Server) {
		for app, want := range map[string]string{
			`0`: `0`, `-1.50`: `-1.50`, `"a\u00e9é\n<>"`: `"aéé\n<>"`, `false`: `false`, `[]`: `[]`, `null`: `null`,
			"{ \"b\" : [ 1 ,\n{} ] , \"a\":null}": `{"b":[1,{}],"a":null}`,
			`{"x":12345678901234567}`:             `{"x":12345678901234567}`,
			`"` + kit.AppOf(1<<14) + `"`:          `"` + kit.AppOf(1<<14) + `"`, "[" + strings.Repeat(" ", 10_000) + "1" + "]": `[1]`,
			deep: deep,
		} {
			r := w.Send("POST", kit.CallsPath, `{"from":"alice","to":"bob","app":`+app+`}`).Is(t, http.StatusCreated)
			require.True(t, strings.HasSuffix(r.Body, `,"app":`+want+"}\n"), "%.100s: %.300s", app, r.Body)
			id := r.JSON(t)["id"].(string)
			require.Equal(t, r.Body, w.Send("GET", kit.CallsPath+"/"+id, "").Body)
			alive := w.Send("POST", kit.CallsPath+"/"+id+"/alive", `{"user":"bob","app":null}`)
			require.Equal(t, r.Body, alive.Body, "null leaves it")
			w.HangUp("alice")
		}
	})
}

// TestIdempotencyKey: a repeated request returns the call that the first one started, as it is now.
func TestIdempotencyKey(t *testing.T) {
	t.Parallel()
	w := apitest.NewServer(t, kit.FileStore(t))
	const body = `{"from":"alice","to":"bob","device":"tab","app":{"a": 1}}`
	key := "Idempotency-Key: 5d3a c0ff ~!"
	call := w.Call(body, key)
	require.Equal(t, call, w.Call(` { "app" : {"a":1}, "to":"bob", "from":"alice","device":"tab"}`, key))
	for _, other := range []string{
		`{"from":"alice","to":"carol","device":"tab","app":{"a": 1}}`, `{"from":"alice","to":"bob","app":{"a": 1}}`,
		`{"from":"alice","to":"bob","device":"tab","app":{"a": 2}}`, `{"from":"alice","to":"bob","device":"tab"}`,
	} {
		w.Fails(problem.IdempotencyKeyReused, "POST", kit.CallsPath, other, key)
	}
	w.Fails(problem.CallerBusy, "POST", kit.CallsPath, body, "Idempotency-Key: 5d3a c0ff ~")
	w.Fails(problem.CallerBusy, "POST", kit.CallsPath, body)
	accepted := w.Post(kit.CallPath(call)+"/accept", `{"user":"bob"}`)
	require.Equal(t, accepted, w.Call(body, key))
	ended := w.Post(kit.CallPath(call)+"/end", `{"user":"bob"}`)
	require.Equal(t, ended, w.Call(body, key))
	require.Empty(t, w.Get(kit.CallsPath + "?user=alice")["calls"])

	another := w.Call(`{"from":"carol","to":"bob"}`, key)
	require.NotEqual(t, call["id"], another["id"], "keys of different users are different")
	for _, bad := range []string{"", "é", strings.Repeat("k", 256), "a\tb"} {
		w.Fails(problem.InvalidCall, "POST", kit.CallsPath, body, "Idempotency-Key: "+bad)
	}
	w.Fails(problem.InvalidCall, "POST", kit.CallsPath, body, "Idempotency-Key: a", "Idempotency-Key: b")
	w.HangUp("bob")
	w.Call(body, "Idempotency-Key: "+strings.Repeat("k", 255))
}

// TestCallsOfTokens: a token speaks for its user, whom requests can omit, and who is told of other calls that they do
// not exist. Keys say for whom they act. See also TestPermissions.
func TestCallsOfTokens(t *testing.T) {
	t.Parallel()
	w, headers := apitest.NewGuardedServer(t)
	send := func(caller, method, path, body string, status int) map[string]any {
		t.Helper()
		return w.Send(method, path, body, kit.HeadersOf(headers[caller])...).Is(t, status).JSON(t)
	}
	call := send("alice", "POST", kit.CallsPath, `{"to":"bob"}`, http.StatusCreated)
	require.Equal(t, "alice", call["from"])
	path := kit.CallPath(call)
	require.Equal(t, call["id"], kit.FirstOf(send("bob", "GET", kit.CallsPath, "", http.StatusOK), "calls")["id"])
	require.Equal(t, call, send("bob", "GET", path, "", http.StatusOK))
	require.Equal(t, call, send("all", "GET", path, "", http.StatusOK))
	require.Equal(t, "active", send("bob", "POST", path+"/accept", "", http.StatusOK)["state"])
	send("ping", "POST", path+"/end", `{"user":"bob"}`, http.StatusOK)
	for _, bad := range []struct {
		want                       problem.Code
		caller, method, path, body string
	}{
		{problem.Forbidden, "alice", "POST", kit.CallsPath, `{"from":"bob","to":"alice"}`},
		{problem.InvalidCall, "alice", "POST", kit.CallsPath, `{"to":"alice"}`},
		{problem.InvalidUser, "ping", "POST", kit.CallsPath, `{"to":"bob"}`},
		{problem.InvalidUser, "ping", "POST", path + "/end", ""},
		{problem.InvalidUser, "all", "GET", kit.CallsPath, ""},
		{problem.Forbidden, "ping", "POST", kit.CallsPath, `{"from":"alice","to":"bob","if":"present"}`},
		// what everyone can read has no calls
		{problem.Unauthenticated, "nobody", "GET", "/public-x/calls?user=alice", ""},
		{problem.Forbidden, "ping", "GET", "/public-x/calls?user=alice", ""},
		{problem.Unauthenticated, "nobody", "GET", "/public-x/calls/others", ""},
	} {
		w.Fails(bad.want, bad.method, bad.path, bad.body, kit.HeadersOf(headers[bad.caller])...)
	}
	w.Ring("others", "carol", "dave")
	get := func(method, path string) kit.Response {
		return w.Send(method, path, "", kit.BearerOf(headers["alice"]))
	}
	unknown := kit.WithoutID(t, get("GET", kit.CallsPath+"/none"))
	require.Equal(t, unknown, kit.WithoutID(t, get("GET", kit.CallsPath+"/others")))
	for _, action := range []string{"/end", "/accept"} {
		require.Equal(t, unknown, kit.WithoutID(t, get("POST", kit.CallsPath+"/others"+action)))
	}
	send("all", "GET", kit.CallsPath+"/others", "", http.StatusOK)
}
