package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The flows in this file are those of an app in which friends call each other: its backend keeps who is online and who
// is in a call, passes call requests on, and notifies friends, on several servers. The names of its steps are in
// quotes.

const chatCalls = "/v1/namespaces/chat/calls"

// ring begins a call, and returns its path.
func (s *service) ring(t *testing.T, body string) (path string) {
	t.Helper()
	status, call := s.call(t, http.MethodPost, chatCalls, body)
	require.Equal(t, http.StatusCreated, status, "%v", call)
	require.Equal(t, "ringing", call["state"])
	return chatCalls + "/" + call["id"].(string)
}

// act does an action in a call that has to succeed, and returns the state of the call then.
func (s *service) act(t *testing.T, path, action, user string) (state any) {
	t.Helper()
	return s.post(t, path+"/"+action, `{"user":"`+user+`"}`)["state"]
}

// untilCall waits until the app got a frame with a call in a state, and returns the call.
func (a *chatApp) untilCall(t *testing.T, path, state string) (call map[string]any) {
	t.Helper()
	require.Eventually(t, func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		for _, frame := range a.frames["call"] {
			call = nil
			if json.Unmarshal([]byte(frame), &call) == nil && call["state"] == state &&
				strings.HasSuffix(path, call["id"].(string)) {
				return true
			}
		}
		return false
	}, flowWait, 10*time.Millisecond, "the app should get the call as %s", state)
	return call
}

// inCalls returns which contacts of Carol are in a call.
func (s *service) inCalls(t *testing.T) (friends []string) {
	t.Helper()
	friends = []string{}
	for _, presence := range s.get(t, chatUsers+"carol/contacts?in_call=true")["users"].([]any) {
		friends = append(friends, presence.(map[string]any)["user"].(string))
	}
	return friends
}

// TestFlowCall: a user calls a friend, who accepts. Their friends are notified that both are in a call, and that they
// are not any longer.
func TestFlowCall(t *testing.T) {
	t.Parallel()
	eachSite(t, func(t *testing.T, one, two *service) {
		// "user:connect": three friends connect. Carol has the others as friends, and follows them.
		alice := one.openApp(t, appOptions{user: "alice", friends: []string{"erin"}})
		bob := two.openApp(t, appOptions{user: "bob"})
		one.succeed(t, http.MethodPut, chatUsers+"carol/contacts", `{"users":["alice","bob","dave"]}`)
		carol := one.openApp(t, appOptions{user: "carol", friends: []string{"alice", "bob", "dave"}})
		carol.until(t, "alice", "green")
		carol.until(t, "bob", "green")
		require.Empty(t, two.inCalls(t))

		// "call:request": the server checks that Bob is online, and his app gets "call:incoming".
		path := one.ring(t, `{"from":"alice","to":"bob","if":"present","app":{"offer":"v=0"}}`)
		incoming := bob.untilCall(t, path, "ringing")
		require.Equal(t, []any{"alice", "bob"}, []any{incoming["from"], incoming["to"]})
		require.Equal(t, map[string]any{"offer": "v=0"}, incoming["app"])
		require.Empty(t, two.inCalls(t), "a call that rings is not shown")

		// "call:accepted": Alice's app gets it. "call:start": both are in a call, and friends get "friend_in_call".
		require.Equal(t, "active", two.act(t, path, "accept", "bob"))
		require.Equal(t, "bob", alice.untilCall(t, path, "active")["by"].(map[string]any)["user"])
		carol.until(t, "alice", "green in a call")
		carol.until(t, "bob", "green in a call")
		require.Equal(t, []string{"alice", "bob"}, two.inCalls(t))
		require.Equal(t, []string{"alice", "bob"}, one.online(t, "carol"), "they are online, too")
		require.Equal(t, "green in a call", one.look(t, "bob", ""))

		// "In-call friends list": a friend who connects in mid-call learns at once that both are in a call, and both
		// get "friend_online", too.
		erin := two.openApp(t, appOptions{user: "erin", friends: []string{"alice", "bob"}})
		require.Equal(t, []string{"green in a call"}, erin.all("alice"))
		require.Equal(t, []string{"green in a call"}, erin.all("bob"))
		alice.until(t, "erin", "green")

		// Somebody else who calls one of them learns that they are in a call.
		for _, callee := range []string{"alice", "bob"} {
			status, problem := two.call(t, http.MethodPost, chatCalls, `{"from":"carol","to":"`+callee+`"}`)
			require.Equal(t, []any{http.StatusConflict, "callee_busy"}, []any{status, problem["code"]})
		}

		// "call:end": Bob's app gets "call:ended", and friends get "friend_out_of_call".
		require.Equal(t, "ended", one.act(t, path, "end", "alice"))
		require.Equal(t, "alice", bob.untilCall(t, path, "ended")["by"].(map[string]any)["user"])
		for _, friend := range []*chatApp{carol, erin} {
			friend.until(t, "alice", "green")
			friend.until(t, "bob", "green")
		}
		require.Eventually(t, func() bool { return len(two.inCalls(t)) == 0 }, flowWait, 10*time.Millisecond)
		require.Equal(t, []string{"never seen"}, carol.all("dave"))
		two.act(t, two.ring(t, `{"from":"carol","to":"bob"}`), "end", "carol")
	})
}

// TestFlowCallRejected: a friend is offline, rejects the call, or the caller gives up.
func TestFlowCallRejected(t *testing.T) {
	t.Parallel()
	eachSite(t, func(t *testing.T, one, two *service) {
		alice := one.openApp(t, appOptions{user: "alice"})

		// "call:request" to a friend who is offline.
		status, problem := one.call(t, http.MethodPost, chatCalls, `{"from":"alice","to":"bob","if":"present"}`)
		require.Equal(t, []any{http.StatusConflict, "callee_unavailable"}, []any{status, problem["code"]})

		// A push message can wake the friend's phone instead: the app that it starts finds the call.
		path := one.ring(t, `{"from":"alice","to":"bob"}`)
		bob := two.openApp(t, appOptions{user: "bob"})
		require.Equal(t, "ringing", two.get(t, path)["state"])

		// "call:rejected": Alice's app gets it.
		require.Equal(t, "rejected", two.act(t, path, "reject", "bob"))
		alice.untilCall(t, path, "rejected")

		// Alice gives up: Bob's app stops ringing.
		path = two.ring(t, `{"from":"alice","to":"bob"}`)
		bob.untilCall(t, path, "ringing")
		require.Equal(t, "cancelled", one.act(t, path, "end", "alice"))
		bob.untilCall(t, path, "cancelled")
		status, refused := two.call(t, http.MethodPost, path+"/accept", `{"user":"bob"}`)
		require.Equal(t, http.StatusConflict, status)
		require.Equal(t, "cancelled", refused["call"].(map[string]any)["state"])
	})
}

// TestFlowCallTimeout: nobody answers. Both apps are notified, and both users can be called again.
func TestFlowCallTimeout(t *testing.T) {
	t.Parallel()
	eachSite(t, func(t *testing.T, one, two *service) {
		alice := one.openApp(t, appOptions{user: "alice"})
		bob := two.openApp(t, appOptions{user: "bob"})
		path := one.ring(t, `{"from":"alice","to":"bob"}`)
		require.Nil(t, alice.untilCall(t, path, "missed")["by"])
		bob.untilCall(t, path, "missed")
		two.ring(t, `{"from":"bob","to":"alice"}`)
	}, "--ring-timeout", "1s")
}

// TestFlowDisconnectInCall: "user:disconnect" in a call. The app crashes, or leaves without ending the call:
// "friend_offline" comes at once. The call is lost, so that the other user is not in a call any longer.
func TestFlowDisconnectInCall(t *testing.T) {
	t.Parallel()
	for name, disconnect := range map[string]func(*chatApp, *testing.T){
		"crash": func(a *chatApp, t *testing.T) { a.kill(t) },
		"leave": (*chatApp).leave,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachSite(t, func(t *testing.T, one, two *service) { testDisconnectInCall(t, one, two, disconnect) },
				"--green", "3s", "--yellow", "1m", "--ping-interval", "1s", "--disconnect-grace", "0")
		})
	}
}

// followedCall has Alice and Bob, on two servers, in a call, and Carol who follows both. It returns their apps, and the
// path of the call.
func followedCall(t *testing.T, one, two *service) (alice, bob, carol *chatApp, path string) {
	t.Helper()
	alice = one.openApp(t, appOptions{user: "alice"})
	bob = two.openApp(t, appOptions{user: "bob"})
	carol = one.openApp(t, appOptions{user: "carol", friends: []string{"alice", "bob"}})
	path = one.ring(t, `{"from":"alice","to":"bob"}`)
	two.act(t, path, "accept", "bob")
	carol.until(t, "alice", "green in a call")
	carol.until(t, "bob", "green in a call")
	return alice, bob, carol, path
}

func testDisconnectInCall(t *testing.T, one, two *service, disconnect func(*chatApp, *testing.T)) {
	alice, bob, carol, path := followedCall(t, one, two)

	// While both are connected, the call goes on: it would be lost later and later.
	for range 2 {
		expires := two.get(t, path)["expires_at"].(string)
		require.Eventually(t, func() bool {
			later, _ := two.get(t, path)["expires_at"].(string)
			return later > expires
		}, flowWait, 50*time.Millisecond)
	}

	disconnect(bob, t)
	carol.until(t, "bob", "left")
	require.Nil(t, alice.untilCall(t, path, "lost")["by"])
	carol.until(t, "alice", "green")
	one.ring(t, `{"from":"alice","to":"carol"}`)
}

// leave ends the connection as an app does that is closed.
func (a *chatApp) leave(t *testing.T) {
	t.Helper()
	a.send(t, `{"leave":{}}`)
	a.untilEnded(t)
}

// TestFlowLeaveInCall: "user:disconnect" of an app that leaves in a call and does not end it. Its user is shown as
// offline at once, and so not in a call, but the call goes on: the app can come back to it. If the app ends the call
// before it leaves, the other one gets "call:ended" at once.
func TestFlowLeaveInCall(t *testing.T) {
	t.Parallel()
	eachSite(t, func(t *testing.T, one, two *service) {
		alice, bob, carol, path := followedCall(t, one, two)

		bob.leave(t)
		carol.until(t, "bob", "left")
		require.Equal(t, "left", one.look(t, "bob", ""))
		require.Equal(t, "green in a call", two.look(t, "alice", ""))
		require.Equal(t, "active", one.get(t, path)["state"])
		bob = two.openApp(t, appOptions{user: "bob"})
		carol.until(t, "bob", "green in a call")

		require.Equal(t, "ended", two.act(t, path, "end", "bob"))
		bob.leave(t)
		require.Equal(t, "bob", alice.untilCall(t, path, "ended")["by"].(map[string]any)["user"])
		carol.until(t, "bob", "left")
		carol.until(t, "alice", "green")
	}, "--green", "2m", "--disconnect-grace", "0")
}

// TestFlowCallSurvivesServer: the server that Alice is connected to is killed in a call. She connects to another one,
// which knows the call, and it goes on.
func TestFlowCallSurvivesServer(t *testing.T) {
	t.Parallel()
	all := append(onRedis(t), "--green", "10s", "--ping-interval", "2s", "--disconnect-grace", "0")
	one, two := start(t, all...), start(t, all...)
	one.openApp(t, appOptions{user: "alice"})
	bob := two.openApp(t, appOptions{user: "bob"})
	carol := two.openApp(t, appOptions{user: "carol", friends: []string{"alice"}})
	path := one.ring(t, `{"from":"alice","to":"bob"}`)
	two.act(t, path, "accept", "bob")
	carol.until(t, "alice", "green in a call")
	one.kill()

	alice := two.openApp(t, appOptions{user: "alice"})
	require.Equal(t, "active", two.get(t, path)["state"])
	require.Equal(t, "ended", two.act(t, path, "end", "bob"))
	alice.untilCall(t, path, "ended")
	bob.untilCall(t, path, "ended")
	carol.until(t, "alice", "green")
}
