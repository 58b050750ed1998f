package session_test

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/api"
	"github.com/lastseen/lastseen/api/apitest"
	"github.com/lastseen/lastseen/api/apitest/kit"
	"github.com/lastseen/lastseen/api/auth"
	"github.com/lastseen/lastseen/store"
	"github.com/lastseen/lastseen/store/calls"
)

// signalCall has a server receive the signal that a call of alice has changed.
func signalCall(w *apitest.Server, id string) {
	w.Config.Shared.Receive(calls.Signal("chat", id, "alice"))
}

// TestCallFrames: all connections of both parties get each state of a call, on all servers, and those of others do not.
func TestCallFrames(t *testing.T) {
	t.Parallel()
	apitest.EachPair(t, func(t *testing.T, one, two *apitest.Server) {
		alice, welcome := one.Hello(`{"user":"alice","device":{"id":"phone","kind":"mobile"}}`)
		require.Equal(t, []any{}, welcome["calls"])
		tab, _ := two.Hello(`{"user":"bob","device":{"id":"tab","kind":"web"}}`)
		desk, _ := one.Hello(`{"user":"bob","device":{"id":"desk","kind":"desktop"}}`)
		carol, _ := two.Hello(`{"user":"carol"}`)
		watcher, welcome := two.Hello(`{"watch":{"counts":true}}`)
		require.NotContains(t, welcome, "calls")
		parties := []*kit.Socket{alice, tab, desk}

		call := one.Call(`{"from":"alice","to":"bob","device":"phone","app":{"offer":1}}`)
		for _, c := range parties {
			got := kit.WantCall(t, c, call, lastseen.Ringing)
			delete(got, "expires_at") // by a clock that was read again
			require.Subset(t, call, got)
		}
		two.Post(kit.CallPath(call)+"/accept", `{"user":"bob","device":"tab","app":["answer"]}`)
		for _, c := range parties {
			got := kit.WantCall(t, c, call, lastseen.Active)
			require.Equal(t, "tab", got["to_device"])
			require.Equal(t, map[string]any{"user": "bob", "device": "tab"}, got["by"])
			require.Equal(t, []any{"answer"}, got["app"])
		}
		one.Post(kit.CallPath(call)+"/alive", `{"user":"alice","device":"phone"}`) // changes nothing that is shown
		one.Post(kit.CallPath(call)+"/alive", `{"user":"alice","device":"phone","app":"candidate"}`)
		for _, c := range parties {
			require.Equal(t, "candidate", kit.WantCall(t, c, call, lastseen.Active)["app"])
		}
		_, welcome = two.Hello(`{"user":"alice"}`)
		require.Equal(t, "active", kit.FirstOf(welcome, "calls")["state"])
		two.Post(kit.CallPath(call)+"/end", `{"user":"bob","device":"tab"}`)
		for _, c := range parties {
			require.Nil(t, kit.WantCall(t, c, call, lastseen.Ended)["app"])
		}
		_, welcome = two.Hello(`{"user":"alice"}`)
		require.Equal(t, []any{}, welcome["calls"])
		for _, c := range append(parties, carol) {
			c.Quiet() // nothing else came before
		}
		watcher.Want("counts")
	})
}

// TestCallOfDeletedParty: the other one learns that the call has ended.
func TestCallOfDeletedParty(t *testing.T) {
	t.Parallel()
	apitest.EachPair(t, func(t *testing.T, one, two *apitest.Server) {
		alice, _ := one.Hello(`{"user":"alice"}`)
		bob, _ := two.Hello(`{"user":"bob"}`)
		for _, path := range []string{"/chat/users/carol", "/chat?confirm=chat"} {
			call := one.Call(`{"from":"alice","to":"carol"}`)
			kit.WantCall(t, alice, call, lastseen.Ringing)
			two.Send("DELETE", path, "").Is(t, http.StatusNoContent)
			kit.WantCall(t, alice, call, lastseen.Ended)
			call = one.Call(`{"from":"carol","to":"alice"}`)
			kit.WantCall(t, alice, call, lastseen.Ringing)
			two.Send("DELETE", path, "").Is(t, http.StatusNoContent)
			kit.WantCall(t, alice, call, lastseen.Ended)
		}
		bob.Quiet() // nothing else came before
	})
}

// TestUnreachableCallee: one who is invisible and busy gets nothing of another call.
func TestUnreachableCallee(t *testing.T) {
	t.Parallel()
	apitest.EachPair(t, func(t *testing.T, one, two *apitest.Server) {
		alice, _ := one.Hello(`{"user":"alice"}`)
		one.Say(`{"availability":"invisible"}`)
		alice.Want("self") // it could come between other frames
		own := two.Call(`{"from":"alice","to":"bob"}`)
		kit.WantCall(t, alice, own, lastseen.Ringing)
		carol, _ := two.Hello(`{"user":"carol"}`)
		other := two.Call(`{"from":"carol","to":"alice"}`)
		kit.WantCall(t, carol, other, lastseen.Ringing)
		_, welcome := two.Hello(`{"user":"alice"}`)
		require.Equal(t, own["id"], kit.FirstOf(welcome, "calls")["id"])
		require.Len(t, welcome["calls"], 1)
		two.Post(kit.CallPath(other)+"/end", `{"user":"carol"}`)
		kit.WantCall(t, carol, other, lastseen.Cancelled)
		alice.Quiet() // nothing else came before
	})
}

// TestBlindCallers: a key that can only write gets no calls, also where anyone can read statuses.
func TestBlindCallers(t *testing.T) {
	t.Parallel()
	for _, public := range [][]auth.Pattern{nil, {"chat"}} {
		ping, key := kit.NewKey("ping", "chat", auth.Ping)
		authenticator := kit.NewAuthenticator(t, auth.Config{Keys: []auth.Key{ping}, AnonymousRead: public})
		w := apitest.NewSocketServer(t, func(c *api.Config) { c.Auth = authenticator })
		c, welcome := w.Hello(`{"user":"alice"}`, kit.Bearer(key))
		require.NotContains(t, welcome, "calls")
		w.Ring("c1", "bob", "alice")
		signalCall(w, "c1")
		alice := lastseen.UserKey{Namespace: "chat", User: "alice"}
		kit.Await(t, func() bool { return w.Config.Shared.KnowsCall(alice, "c1") })
		c.Quiet()
	}
}

// TestCallsAfterLostSignals: calls are read again for all connections, those that began and those that have ended.
func TestCallsAfterLostSignals(t *testing.T) {
	t.Parallel()
	s := kit.FileStore(t)
	// It gets no signals but those below.
	w := apitest.NewServer(t, s, apitest.WithStoreTime(s), apitest.WithConnections(t, s))
	one, _ := w.Hello(`{"user":"alice"}`)
	two, _ := w.Hello(`{"user":"alice"}`)
	bob, _ := w.Hello(`{"user":"bob"}`)
	waitWelcomed(t, w)
	next := func(id string, state lastseen.CallState, clients ...*kit.Socket) {
		t.Helper()
		w.Config.Shared.Receive(store.Signal{})
		for _, c := range clients {
			kit.WantCall(t, c, map[string]any{"id": id}, state)
		}
	}
	w.Ring("c1", "alice", "bob")
	next("c1", lastseen.Ringing, one, two, bob)
	w.Act("c1", "bob", lastseen.Accept)
	next("c1", lastseen.Active, one, two, bob)
	w.Act("c1", "bob", lastseen.End)
	w.Ring("c2", "carol", "bob")
	next("c1", lastseen.Ended, one, two, bob)
	kit.WantCall(t, bob, map[string]any{"id": "c2"}, lastseen.Ringing)
	next("c2", lastseen.Ringing)
	bob.Quiet() // nothing else came before
}

// TestCallsThatEndUnnoticed: without any signal, clients learn that the time of a call has passed.
func TestCallsThatEndUnnoticed(t *testing.T) {
	t.Parallel()
	s := kit.FileStore(t)
	w := apitest.NewServer(t, s, apitest.WithStoreTime(s), apitest.WithConnections(t, s)) // gets no signals
	timers := make(chan func(), 10)
	var waits atomic.Bool // the time of the call, in place of a longer one
	w.Config.Shared.SetTimers(func(d time.Duration, f func()) *time.Timer {
		assert.LessOrEqual(t, d, kit.MaxSelfEnd+kit.LateCall)
		if d == kit.MaxSending {
			return time.AfterFunc(d, f)
		}
		assert.GreaterOrEqual(t, d, kit.LateCall)
		if waits.Load() {
			return time.AfterFunc(time.Millisecond, f)
		}
		timers <- f
		return time.NewTimer(0)
	})
	start := func(id string, ring time.Duration) {
		t.Helper()
		_, err := s.StartCall(t.Context(), "chat", store.NewCall{
			ID: id, From: "alice", To: "bob", Ring: ring, Timeout: time.Hour,
		})
		require.NoError(t, err)
	}
	start("c1", time.Hour)
	alice, welcome := w.Hello(`{"user":"alice"}`)
	require.Len(t, welcome["calls"], 1)
	(<-timers)() // early: it is read again later
	again := <-timers
	w.Act("c1", "alice", lastseen.End)
	again()
	kit.WantCall(t, alice, map[string]any{"id": "c1"}, lastseen.Cancelled)
	waits.Store(true)
	start("c2", time.Millisecond)
	signalCall(w, "c2")
	if got := alice.Want("call"); got["state"] == "ringing" { // it was read within the millisecond
		kit.WantCall(t, alice, map[string]any{"id": "c2"}, lastseen.Missed)
	}
}

// TestCallWhileOpening: a call that changes after it was read for the frame welcome, and before that was sent, follows.
func TestCallWhileOpening(t *testing.T) {
	t.Parallel()
	var w *apitest.Server
	var opens atomic.Bool
	welcomed := make(chan struct{})
	inner := kit.FileStore(t)
	w = apitest.NewSocketServerOn(t, &kit.HookedStore{Store: inner, After: func(call string) error {
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
	w.Ring("c1", "bob", "alice")
	opens.Store(true)
	alice, welcome := w.Hello(`{"user":"alice"}`)
	close(welcomed)
	require.Equal(t, "ringing", kit.FirstOf(welcome, "calls")["state"])
	kit.WantCall(t, alice, map[string]any{"id": "c1"}, lastseen.Active)
}

// TestNoCallsInWelcome: a namespace that cannot have calls, such as sets in Redis that others write, has none.
func TestNoCallsInWelcome(t *testing.T) {
	t.Parallel()
	w := apitest.NewSocketServerOn(t, kit.FailingCalls(kit.FileStore(t), store.ErrNoCalls, "ReadCalls"))
	_, welcome := w.Hello(`{"user":"alice"}`)
	require.Equal(t, []any{}, welcome["calls"])
	signalCall(w, "c1")
}
