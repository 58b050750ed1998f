package api

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/calls"
)

// wantCall reads the next frame of a client, which has a call in a state, and returns the call.
func wantCall(t *testing.T, c *testSocket, call map[string]any, state lastseen.CallState) map[string]any {
	t.Helper()
	got := c.want(frameCall)
	require.Equal(t, call["id"], got["id"])
	require.Equal(t, string(state), got["state"], "%v", got)
	return got
}

// signalCall has a server receive the signal that a call of alice has changed.
func signalCall(w *testServer, id string) {
	w.config.Shared.receive(calls.Signal("chat", id, "alice"))
}

// TestCallFrames: all connections of both parties get each state of a call, on all servers, and those of others do not.
func TestCallFrames(t *testing.T) {
	t.Parallel()
	eachPair(t, func(t *testing.T, one, two *testServer) {
		alice, welcome := one.hello(`{"user":"alice","device":{"id":"phone","kind":"mobile"}}`)
		require.Equal(t, []any{}, welcome["calls"])
		tab, _ := two.hello(`{"user":"bob","device":{"id":"tab","kind":"web"}}`)
		desk, _ := one.hello(`{"user":"bob","device":{"id":"desk","kind":"desktop"}}`)
		carol, _ := two.hello(`{"user":"carol"}`)
		watcher, welcome := two.hello(`{"watch":{"counts":true}}`)
		require.NotContains(t, welcome, "calls")
		parties := []*testSocket{alice, tab, desk}

		call := one.call(`{"from":"alice","to":"bob","device":"phone","app":{"offer":1}}`)
		for _, c := range parties {
			got := wantCall(t, c, call, lastseen.Ringing)
			delete(got, "expires_at") // by a clock that was read again
			require.Subset(t, call, got)
		}
		two.post(callPath(call)+"/accept", `{"user":"bob","device":"tab","app":["answer"]}`)
		for _, c := range parties {
			got := wantCall(t, c, call, lastseen.Active)
			require.Equal(t, "tab", got["to_device"])
			require.Equal(t, map[string]any{"user": "bob", "device": "tab"}, got["by"])
			require.Equal(t, []any{"answer"}, got["app"])
		}
		one.post(callPath(call)+"/alive", `{"user":"alice","device":"phone"}`) // changes nothing that is shown
		one.post(callPath(call)+"/alive", `{"user":"alice","device":"phone","app":"candidate"}`)
		for _, c := range parties {
			require.Equal(t, "candidate", wantCall(t, c, call, lastseen.Active)["app"])
		}
		_, welcome = two.hello(`{"user":"alice"}`)
		require.Equal(t, "active", firstOf(welcome, "calls")["state"])
		two.post(callPath(call)+"/end", `{"user":"bob","device":"tab"}`)
		for _, c := range parties {
			require.Nil(t, wantCall(t, c, call, lastseen.Ended)["app"])
		}
		_, welcome = two.hello(`{"user":"alice"}`)
		require.Equal(t, []any{}, welcome["calls"])
		for _, c := range append(parties, carol) {
			c.quiet() // nothing else came before
		}
		watcher.want(frameCounts)
	})
}

// TestCallOfDeletedParty: the other one learns that the call is over.
func TestCallOfDeletedParty(t *testing.T) {
	t.Parallel()
	eachPair(t, func(t *testing.T, one, two *testServer) {
		alice, _ := one.hello(`{"user":"alice"}`)
		bob, _ := two.hello(`{"user":"bob"}`)
		for _, path := range []string{"/chat/users/carol", "/chat?confirm=chat"} {
			call := one.call(`{"from":"alice","to":"carol"}`)
			wantCall(t, alice, call, lastseen.Ringing)
			two.send("DELETE", path, "").is(t, http.StatusNoContent)
			wantCall(t, alice, call, lastseen.Ended)
			call = one.call(`{"from":"carol","to":"alice"}`)
			wantCall(t, alice, call, lastseen.Ringing)
			two.send("DELETE", path, "").is(t, http.StatusNoContent)
			wantCall(t, alice, call, lastseen.Ended)
		}
		bob.quiet() // nothing else came before
	})
}

// TestUnreachableCallee: one who is invisible and busy gets nothing of another call.
func TestUnreachableCallee(t *testing.T) {
	t.Parallel()
	eachPair(t, func(t *testing.T, one, two *testServer) {
		alice, _ := one.hello(`{"user":"alice"}`)
		one.say(`{"availability":"invisible"}`)
		alice.want(frameSelf) // it could come between other frames
		own := two.call(`{"from":"alice","to":"bob"}`)
		wantCall(t, alice, own, lastseen.Ringing)
		carol, _ := two.hello(`{"user":"carol"}`)
		other := two.call(`{"from":"carol","to":"alice"}`)
		wantCall(t, carol, other, lastseen.Ringing)
		_, welcome := two.hello(`{"user":"alice"}`)
		require.Equal(t, own["id"], firstOf(welcome, "calls")["id"])
		require.Len(t, welcome["calls"], 1)
		two.post(callPath(other)+"/end", `{"user":"carol"}`)
		wantCall(t, carol, other, lastseen.Cancelled)
		alice.quiet() // nothing else came before
	})
}

// TestBlindCallers: a key that can only write gets no calls, also where anyone can read statuses.
func TestBlindCallers(t *testing.T) {
	t.Parallel()
	for _, public := range [][]auth.Pattern{nil, {"chat"}} {
		ping, key := newKey("ping", "chat", auth.Ping)
		authenticator := newAuthenticator(t, auth.Config{Keys: []auth.Key{ping}, AnonymousRead: public})
		w := newSocketServer(t, func(c *Config) { c.Auth = authenticator })
		c, welcome := w.hello(`{"user":"alice"}`, bearer(key))
		require.NotContains(t, welcome, "calls")
		w.ring("c1", "bob", "alice")
		signalCall(w, "c1")
		states := w.config.Shared.userStates
		awaitLocked(t, &states.mu, func() bool {
			st := states.users[lastseen.UserKey{Namespace: "chat", User: "alice"}]
			return st.call("c1") != nil
		})
		c.quiet()
	}
}

// TestCallsAfterLostSignals: calls are read again for all connections, those that began and those that are over.
func TestCallsAfterLostSignals(t *testing.T) {
	t.Parallel()
	s := fileStore(t)
	w := newTestServer(t, s, live(s), held(t, s)) // gets no signals but those below
	one, _ := w.hello(`{"user":"alice"}`)
	two, _ := w.hello(`{"user":"alice"}`)
	bob, _ := w.hello(`{"user":"bob"}`)
	waitWelcomed(t, w)
	next := func(id string, state lastseen.CallState, clients ...*testSocket) {
		t.Helper()
		w.config.Shared.receive(store.Signal{})
		for _, c := range clients {
			wantCall(t, c, map[string]any{"id": id}, state)
		}
	}
	w.ring("c1", "alice", "bob")
	next("c1", lastseen.Ringing, one, two, bob)
	w.act("c1", "bob", lastseen.Accept)
	next("c1", lastseen.Active, one, two, bob)
	w.act("c1", "bob", lastseen.End)
	w.ring("c2", "carol", "bob")
	next("c1", lastseen.Ended, one, two, bob)
	wantCall(t, bob, map[string]any{"id": "c2"}, lastseen.Ringing)
	next("c2", lastseen.Ringing)
	bob.quiet() // nothing else came before
}

// TestCallsThatEndUnheard: without any signal, clients learn that the time of a call has passed.
func TestCallsThatEndUnheard(t *testing.T) {
	t.Parallel()
	s := fileStore(t)
	w := newTestServer(t, s, live(s), held(t, s)) // gets no signals
	timers := make(chan func(), 10)
	var waits atomic.Bool // the time of the call, in place of a longer one
	w.config.Shared.userStates.after = func(d time.Duration, f func()) *time.Timer {
		assert.LessOrEqual(t, d, maxSelfEnd+lateCall)
		assert.GreaterOrEqual(t, d, lateCall)
		if waits.Load() {
			return time.AfterFunc(time.Millisecond, f)
		}
		timers <- f
		return time.NewTimer(0)
	}
	start := func(id string, ring time.Duration) {
		t.Helper()
		_, err := s.StartCall(t.Context(), "chat", store.NewCall{
			ID: id, From: "alice", To: "bob", Ring: ring, Quiet: time.Hour,
		})
		require.NoError(t, err)
	}
	start("c1", time.Hour)
	alice, welcome := w.hello(`{"user":"alice"}`)
	require.Len(t, welcome["calls"], 1)
	(<-timers)() // early: it is read again later
	again := <-timers
	w.act("c1", "alice", lastseen.End)
	again()
	wantCall(t, alice, map[string]any{"id": "c1"}, lastseen.Cancelled)
	waits.Store(true)
	start("c2", time.Millisecond)
	signalCall(w, "c2")
	if got := alice.want(frameCall); got["state"] == "ringing" { // it was read within the millisecond
		wantCall(t, alice, map[string]any{"id": "c2"}, lastseen.Missed)
	}
}

// TestCallWhileOpening: a call that changes after it was read for the frame welcome, and before that was sent, follows.
func TestCallWhileOpening(t *testing.T) {
	t.Parallel()
	var w *testServer
	var opens atomic.Bool
	welcomed := make(chan struct{})
	inner := fileStore(t)
	w = newSocketServerOn(t, &hookedStore{Store: inner, after: func(call string) error {
		if call != "ReadCalls" {
			return nil
		}
		if !opens.Swap(false) {
			<-welcomed
			return nil
		}
		act := store.CallAct{ID: "c1", User: "alice", Action: lastseen.Accept}
		_, err := inner.StepCall(context.Background(), "chat", act)
		assert.NoError(t, err) //nolint:testifylint // not the goroutine of the test
		signalCall(w, "c1")
		return nil
	}})
	w.ring("c1", "bob", "alice")
	opens.Store(true)
	alice, welcome := w.hello(`{"user":"alice"}`)
	close(welcomed)
	require.Equal(t, "ringing", firstOf(welcome, "calls")["state"])
	wantCall(t, alice, map[string]any{"id": "c1"}, lastseen.Active)
}

// TestNoCallsInWelcome: a namespace that cannot have calls, such as sets in Redis that others write, has none.
func TestNoCallsInWelcome(t *testing.T) {
	t.Parallel()
	w := newSocketServerOn(t, failingCalls(fileStore(t), store.ErrNoCalls, "ReadCalls"))
	_, welcome := w.hello(`{"user":"alice"}`)
	require.Equal(t, []any{}, welcome["calls"])
	signalCall(w, "c1")
}
