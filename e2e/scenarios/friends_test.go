package scenarios

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testserver"
)

// The scenarios in this file are those of an app for friends with voice calls, on several servers with one Redis: it
// keeps which friends of a user are online, copies the list of friends from the app's database, and sends events to
// friends. Users send user:connect and user:disconnect, their friends are sent friend_online and friend_offline. The
// names of its steps, methods and queries are in quotes. Here, friends are contacts, and the app follows them on its
// connection. Its calls are in calls_test.go.

func onlineFriends(t *testing.T, s *testserver.Server, user string) (friends []string) {
	t.Helper()
	friends = []string{}
	for _, presence := range s.Get(t, chatUsers+user+"/contacts?status=green")["users"].([]any) {
		friends = append(friends, presence.(map[string]any)["user"].(string))
	}
	return friends
}

// TestScenarioFriends: "onUserConnected" and "onUserDisconnected". Users connect and disconnect, and their friends are
// sent "friend_online" and "friend_offline".
func TestScenarioFriends(t *testing.T) {
	t.Parallel()
	eachSite(t, func(t *testing.T, one, two *testserver.Server) {
		// "Friends set doesn't exist": the backend copies the friends of Alice and Bob from its database.
		one.Succeed(t, http.MethodPut, chatUsers+"alice/contacts", `{"users":["bob","carol"]}`)
		one.Succeed(t, http.MethodPut, chatUsers+"bob/contacts", `{"users":["alice"]}`)

		// "user:connect" of Bob: "Online friends list" has those of his friends who are online. He follows them.
		bob := openApp(t, two, appOptions{user: "bob", friends: []string{"alice"}})
		require.Empty(t, onlineFriends(t, two, "bob"))
		require.Equal(t, []string{"never seen"}, bob.all("alice"))

		// "user:connect" of Alice, to another server: she gets her "Online friends list", and Bob is sent
		// "friend_online".
		alice := openApp(t, one, appOptions{user: "alice", friends: []string{"bob", "carol"}})
		require.Equal(t, []string{"bob"}, onlineFriends(t, one, "alice"))
		require.Equal(t, []string{"green"}, alice.all("bob"))
		require.Equal(t, []string{"never seen"}, alice.all("carol"))
		bob.until(t, "alice", "green")
		require.Equal(t, []string{"alice"}, onlineFriends(t, two, "bob"))

		// "user:connect" of Carol: Alice is sent "friend_online". Bob is not, because Carol is not his friend.
		carol := openApp(t, two, appOptions{user: "carol"})
		alice.until(t, "carol", "green")
		require.Equal(t, []string{"bob", "carol"}, onlineFriends(t, one, "alice"))

		// "user:disconnect" of Alice: her friends are sent "friend_offline".
		alice.send(t, `{"leave":{}}`)
		bob.until(t, "alice", "left")
		require.Equal(t, []string{"never seen", "green", "left"}, bob.all("alice"))
		require.Empty(t, bob.all("carol"))
		require.Empty(t, carol.all("alice"))
		require.Empty(t, onlineFriends(t, two, "bob"))

		// "Friends set exists (cached)": her list is still there at her next "user:connect", also if nobody loads it
		// from the database.
		require.Equal(t, []string{"bob", "carol"}, onlineFriends(t, one, "alice"))
		openApp(t, one, appOptions{user: "alice"})
		bob.until(t, "alice", "green")
	})
}

// TestScenarioFriendRequest: "accepting the contact request". Users become friends, and stop being friends, while both
// are online.
func TestScenarioFriendRequest(t *testing.T) {
	t.Parallel()
	eachSite(t, func(t *testing.T, one, two *testserver.Server) {
		alice := openApp(t, one, appOptions{user: "alice", friends: []string{}})
		bob := openApp(t, two, appOptions{user: "bob", friends: []string{}})

		// Bob accepts Alice's contact request: the backend adds each to the other's list, and the apps follow the new
		// friend.
		one.Succeed(t, http.MethodPatch, chatUsers+"alice/contacts", `{"add":["bob"]}`)
		two.Succeed(t, http.MethodPatch, chatUsers+"bob/contacts", `{"add":["alice"]}`)
		alice.send(t, `{"watch":{"add":["bob"]}}`)
		bob.send(t, `{"watch":{"add":["alice"]}}`)
		alice.until(t, "bob", "green")
		bob.until(t, "alice", "green")
		require.Equal(t, []string{"bob"}, onlineFriends(t, two, "alice"))

		// Bob removes Alice: he does not see her any longer. She still has him in her list until it is changed, too.
		two.Succeed(t, http.MethodPatch, chatUsers+"bob/contacts", `{"remove":["alice"]}`)
		bob.send(t, `{"watch":{"remove":["alice"],"add":["carol"]},"id":"removed"}`)
		bob.until(t, "carol", "never seen") // the answer
		alice.send(t, `{"leave":{}}`)
		alice.untilEnded(t) // the server closes it once she has left
		openApp(t, two, appOptions{user: "carol"})
		bob.until(t, "carol", "green") // a later change
		require.Equal(t, []string{"green"}, bob.all("alice"))
		require.Empty(t, onlineFriends(t, one, "bob"))
		require.Equal(t, []string{"bob"}, onlineFriends(t, one, "alice"))
	})
}

// TestScenarioGateway: "Multi-instance". Socket servers that hold the sockets of their users themselves report them in
// bulk.
func TestScenarioGateway(t *testing.T) {
	t.Parallel()
	eachSite(t, func(t *testing.T, one, two *testserver.Server) {
		// report sends an item for each of the users of a gateway.
		const users = 500
		report := func(s *testserver.Server, operation, gateway string) {
			items := make([]string, users)
			for i := range items {
				items[i] = fmt.Sprintf(`{"user":"%d","device":{"id":%q,"kind":"web"}}`, i, gateway)
			}
			s.Post(t, "/v1/namespaces/chat/"+operation, fmt.Sprintf(`{%q:[%s]}`, operation, strings.Join(items, ",")))
		}
		watcher := openApp(t, two, appOptions{user: "watcher", friends: []string{"0", "499"}})

		// Two gateways report the users on their sockets. The users are on both.
		report(one, "pings", "gateway-1")
		report(two, "pings", "gateway-2")
		watcher.until(t, "0", "green")
		watcher.until(t, "499", "green")

		// One gateway closes the sockets: the users are still on the other one.
		report(one, "leaves", "gateway-1")
		require.Equal(t, "green", look(t, two, "0", ""))
		require.EqualValues(t, users+1, two.Get(t, "/v1/namespaces/chat/counts")["green"])

		// The other one closes them, too: the users are offline.
		report(two, "leaves", "gateway-2")
		watcher.until(t, "0", "left")
		watcher.until(t, "499", "left")
		require.Equal(t, []string{"never seen", "green", "left"}, watcher.all("499"))
		require.EqualValues(t, 1, one.Get(t, "/v1/namespaces/chat/counts")["green"])
	})
}
