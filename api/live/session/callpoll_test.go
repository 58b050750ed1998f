package session_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api"
	"github.com/lastseen/lastseen/api/apitest"
	"github.com/lastseen/lastseen/api/apitest/kit"
	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/api/problem"
	"github.com/lastseen/lastseen/store"
)

func states(response map[string]any) []string { return kit.Each(response, "calls", "state") }

// TestCallsPoll: a poll waits until the call of the user is another than the client knows, and no longer.
func TestCallsPoll(t *testing.T) {
	apitest.InBubble(t, func(t *testing.T, w *apitest.BubbleServer) {
		defer w.Run(w.Config.Shared.Listen)()
		first := w.Do("GET", "/calls?user=bob&wait=50s", "")
		require.Empty(t, first["calls"], "without a cursor it does not wait")
		none, took := w.Poll("bob", first).End()
		require.InDelta(t, 50, took.Seconds(), 0.5)
		require.Empty(t, none["calls"])
		require.Equal(t, kit.CursorOf(first), kit.CursorOf(none))

		last := none
		var call map[string]any
		step := func(path, body string, want ...string) {
			t.Helper()
			p := w.Poll("bob", last)
			time.Sleep(7 * time.Second)
			changed := time.Now()
			made := w.Do("POST", "/calls"+path, body)
			if path == "" {
				call = made
			}
			var took time.Duration
			last, took = p.End()
			require.Less(t, took-changed.Sub(p.Began), time.Second)
			require.Equal(t, want, states(last))
			require.Equal(t, call["id"], kit.FirstOf(last, "calls")["id"])
			require.EqualValues(t, 0, last["poll_after_ms"])
		}
		step("", `{"from":"alice","to":"bob"}`, "ringing")
		id := "/" + call["id"].(string)
		step(id+"/alive", `{"user":"alice","app":{"candidate":1}}`, "ringing")
		step(id+"/accept", `{"user":"bob"}`, "active")

		p := w.Poll("bob", last)
		for range 4 { // which change nothing
			time.Sleep(10 * time.Second)
			w.Do("POST", "/calls"+id+"/alive", `{"user":"alice"}`)
			w.Do("POST", "/calls"+id+"/alive", `{"user":"bob","app":{"candidate":1}}`)
		}
		same, took := p.End()
		require.InDelta(t, 50, took.Seconds(), 0.5)
		require.Equal(t, []string{"active"}, states(same), "what goes on is in each response")
		last = same

		step(id+"/end", `{"user":"alice"}`, "ended")
		over, took := w.Poll("bob", last).End()
		require.InDelta(t, 50, took.Seconds(), 0.5)
		require.Empty(t, over["calls"], "once")

		last = over
		step("", `{"from":"alice","to":"bob"}`, "ringing")
		p = w.Poll("bob", last)
		time.Sleep(time.Second)
		gone := w.Send("DELETE", "/users/alice") //nolint:bodyclose // the test's end does it
		require.Equal(t, http.StatusNoContent, gone.StatusCode)
		deleted, took := p.End()
		require.Less(t, took, 2*time.Second)
		require.Empty(t, deleted["calls"])
	})
}

// TestCallsPollAcrossCalls: a call that ended between two polls is in the next response, before the one that began.
func TestCallsPollAcrossCalls(t *testing.T) {
	apitest.InBubble(t, func(t *testing.T, w *apitest.BubbleServer) {
		first := w.Do("POST", "/calls", `{"from":"alice","to":"bob"}`)
		known := w.Do("GET", "/calls?user=alice", "")
		require.Equal(t, []string{"ringing"}, states(known))
		w.Do("POST", "/calls/"+first["id"].(string)+"/reject", `{"user":"bob"}`)
		// Without a manager the clock of calls stops after 10 seconds.
		w.Reload(func(c *api.Config) { c.Settings.RingTimeout = 8 * time.Second })
		second := w.Do("POST", "/calls", `{"from":"carol","to":"alice"}`)
		next := w.Do("GET", kit.CallsQuery("alice", known), "")
		require.Equal(t, []string{"rejected", "ringing"}, states(next))
		require.Equal(t, second["id"], next["calls"].([]any)[1].(map[string]any)["id"])

		// Nobody ends the second call: its time does, for who reads it.
		missed, took := w.Poll("alice", next).End()
		require.Equal(t, []string{"missed"}, states(missed))
		require.InDelta(t, 8+2.5, took.Seconds(), 3)

		// A cursor that is older than what is kept.
		// cursor is that of the first version of a call.
		cursor := func(id string) string { return kit.SealedCursor("chat/calls\x00alice", "\x02"+id) }
		old := cursor("gone")
		require.Empty(t, w.Do("GET", "/calls?user=alice&cursor="+old, "")["calls"])
		// A client can make a cursor of a call of others.
		others := w.Do("POST", "/calls", `{"from":"dave","to":"erin"}`)["id"].(string)
		w.Do("POST", "/calls/"+others+"/end", `{"user":"dave"}`)
		forged := w.Do("GET", "/calls?user=alice&cursor="+cursor(others), "")
		require.Empty(t, forged["calls"])
	})
}

// TestCallsPollWithoutSignals: a poll that no signal wakes looks again every few seconds.
func TestCallsPollWithoutSignals(t *testing.T) {
	apitest.InBubble(t, func(t *testing.T, w *apitest.BubbleServer) {
		p := w.Poll("bob", w.Do("GET", "/calls?user=bob", ""))
		time.Sleep(12 * time.Second)
		w.Do("POST", "/calls", `{"from":"alice","to":"bob"}`)
		found, took := p.End()
		require.Equal(t, []string{"ringing"}, states(found))
		require.LessOrEqual(t, took, 12*time.Second+kit.CallsPause)
	})
}

// TestCallsPollEnds: a poll ends with its key, and when the server stops.
func TestCallsPollEnds(t *testing.T) {
	apitest.InBubble(t, func(t *testing.T, w *apitest.BubbleServer) {
		service, key := kit.NewKey("service", "*", auth.Ping, auth.Read)
		w.Authenticate(auth.Config{Keys: []auth.Key{service}})
		first := w.Do("GET", "/calls?user=bob", "", kit.Bearer(key))
		p := w.Poll("bob", first, kit.Bearer(key))
		time.Sleep(3 * time.Second)
		stays, removed := service, service
		stays.Namespaces = []auth.Pattern{"chat"}
		w.Authenticate(auth.Config{Keys: []auth.Key{stays}})
		time.Sleep(3 * time.Second)
		_, removed.Hash = auth.NewKey()
		w.Authenticate(auth.Config{Keys: []auth.Key{removed}})
		refused, took := p.End()
		require.Equal(t, http.StatusUnauthorized, refused["status"])
		require.InDelta(t, 6, took.Seconds(), 0.5)

		w.Authenticate(auth.Config{Keys: []auth.Key{service}})
		p = w.Poll("bob", first, kit.Bearer(key))
		time.Sleep(3 * time.Second)
		w.Config.Shared.Drain()
		last, took := p.End()
		require.Equal(t, http.StatusOK, last["status"])
		require.Contains(t, last["connection"], "close")
		require.InDelta(t, 3, took.Seconds(), 0.5)
		require.Positive(t, last["poll_after_ms"], "the next request is for another server")
		require.Zero(t, w.Config.Shared.UserStates())
	})
}

// TestCallsCursor: a cursor continues the calls of a user, and nothing else.
func TestCallsCursor(t *testing.T) {
	t.Parallel()
	w := apitest.NewServer(t, kit.FileStore(t))
	w.Ring("c1", "alice", "bob")
	cursor := kit.CursorOf(w.Get(kit.CallsPath + "?user=alice"))
	refused := []string{
		kit.CallsPath + "?user=bob&cursor=" + cursor, "/other/calls?user=alice&cursor=" + cursor,
		"/chat/changes?user=alice&cursor=" + cursor, "/chat/users?cursor=" + cursor,
	}
	for i := range cursor {
		refused = append(refused, kit.CallsPath+"?user=alice&cursor="+cursor[:i])
	}
	for _, content := range []string{"", "\x80", "\x02 ", "\x02../x", "\x02" + strings.Repeat("x", 65)} {
		refused = append(refused, kit.CallsPath+"?user=alice&cursor="+kit.SealedCursor("chat/calls\x00alice", content))
	}
	for _, path := range refused {
		w.Fails(problem.InvalidCursor, "GET", path, "")
	}
	w.Send("HEAD", kit.CallsPath+"?user=alice&wait=50s&cursor="+cursor, "").Is(t, http.StatusOK, "and it does not wait")
}

// TestCallsPollOnTwoServers: a step on one server wakes a poll on another.
func TestCallsPollOnTwoServers(t *testing.T) {
	t.Parallel()
	apitest.EachPair(t, func(t *testing.T, one, two *apitest.Server) {
		poll := func(after map[string]any) <-chan kit.Response {
			polled := two.Later("GET", "/chat"+kit.CallsQuery("bob", after), "")
			kit.Await(t, func() bool { return two.Config.Shared.UserStates() == 1 })
			return polled
		}
		polled := poll(two.Get(kit.CallsPath + "?user=bob"))
		call := one.Call(`{"from":"alice","to":"bob","app":"offer"}`)
		rung := (<-polled).JSON(t)
		require.Equal(t, []any{call}, rung["calls"])
		polled = poll(rung)
		accepted := one.Post(kit.CallPath(call)+"/accept", `{"user":"bob"}`)
		active := (<-polled).JSON(t)
		require.Equal(t, []any{accepted}, active["calls"])
		polled = poll(active)
		ended := one.Post(kit.CallPath(call)+"/end", `{"user":"alice"}`)
		require.Equal(t, []any{ended}, (<-polled).JSON(t)["calls"])
	})
}

// TestUnknownOutcomesAreSignalled: a write whose outcome is unknown may be done, so servers look again. One that was
// refused, or that changes nothing, has them do nothing.
func TestUnknownOutcomesAreSignalled(t *testing.T) {
	t.Parallel()
	var sent []string
	var silence error // which the store returns after it has done what it is asked to
	w, headers := apitest.NewVisibleServer(t, &kit.HookedStore{Store: kit.FileStore(t), After: func(call string) error {
		if signal, ok := strings.CutPrefix(call, "Signal "); ok {
			sent = append(sent, signal)
			return nil
		}
		if call == "DeleteNamespace" || call == "SetAvailability" {
			return silence
		}
		return nil
	}})
	user := "/chat/users/bob"
	for _, request := range []struct {
		method, path, body string
		signals            []string
	}{
		{"PUT", user + "/availability", `{"availability":"busy"}`, []string{"self bob"}},
		{"DELETE", "/chat?confirm=chat", "", []string{"self"}},
	} {
		for _, err := range []error{nil, fmt.Errorf("%w: silence", store.ErrUnavailable), store.ErrNamespaceLimit} {
			silence, sent = err, nil
			r := w.Send(request.method, request.path, request.body, kit.HeadersOf(headers["all"])...)
			require.Equal(t, err == nil, r.Status < 300, r.Body)
			want := request.signals
			if errors.Is(err, store.ErrNamespaceLimit) {
				want = nil
			}
			require.Equal(t, want, sent, "%s %s: %v", request.method, request.path, err)
		}
	}
}
