package api

import (
	"bufio"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api/auth"
)

// do sends a request with a body that does not wait, and returns the response.
func (w *waitServer) do(method, path, body string, headers ...string) map[string]any {
	w.t.Helper()
	r := httptest.NewRequest(method, "http://localhost/v1/namespaces/chat"+path, strings.NewReader(body))
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		r.Header.Set(name, value)
	}
	recorder := httptest.NewRecorder()
	(*w.handler.Load()).ServeHTTP(recorder, r)
	require.Less(w.t, recorder.Code, 300, recorder.Body)
	return testResponse{body: recorder.Body.String()}.json(w.t)
}

// callsQuery returns the path of the next poll after a response.
func callsQuery(user string, after map[string]any) string {
	return "/calls?user=" + user + "&wait=50s&cursor=" + url.QueryEscape(cursorOf(after))
}

// pendingPoll is a poll that waits.
type pendingPoll struct {
	t     *testing.T
	conn  net.Conn
	began time.Time
}

// poll begins to wait for the calls of a user after a response.
func (w *waitServer) poll(user string, after map[string]any, headers ...string) pendingPoll {
	w.t.Helper()
	return pendingPoll{w.t, w.request(http.MethodGet, callsQuery(user, after), headers...), time.Now()}
}

// end returns the response, and how long the poll took.
func (p pendingPoll) end() (map[string]any, time.Duration) {
	p.t.Helper()
	response, err := http.ReadResponse(bufio.NewReader(p.conn), nil)
	require.NoError(p.t, err)
	took := time.Since(p.began)
	var b strings.Builder
	_, err = bufio.NewReader(response.Body).WriteTo(&b)
	require.NoError(p.t, err)
	require.NoError(p.t, response.Body.Close())
	require.NoError(p.t, p.conn.Close())
	body := testResponse{body: b.String()}.json(p.t)
	body["status"] = response.StatusCode
	body["connection"] = response.Header.Get("Connection") + map[bool]string{true: "close"}[response.Close]
	return body, took
}

// states returns the states of the calls in a response.
func states(response map[string]any) []string {
	found := []string{}
	for _, call := range response["calls"].([]any) {
		found = append(found, call.(map[string]any)["state"].(string))
	}
	return found
}

// TestCallsPoll: a poll waits until the call of the user is another than the client knows, and no longer.
func TestCallsPoll(t *testing.T) {
	withWaiting(t, func(t *testing.T, w *waitServer) {
		defer w.run(w.config.Shared.Listen)()
		first := w.do(http.MethodGet, "/calls?user=bob&wait=50s", "")
		require.Empty(t, first["calls"], "without a cursor it does not wait")
		none, took := w.poll("bob", first).end()
		require.InDelta(t, 50, took.Seconds(), 0.5)
		require.Empty(t, none["calls"])
		require.Equal(t, cursorOf(first), cursorOf(none))

		last := none
		var call map[string]any
		step := func(path, body string, want ...string) {
			t.Helper()
			p := w.poll("bob", last)
			time.Sleep(7 * time.Second)
			changed := time.Now()
			made := w.do(http.MethodPost, "/calls"+path, body)
			if path == "" {
				call = made
			}
			var took time.Duration
			last, took = p.end()
			require.Less(t, took-changed.Sub(p.began), time.Second)
			require.Equal(t, want, states(last))
			require.Equal(t, call["id"], last["calls"].([]any)[0].(map[string]any)["id"])
			require.EqualValues(t, 0, last["poll_after_ms"])
		}
		step("", `{"from":"alice","to":"bob"}`, "ringing")
		id := "/" + call["id"].(string)
		step(id+"/alive", `{"user":"alice","app":{"candidate":1}}`, "ringing")
		step(id+"/accept", `{"user":"bob"}`, "active")

		p := w.poll("bob", last)
		for range 4 { // which change nothing
			time.Sleep(10 * time.Second)
			w.do(http.MethodPost, "/calls"+id+"/alive", `{"user":"alice"}`)
			w.do(http.MethodPost, "/calls"+id+"/alive", `{"user":"bob","app":{"candidate":1}}`)
		}
		same, took := p.end()
		require.InDelta(t, 50, took.Seconds(), 0.5)
		require.Equal(t, []string{"active"}, states(same), "what goes on is in each response")
		last = same

		step(id+"/end", `{"user":"alice"}`, "ended")
		over, took := w.poll("bob", last).end()
		require.InDelta(t, 50, took.Seconds(), 0.5)
		require.Empty(t, over["calls"], "once")

		last = over
		step("", `{"from":"alice","to":"bob"}`, "ringing")
		p = w.poll("bob", last)
		time.Sleep(time.Second)
		gone := w.send(http.MethodDelete, "/users/alice") //nolint:bodyclose // the test's end does it
		require.Equal(t, http.StatusNoContent, gone.StatusCode)
		deleted, took := p.end()
		require.Less(t, took, 2*time.Second)
		require.Empty(t, deleted["calls"])
	})
}

// TestCallsPollAcrossCalls: a call that ended between two polls is in the next response, before the one that began.
func TestCallsPollAcrossCalls(t *testing.T) {
	withWaiting(t, func(t *testing.T, w *waitServer) {
		first := w.do(http.MethodPost, "/calls", `{"from":"alice","to":"bob"}`)
		known := w.do(http.MethodGet, "/calls?user=alice", "")
		require.Equal(t, []string{"ringing"}, states(known))
		w.do(http.MethodPost, "/calls/"+first["id"].(string)+"/reject", `{"user":"bob"}`)
		// Without a keeper the clock of calls stops after 10 seconds.
		w.reload(func(c *Config) { c.Settings.RingTimeout = 8 * time.Second })
		second := w.do(http.MethodPost, "/calls", `{"from":"carol","to":"alice"}`)
		next := w.do(http.MethodGet, callsQuery("alice", known), "")
		require.Equal(t, []string{"rejected", "ringing"}, states(next))
		require.Equal(t, second["id"], next["calls"].([]any)[1].(map[string]any)["id"])

		// Nobody ends the second call: its time does, for who reads it.
		missed, took := w.poll("alice", next).end()
		require.Equal(t, []string{"missed"}, states(missed))
		require.InDelta(t, 8+2.5, took.Seconds(), 3)

		// A cursor that is older than what is kept.
		old := callPlace{"gone", 1}.cursor("chat", "alice")
		require.Empty(t, w.do(http.MethodGet, "/calls?user=alice&cursor="+old, "")["calls"])
		// A client can make a cursor of a call of others.
		others := w.do(http.MethodPost, "/calls", `{"from":"dave","to":"erin"}`)["id"].(string)
		w.do(http.MethodPost, "/calls/"+others+"/end", `{"user":"dave"}`)
		forged := w.do(http.MethodGet, "/calls?user=alice&cursor="+callPlace{others, 1}.cursor("chat", "alice"), "")
		require.Empty(t, forged["calls"])
	})
}

// TestCallsPollWithoutSignals: a poll that no signal wakes looks again every few seconds.
func TestCallsPollWithoutSignals(t *testing.T) {
	withWaiting(t, func(t *testing.T, w *waitServer) {
		p := w.poll("bob", w.do(http.MethodGet, "/calls?user=bob", ""))
		time.Sleep(12 * time.Second)
		w.do(http.MethodPost, "/calls", `{"from":"alice","to":"bob"}`)
		found, took := p.end()
		require.Equal(t, []string{"ringing"}, states(found))
		require.LessOrEqual(t, took, 12*time.Second+callsPause)
	})
}

// TestCallsPollEnds: a poll ends with its key, and when the server stops.
func TestCallsPollEnds(t *testing.T) {
	withWaiting(t, func(t *testing.T, w *waitServer) {
		key, hash := auth.NewKey()
		service := auth.Key{
			Name: "service", Hash: hash, Scopes: []auth.Scope{auth.Ping, auth.Read}, Namespaces: []auth.Pattern{"*"},
		}
		w.authenticate(auth.Config{Keys: []auth.Key{service}})
		first := w.do(http.MethodGet, "/calls?user=bob", "", bearer(key))
		p := w.poll("bob", first, bearer(key))
		time.Sleep(3 * time.Second)
		stays := service
		stays.Namespaces = []auth.Pattern{"chat"}
		w.authenticate(auth.Config{Keys: []auth.Key{stays}})
		time.Sleep(3 * time.Second)
		removed := service
		_, removed.Hash = auth.NewKey()
		w.authenticate(auth.Config{Keys: []auth.Key{removed}})
		refused, took := p.end()
		require.Equal(t, http.StatusUnauthorized, refused["status"])
		require.InDelta(t, 6, took.Seconds(), 0.5)

		w.authenticate(auth.Config{Keys: []auth.Key{service}})
		p = w.poll("bob", first, bearer(key))
		time.Sleep(3 * time.Second)
		w.config.Shared.Drain()
		last, took := p.end()
		require.Equal(t, http.StatusOK, last["status"])
		require.Contains(t, last["connection"], "close")
		require.InDelta(t, 3, took.Seconds(), 0.5)
		require.Positive(t, last["poll_after_ms"], "the next request is for another server")
		require.Empty(t, w.config.Shared.callWaits.waits)
	})
}

// TestCallsCursor: a cursor continues the calls of a user, and nothing else.
func TestCallsCursor(t *testing.T) {
	t.Parallel()
	w := newTestServer(t, fileStore(t))
	w.ring("c1", "alice", "bob")
	cursor := cursorOf(w.get(callsPath + "?user=alice"))
	for _, path := range []string{
		callsPath + "?user=bob", "/other/calls?user=alice", "/chat/changes?user=alice", "/chat/users?_=1",
	} {
		w.fails(codeInvalidCursor, http.MethodGet, path+"&cursor="+cursor, "")
	}
	for i := range cursor {
		w.fails(codeInvalidCursor, http.MethodGet, callsPath+"?user=alice&cursor="+cursor[:i], "")
	}
	for _, content := range []string{"", "\x80", "\x02 ", "\x02../x", "\x02" + strings.Repeat("x", 65)} {
		forged := sealCursor(callsList("chat", "alice"), []byte(content))
		w.fails(codeInvalidCursor, http.MethodGet, callsPath+"?user=alice&cursor="+forged, "")
	}
	head := w.send(http.MethodHead, callsPath+"?user=alice&wait=50s&cursor="+cursor, "")
	require.Equal(t, http.StatusOK, head.status, "and it does not wait")
}

// TestCallsPollOnTwoServers: a step on one server wakes a poll on another.
func TestCallsPollOnTwoServers(t *testing.T) {
	t.Parallel()
	eachPair(t, func(t *testing.T, one, two *testServer) {
		polled := make(chan testResponse, 1)
		poll := func(after map[string]any) {
			go func() { polled <- two.send(http.MethodGet, "/chat"+callsQuery("bob", after), "") }()
			require.Eventually(t, func() bool {
				two.config.Shared.callWaits.mu.Lock()
				defer two.config.Shared.callWaits.mu.Unlock()
				return len(two.config.Shared.callWaits.waits) == 1
			}, eventually, tick)
		}
		poll(two.get(callsPath + "?user=bob"))
		call := one.call(`{"from":"alice","to":"bob","app":"offer"}`)
		rung := (<-polled).json(t)
		require.Equal(t, []any{call}, rung["calls"])
		poll(rung)
		accepted := one.post(callPath(call)+"/accept", `{"user":"bob"}`)
		active := (<-polled).json(t)
		require.Equal(t, []any{accepted}, active["calls"])
		poll(active)
		ended := one.post(callPath(call)+"/end", `{"user":"alice"}`)
		require.Equal(t, []any{ended}, (<-polled).json(t)["calls"])
	})
}
