package api

import (
	"context"
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

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
		n := w.session()
		awaitLocked(t, &n.mu, func() bool {
			return n.known != nil && n.known.calls[len(n.known.calls)-1].ID == "c1"
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
	w.config.Shared.calls.after = func(d time.Duration, f func()) *time.Timer {
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
	inner := fileStore(t)
	w = newSocketServerOn(t, &hookedStore{Store: inner, after: func(call string) error {
		if call != "ReadCalls" || !opens.Swap(false) {
			return nil
		}
		act := store.CallAct{ID: "c1", User: "alice", Action: lastseen.Accept}
		_, err := inner.StepCall(context.Background(), "chat", act)
		assert.NoError(t, err) //nolint:testifylint // not the goroutine of the test
		signalCall(w, "c1")
		n := w.session()
		assert.True(t, happens(func() bool { return locked(&n.mu, func() bool { return n.callsMissed }) }))
		return nil
	}})
	w.ring("c1", "bob", "alice")
	opens.Store(true)
	alice, welcome := w.hello(`{"user":"alice"}`)
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

// TestKnownCalls: whatever is read in whatever order, the client gets each change once, never an older one after a
// newer one, and in the end knows the newest.
func TestKnownCalls(t *testing.T) {
	t.Parallel()
	steps := func(id int) []lastseen.Call {
		c := lastseen.Call{ID: strconv.Itoa(id), From: "alice", To: "bob", Created: 1}
		ringing, active, ended := c, c, c
		ringing.State, ringing.Version, ringing.Expires = lastseen.Ringing, 1, 10
		active.State, active.Version, active.Expires, active.App = lastseen.Active, 2, 20, "1"
		candidate := active
		candidate.Version, candidate.App = 3, "2"
		ended.State, ended.Version, ended.Over = lastseen.Ended, 4, 15
		return []lastseen.Call{ringing, active, candidate, ended}
	}
	rapid.Check(t, func(t *rapid.T) {
		var o ownCalls
		newest := map[string]lastseen.Call{}
		for id := range rapid.IntRange(1, 6).Draw(t, "calls") {
			states := steps(id)
			for range rapid.IntRange(1, 8).Draw(t, "reads") {
				c := rapid.SampledFrom(states).Draw(t, "read")
				if !c.State.Over() {
					c.Expires += lastseen.Instant(rapid.IntRange(0, 5).Draw(t, "renewed"))
				}
				before, known := newest[c.ID]
				if o.note(c) {
					require.True(t, !known || c.Version > before.Version, "%v after %v", c, before)
					newest[c.ID] = c
				} else {
					require.LessOrEqual(t, c.Version, before.Version)
				}
			}
			require.LessOrEqual(t, len(o.calls), maxKnownCalls)
			require.Equal(t, strconv.Itoa(id), o.calls[len(o.calls)-1].ID)
		}
	})
}

// TestKnownCallIsReplaced: what is read of the same version replaces what was shown, unless the call was over: a store
// shows a call whose time has passed before it records that. Calls that are over do not replace the one that goes on.
func TestKnownCallIsReplaced(t *testing.T) {
	t.Parallel()
	var o ownCalls
	ringing := lastseen.Call{ID: "1", State: lastseen.Ringing, Version: 1, Expires: 10}
	require.True(t, o.note(ringing))
	for i := range 2 * maxKnownCalls {
		o.note(lastseen.Call{ID: strconv.Itoa(i + 2), State: lastseen.Missed})
	}
	require.Len(t, o.calls, maxKnownCalls)
	require.Equal(t, "1", o.goingOn().ID)
	missed := ringing
	missed.State, missed.Expires, missed.Over = lastseen.Missed, 0, 10
	require.True(t, o.note(missed))
	require.Nil(t, o.goingOn())
	missed.Version, missed.Over = 2, 11
	require.False(t, o.note(missed))
	require.False(t, o.note(ringing))

	var why news // that signals may have been lost is not forgotten when something else happens before the read
	why.add(news{calls: []string{"c1"}})
	why.add(news{all: true})
	why.add(news{renewed: true, calls: []string{"c1", "c2"}})
	require.Equal(t, news{all: true, renewed: true, calls: []string{"c1", "c2"}}, why)
}

// TestOutboxKeepsTheNewestOfEachCall: what a slow client has not got yet is replaced.
func TestOutboxKeepsTheNewestOfEachCall(t *testing.T) {
	t.Parallel()
	var o outbox
	put := func(id, frame string) { o.putCall(callFrame{id, []byte(frame)}) }
	put("1", "ringing")
	put("2", "ringing")
	put("1", "ended")
	require.Equal(t, []callFrame{{"2", []byte("ringing")}, {"1", []byte("ended")}}, o.calls)
	for i := range 2 * maxPosts {
		put(strconv.Itoa(100+i), "ringing")
	}
	require.Len(t, o.calls, maxPosts)
	require.Equal(t, strconv.Itoa(99+2*maxPosts), o.calls[maxPosts-1].id)
}
