package scenarios

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testserver"
)

// The scenarios in this file are those of an app in which friends call each other: its backend keeps who is online and
// who is in a call, passes call requests on, and notifies friends, on several servers. The names of its steps are in
// quotes.

const chatCalls = "/v1/namespaces/chat/calls"

func ring(t *testing.T, s *testserver.Server, body string) (path string) {
	t.Helper()
	status, call := s.Call(t, http.MethodPost, chatCalls, body)
	require.Equal(t, http.StatusCreated, status, "%v", call)
	require.Equal(t, "ringing", call["state"])
	return chatCalls + "/" + call["id"].(string)
}

// act does an action in a call that has to succeed, and returns the state of the call then.
func act(t *testing.T, s *testserver.Server, path, action, user string) (state any) {
	t.Helper()
	return s.Post(t, path+"/"+action, `{"user":"`+user+`"}`)["state"]
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
	}, scenarioWait, 10*time.Millisecond, "the app should get the call as %s", state)
	return call
}

func inCalls(t *testing.T, s *testserver.Server) (friends []string) {
	t.Helper()
	friends = []string{}
	for _, presence := range s.Get(t, chatUsers+"carol/contacts?in_call=true")["users"].([]any) {
		friends = append(friends, presence.(map[string]any)["user"].(string))
	}
	return friends
}

// TestScenarioCall: a user calls a friend, who accepts. Their friends are notified that both are in a call, and that
// they are not any longer.
func TestScenarioCall(t *testing.T) {
	t.Parallel()
	eachSite(t, func(t *testing.T, one, two *testserver.Server) {
		// "user:connect": three friends connect. Carol has the others as friends, and follows them.
		alice := openApp(t, one, appOptions{user: "alice", friends: []string{"erin"}})
		bob := openApp(t, two, appOptions{user: "bob"})
		one.Succeed(t, http.MethodPut, chatUsers+"carol/contacts", `{"users":["alice","bob","dave"]}`)
		carol := openApp(t, one, appOptions{user: "carol", friends: []string{"alice", "bob", "dave"}})
		carol.until(t, "alice", "green")
		carol.until(t, "bob", "green")
		require.Empty(t, inCalls(t, two))

		// "call:request": the server checks that Bob is online, and his app gets "call:incoming".
		path := ring(t, one, `{"from":"alice","to":"bob","if":"present","app":{"offer":"v=0"}}`)
		incoming := bob.untilCall(t, path, "ringing")
		require.Equal(t, []any{"alice", "bob"}, []any{incoming["from"], incoming["to"]})
		require.Equal(t, map[string]any{"offer": "v=0"}, incoming["app"])
		require.Empty(t, inCalls(t, two), "a call that rings is not shown")

		// "call:accepted": Alice's app gets it. "call:start": both are in a call, and friends get "friend_in_call".
		require.Equal(t, "active", act(t, two, path, "accept", "bob"))
		require.Equal(t, "bob", alice.untilCall(t, path, "active")["by"].(map[string]any)["user"])
		carol.until(t, "alice", "green in a call")
		carol.until(t, "bob", "green in a call")
		require.Equal(t, []string{"alice", "bob"}, inCalls(t, two))
		require.Equal(t, []string{"alice", "bob"}, onlineFriends(t, one, "carol"), "they are online, too")
		require.Equal(t, "green in a call", look(t, one, "bob", ""))

		// "In-call friends list": a friend who connects in mid-call learns at once that both are in a call, and both
		// get "friend_online", too.
		erin := openApp(t, two, appOptions{user: "erin", friends: []string{"alice", "bob"}})
		require.Equal(t, []string{"green in a call"}, erin.all("alice"))
		require.Equal(t, []string{"green in a call"}, erin.all("bob"))
		alice.until(t, "erin", "green")

		// Somebody else who calls one of them learns that they are in a call.
		for _, callee := range []string{"alice", "bob"} {
			status, problem := two.Call(t, http.MethodPost, chatCalls, `{"from":"carol","to":"`+callee+`"}`)
			require.Equal(t, []any{http.StatusConflict, "callee_busy"}, []any{status, problem["code"]})
		}

		// "call:end": Bob's app gets "call:ended", and friends get "friend_out_of_call".
		require.Equal(t, "ended", act(t, one, path, "end", "alice"))
		require.Equal(t, "alice", bob.untilCall(t, path, "ended")["by"].(map[string]any)["user"])
		for _, friend := range []*chatApp{carol, erin} {
			friend.until(t, "alice", "green")
			friend.until(t, "bob", "green")
		}
		require.Eventually(t, func() bool { return len(inCalls(t, two)) == 0 }, scenarioWait, 10*time.Millisecond)
		require.Equal(t, []string{"never seen"}, carol.all("dave"))
		act(t, two, ring(t, two, `{"from":"carol","to":"bob"}`), "end", "carol")
	})
}

// TestScenarioCallRejected: a friend is offline, rejects the call, or the caller gives up.
func TestScenarioCallRejected(t *testing.T) {
	t.Parallel()
	eachSite(t, func(t *testing.T, one, two *testserver.Server) {
		alice := openApp(t, one, appOptions{user: "alice"})

		// "call:request" to a friend who is offline.
		status, problem := one.Call(t, http.MethodPost, chatCalls, `{"from":"alice","to":"bob","if":"present"}`)
		require.Equal(t, []any{http.StatusConflict, "callee_unavailable"}, []any{status, problem["code"]})

		// A push message can wake the friend's phone instead: the app that it starts finds the call.
		path := ring(t, one, `{"from":"alice","to":"bob"}`)
		bob := openApp(t, two, appOptions{user: "bob"})
		require.Equal(t, "ringing", two.Get(t, path)["state"])

		// "call:rejected": Alice's app gets it.
		require.Equal(t, "rejected", act(t, two, path, "reject", "bob"))
		alice.untilCall(t, path, "rejected")

		// Alice gives up: Bob's app stops ringing.
		path = ring(t, two, `{"from":"alice","to":"bob"}`)
		bob.untilCall(t, path, "ringing")
		require.Equal(t, "cancelled", act(t, one, path, "end", "alice"))
		bob.untilCall(t, path, "cancelled")
		status, refused := two.Call(t, http.MethodPost, path+"/accept", `{"user":"bob"}`)
		require.Equal(t, http.StatusConflict, status)
		require.Equal(t, "cancelled", refused["call"].(map[string]any)["state"])
	}, "--redial-wait", "off")
}

// TestScenarioCallTimeout: nobody answers. Both apps are notified, and both users can be called again.
func TestScenarioCallTimeout(t *testing.T) {
	t.Parallel()
	eachSite(t, func(t *testing.T, one, two *testserver.Server) {
		alice := openApp(t, one, appOptions{user: "alice"})
		bob := openApp(t, two, appOptions{user: "bob"})
		path := ring(t, one, `{"from":"alice","to":"bob"}`)
		require.Nil(t, alice.untilCall(t, path, "missed")["by"])
		bob.untilCall(t, path, "missed")
		ring(t, two, `{"from":"bob","to":"alice"}`)
	}, "--ring-timeout", "1s")
}

// TestScenarioDisconnectInCall: "user:disconnect" in a call. The app crashes, or leaves without ending the call:
// "friend_offline" comes at once. The call is lost, so that the other user is not in a call any longer.
func TestScenarioDisconnectInCall(t *testing.T) {
	t.Parallel()
	for name, disconnect := range map[string]func(*chatApp, *testing.T){
		"crash": func(a *chatApp, t *testing.T) { a.kill(t) },
		"leave": (*chatApp).leave,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachSite(t,
				func(t *testing.T, one, two *testserver.Server) { testDisconnectInCall(t, one, two, disconnect) },
				"--green", "3s", "--yellow", "1m", "--ping-interval", "1s", "--disconnect-grace", "0")
		})
	}
}

// followedCall has Alice and Bob, on two servers, in a call, and Carol who follows both. It returns their apps, and the
// path of the call.
func followedCall(t *testing.T, one, two *testserver.Server) (alice, bob, carol *chatApp, path string) {
	t.Helper()
	alice = openApp(t, one, appOptions{user: "alice"})
	bob = openApp(t, two, appOptions{user: "bob"})
	carol = openApp(t, one, appOptions{user: "carol", friends: []string{"alice", "bob"}})
	path = ring(t, one, `{"from":"alice","to":"bob"}`)
	act(t, two, path, "accept", "bob")
	carol.until(t, "alice", "green in a call")
	carol.until(t, "bob", "green in a call")
	return alice, bob, carol, path
}

func testDisconnectInCall(t *testing.T, one, two *testserver.Server, disconnect func(*chatApp, *testing.T)) {
	alice, bob, carol, path := followedCall(t, one, two)

	// While both are connected, the call continues: it would be lost later and later.
	for range 2 {
		expires := two.Get(t, path)["expires_at"].(string)
		require.Eventually(t, func() bool {
			later, _ := two.Get(t, path)["expires_at"].(string)
			return later > expires
		}, scenarioWait, 50*time.Millisecond)
	}

	disconnect(bob, t)
	carol.until(t, "bob", "left")
	require.Nil(t, alice.untilCall(t, path, "lost")["by"])
	carol.until(t, "alice", "green")
	ring(t, one, `{"from":"alice","to":"carol"}`)
}

// leave ends the connection as an app does that is closed.
func (a *chatApp) leave(t *testing.T) {
	t.Helper()
	a.send(t, `{"leave":{}}`)
	a.untilEnded(t)
}

// TestScenarioLeaveInCall: "user:disconnect" of an app that leaves in a call and does not end it. Its user is shown as
// offline at once, and so not in a call, but the call continues: the app can come back to it. If the app ends the call
// before it leaves, the other one gets "call:ended" at once.
func TestScenarioLeaveInCall(t *testing.T) {
	t.Parallel()
	eachSite(t, func(t *testing.T, one, two *testserver.Server) {
		alice, bob, carol, path := followedCall(t, one, two)

		bob.leave(t)
		carol.until(t, "bob", "left")
		require.Equal(t, "left", look(t, one, "bob", ""))
		require.Equal(t, "green in a call", look(t, two, "alice", ""))
		require.Equal(t, "active", one.Get(t, path)["state"])
		bob = openApp(t, two, appOptions{user: "bob"})
		carol.until(t, "bob", "green in a call")

		require.Equal(t, "ended", act(t, two, path, "end", "bob"))
		bob.leave(t)
		require.Equal(t, "bob", alice.untilCall(t, path, "ended")["by"].(map[string]any)["user"])
		carol.until(t, "bob", "left")
		carol.until(t, "alice", "green")
	}, "--green", "2m", "--disconnect-grace", "0")
}
