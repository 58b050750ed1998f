package api

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/store"
)

// states returns the states of the calls in a response.
func states(response map[string]any) []string { return each(response, "calls", "state") }

// TestCallsPoll: a poll waits until the call of the user is another than the client knows, and no longer.
func TestCallsPoll(t *testing.T) {
	withWaiting(t, func(t *testing.T, w *waitServer) {
		defer w.run(w.config.Shared.Listen)()
		first := w.do("GET", "/calls?user=bob&wait=50s", "")
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
			made := w.do("POST", "/calls"+path, body)
			if path == "" {
				call = made
			}
			var took time.Duration
			last, took = p.end()
			require.Less(t, took-changed.Sub(p.began), time.Second)
			require.Equal(t, want, states(last))
			require.Equal(t, call["id"], firstOf(last, "calls")["id"])
			require.EqualValues(t, 0, last["poll_after_ms"])
		}
		step("", `{"from":"alice","to":"bob"}`, "ringing")
		id := "/" + call["id"].(string)
		step(id+"/alive", `{"user":"alice","app":{"candidate":1}}`, "ringing")
		step(id+"/accept", `{"user":"bob"}`, "active")

		p := w.poll("bob", last)
		for range 4 { // which change nothing
			time.Sleep(10 * time.Second)
			w.do("POST", "/calls"+id+"/alive", `{"user":"alice"}`)
			w.do("POST", "/calls"+id+"/alive", `{"user":"bob","app":{"candidate":1}}`)
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
		gone := w.send("DELETE", "/users/alice") //nolint:bodyclose // the test's end does it
		require.Equal(t, http.StatusNoContent, gone.StatusCode)
		deleted, took := p.end()
		require.Less(t, took, 2*time.Second)
		require.Empty(t, deleted["calls"])
	})
}

// TestCallsPollAcrossCalls: a call that ended between two polls is in the next response, before the one that began.
func TestCallsPollAcrossCalls(t *testing.T) {
	withWaiting(t, func(t *testing.T, w *waitServer) {
		first := w.do("POST", "/calls", `{"from":"alice","to":"bob"}`)
		known := w.do("GET", "/calls?user=alice", "")
		require.Equal(t, []string{"ringing"}, states(known))
		w.do("POST", "/calls/"+first["id"].(string)+"/reject", `{"user":"bob"}`)
		// Without a keeper the clock of calls stops after 10 seconds.
		w.reload(func(c *Config) { c.Settings.RingTimeout = 8 * time.Second })
		second := w.do("POST", "/calls", `{"from":"carol","to":"alice"}`)
		next := w.do("GET", callsQuery("alice", known), "")
		require.Equal(t, []string{"rejected", "ringing"}, states(next))
		require.Equal(t, second["id"], next["calls"].([]any)[1].(map[string]any)["id"])

		// Nobody ends the second call: its time does, for who reads it.
		missed, took := w.poll("alice", next).end()
		require.Equal(t, []string{"missed"}, states(missed))
		require.InDelta(t, 8+2.5, took.Seconds(), 3)

		// A cursor that is older than what is kept.
		old := callPlace{"gone", 1}.cursor("chat", "alice")
		require.Empty(t, w.do("GET", "/calls?user=alice&cursor="+old, "")["calls"])
		// A client can make a cursor of a call of others.
		others := w.do("POST", "/calls", `{"from":"dave","to":"erin"}`)["id"].(string)
		w.do("POST", "/calls/"+others+"/end", `{"user":"dave"}`)
		forged := w.do("GET", "/calls?user=alice&cursor="+callPlace{others, 1}.cursor("chat", "alice"), "")
		require.Empty(t, forged["calls"])
	})
}

// TestCallsPollWithoutSignals: a poll that no signal wakes looks again every few seconds.
func TestCallsPollWithoutSignals(t *testing.T) {
	withWaiting(t, func(t *testing.T, w *waitServer) {
		p := w.poll("bob", w.do("GET", "/calls?user=bob", ""))
		time.Sleep(12 * time.Second)
		w.do("POST", "/calls", `{"from":"alice","to":"bob"}`)
		found, took := p.end()
		require.Equal(t, []string{"ringing"}, states(found))
		require.LessOrEqual(t, took, 12*time.Second+callsPause)
	})
}

// TestCallsPollEnds: a poll ends with its key, and when the server stops.
func TestCallsPollEnds(t *testing.T) {
	withWaiting(t, func(t *testing.T, w *waitServer) {
		service, key := newKey("service", "*", auth.Ping, auth.Read)
		w.authenticate(auth.Config{Keys: []auth.Key{service}})
		first := w.do("GET", "/calls?user=bob", "", bearer(key))
		p := w.poll("bob", first, bearer(key))
		time.Sleep(3 * time.Second)
		stays, removed := service, service
		stays.Namespaces = []auth.Pattern{"chat"}
		w.authenticate(auth.Config{Keys: []auth.Key{stays}})
		time.Sleep(3 * time.Second)
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
		require.Empty(t, w.config.Shared.userStates.users)
	})
}

// TestCallsCursor: a cursor continues the calls of a user, and nothing else.
func TestCallsCursor(t *testing.T) {
	t.Parallel()
	w := newTestServer(t, fileStore(t))
	w.ring("c1", "alice", "bob")
	cursor := cursorOf(w.get(callsPath + "?user=alice"))
	refused := []string{
		callsPath + "?user=bob&cursor=" + cursor, "/other/calls?user=alice&cursor=" + cursor,
		"/chat/changes?user=alice&cursor=" + cursor, "/chat/users?cursor=" + cursor,
	}
	for i := range cursor {
		refused = append(refused, callsPath+"?user=alice&cursor="+cursor[:i])
	}
	for _, content := range []string{"", "\x80", "\x02 ", "\x02../x", "\x02" + strings.Repeat("x", 65)} {
		refused = append(refused, callsPath+"?user=alice&cursor="+sealCursor(callsList("chat", "alice"),
			[]byte(content)))
	}
	for _, path := range refused {
		w.fails(problem.InvalidCursor, "GET", path, "")
	}
	w.send("HEAD", callsPath+"?user=alice&wait=50s&cursor="+cursor, "").is(t, http.StatusOK, "and it does not wait")
}

// TestCallsPollOnTwoServers: a step on one server wakes a poll on another.
func TestCallsPollOnTwoServers(t *testing.T) {
	t.Parallel()
	eachPair(t, func(t *testing.T, one, two *testServer) {
		poll := func(after map[string]any) <-chan testResponse {
			polled := two.later("GET", "/chat"+callsQuery("bob", after), "")
			states := two.config.Shared.userStates
			awaitLocked(t, &states.mu, func() bool { return len(states.users) == 1 })
			return polled
		}
		polled := poll(two.get(callsPath + "?user=bob"))
		call := one.call(`{"from":"alice","to":"bob","app":"offer"}`)
		rung := (<-polled).json(t)
		require.Equal(t, []any{call}, rung["calls"])
		polled = poll(rung)
		accepted := one.post(callPath(call)+"/accept", `{"user":"bob"}`)
		active := (<-polled).json(t)
		require.Equal(t, []any{accepted}, active["calls"])
		polled = poll(active)
		ended := one.post(callPath(call)+"/end", `{"user":"alice"}`)
		require.Equal(t, []any{ended}, (<-polled).json(t)["calls"])
	})
}

// TestUnknownOutcomesAreSignalled: a write whose outcome is unknown may be done, so servers look again. One that was
// refused, or that changes nothing, has them do nothing.
func TestUnknownOutcomesAreSignalled(t *testing.T) {
	t.Parallel()
	var sent []string
	var silence error // which the store returns after it has done what it is asked to
	w, headers := newVisibleServer(t, &hookedStore{Store: fileStore(t), after: func(call string) error {
		if signal, ok := strings.CutPrefix(call, "Signal "); ok {
			sent = append(sent, signal)
			return nil
		}
		if slices.Contains([]string{"SetContacts", "ChangeContacts", "Forget", "DeleteNamespace", "SetAvailability"},
			call) {
			return silence
		}
		return nil
	}})
	user := "/chat/users/bob"
	for _, request := range []struct {
		method, path, body string
		signals            []string
	}{
		{"PUT", user + "/contacts", `{"users":["alice"]}`, []string{"contacts bob"}},
		{"PATCH", user + "/contacts", `{"remove":["alice"]}`, []string{"contacts bob"}},
		{"DELETE", user + "/contacts", "", []string{"contacts bob"}},
		{"DELETE", user, "", []string{"deleted bob", "contacts bob"}},
		{"PUT", user + "/availability", `{"availability":"busy"}`, []string{"self bob"}},
		{"DELETE", "/chat?confirm=chat", "", []string{"self", "contacts"}},
	} {
		for _, err := range []error{nil, fmt.Errorf("%w: silence", store.ErrUnavailable), store.ErrNamespaceLimit} {
			silence, sent = err, nil
			r := w.send(request.method, request.path, request.body, headersOf(headers["all"])...)
			require.Equal(t, err == nil, r.status < 300, r.body)
			want := request.signals
			if errors.Is(err, store.ErrNamespaceLimit) {
				want = nil
			}
			require.Equal(t, want, sent, "%s %s: %v", request.method, request.path, err)
		}
	}
	silence, sent = nil, nil
	w.send("PATCH", user+"/contacts", `{}`, headersOf(headers["all"])...).is(t, http.StatusNoContent)
	require.Empty(t, sent)
}
