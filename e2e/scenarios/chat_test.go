package scenarios

import (
	"net/http"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testserver"
)

// The scenarios in this file are those of an instant messenger, whose server keeps one of five statuses for each user:
// StatusOffline, StatusOnline, StatusAway, StatusBusy and StatusInvisible. Besides, it keeps who is typing, when users
// were last online, and their devices: phone, computer or web. "updatePresence" sets a status, "notifyPresenceChange"
// sends it to friends. Clients send heartbeats, fewer of them while the app is in the background. Names in quotes, and
// those of statuses and app states, are the messenger's. In all scenarios, Bob's app follows Alice.

// TestScenarioStatuses: Alice goes through all statuses of the messenger: StatusOffline, StatusOnline, StatusAway,
// StatusBusy and StatusInvisible. Each is sent to Bob: "notifyPresenceChange".
func TestScenarioStatuses(t *testing.T) {
	t.Parallel()
	eachSite(t, func(t *testing.T, one, two *testserver.Server) {
		bob := openApp(t, two, appOptions{user: "bob", friends: []string{"alice"}})
		say := func(body string) { one.Succeed(t, http.MethodPut, chatUsers+"alice/availability", body) }

		// StatusOffline: nobody has seen Alice.
		require.Equal(t, []string{"never seen"}, bob.all("alice"))

		// StatusOnline, "setOnlineStatus": on two devices, whose kinds are the device information.
		phone := openApp(t, one, appOptions{user: "alice", kind: "mobile", friends: []string{"carol"}})
		laptop := openApp(t, two, appOptions{user: "alice", kind: "desktop"})
		bob.until(t, "alice", "green")
		require.ElementsMatch(t, []any{"mobile", "desktop"}, one.Get(t, chatUsers+"alice/devices")["kinds"])

		// "updatePresence" with StatusAway, and with StatusBusy, without a note and with one. Her other devices show
		// it, too.
		say(`{"availability":"away"}`)
		bob.until(t, "alice", "green away")
		say(`{"availability":"busy"}`)
		bob.until(t, "alice", "green busy")
		say(`{"availability":"busy","note":"in a meeting"}`)
		bob.until(t, "alice", "green busy in a meeting")
		const inMeeting = `{"availability":"busy","note":"in a meeting","until":null}`
		phone.untilFrame(t, "self", inMeeting)
		laptop.untilFrame(t, "self", inMeeting)

		// StatusAway for some time: it ends by itself.
		say(`{"availability":"away","for":"2s"}`)
		bob.until(t, "alice", "green away")
		bob.until(t, "alice", "green")
		laptop.untilFrame(t, "self", `{"availability":null,"note":null,"until":null}`)

		// Typing: Alice types to Bob.
		phone.send(t, `{"typing":{"to":["bob"],"in":"room-7"}}`)
		bob.untilFrame(t, "typing", `{"user":"alice","in":"room-7","expires_in_ms":10000}`)

		// StatusInvisible: she looks as if she had left. Her own devices know, and she still sees her friends.
		say(`{"availability":"invisible"}`)
		bob.until(t, "alice", "left")
		laptop.untilFrame(t, "self", `{"availability":"invisible","note":null,"until":null}`)
		openApp(t, two, appOptions{user: "carol"})
		phone.until(t, "carol", "green")
		two.Post(t, chatUsers+"alice/ping", "")
		require.Equal(t, "left", look(t, two, "alice", ""))
		require.Empty(t, two.Get(t, chatUsers+"alice/devices")["kinds"])

		// StatusOnline again: her connections, which are still open, make her green.
		one.Succeed(t, http.MethodDelete, chatUsers+"alice/availability", "")
		bob.until(t, "alice", "green")
		untilDevices(t, one, 2, 0)

		// StatusOffline, "setOfflineStatus": she signs out on one device, then on the other. The time last online
		// stays.
		phone.send(t, `{"leave":{}}`)
		phone.untilEnded(t)
		require.Equal(t, "green", look(t, two, "alice", ""))
		laptop.send(t, `{"leave":{}}`)
		bob.until(t, "alice", "left")
		require.NotNil(t, one.Get(t, chatUsers+"alice")["last_seen"])
		require.Equal(t, []string{
			"never seen", "green", "green away", "green busy", "green busy in a meeting", "green away", "green", "left",
			"green", "left",
		}, bob.all("alice"))
	}, "--ping-interval", "1s")
}

// TestScenarioSleep: Alice's phone is asleep or locked, or the app goes to the background. Heartbeats can stop, but
// nobody left the app: "handleAppStateChange" changes what it sends.
func TestScenarioSleep(t *testing.T) {
	t.Parallel()
	eachSite(t, func(t *testing.T, one, two *testserver.Server) {
		bob := openApp(t, two, appOptions{user: "bob", friends: []string{"alice"}})
		phone := openApp(t, one, appOptions{user: "alice"})
		bob.until(t, "alice", "green")

		// AppStateInactive: the screen is locked, and Alice is shown as idle. AppStateForeground: it is unlocked. Then
		// it is locked again.
		phone.send(t, `{"activity":{"idle":true}}`)
		bob.until(t, "alice", "green idle")
		phone.send(t, `{"activity":{"idle":false}}`)
		bob.until(t, "alice", "green")
		phone.send(t, `{"activity":{"idle":true}}`)
		bob.until(t, "alice", "green idle")

		// AppStateBackground: the app pings over HTTP from time to time. The end of its connection is not the end of
		// it.
		one.Post(t, chatUsers+"alice/ping", `{"device":{"id":"background","kind":"mobile"},"activity":"idle"}`)
		phone.kill(t)
		untilDevices(t, two, 1, 1)
		require.Equal(t, "green idle", look(t, two, "alice", ""))

		// AppStateForeground: the app is opened again.
		openApp(t, one, appOptions{user: "alice"})
		bob.until(t, "alice", "green")
		require.Equal(t, []string{
			"never seen", "green", "green idle", "green", "green idle", "green",
		}, bob.all("alice"))
	}, "--disconnect-grace", "0")
}

// TestScenarioPlannedRestart: a server is restarted. It asks the apps to connect to another one, "Connect" and
// "RestoreState" succeed there, and nobody sees anything.
func TestScenarioPlannedRestart(t *testing.T) {
	t.Parallel()
	args := append(onRedis(t), "--connect-drain", "30s", "--disconnect-grace", "0")
	one, two := testserver.Start(t, args...), testserver.Start(t, args...)
	bob := openApp(t, two, appOptions{user: "bob", friends: []string{"alice", "carol"}})
	alice := openApp(t, one, appOptions{user: "alice", friends: []string{"bob"}})
	bob.until(t, "alice", "green")

	// The server is stopped: the app connects to the other one, and then closes its first connection.
	require.NoError(t, one.Cmd.Process.Signal(syscall.SIGTERM))
	alice.untilFrame(t, "bye", "")
	again := openApp(t, two, appOptions{user: "alice", friends: []string{"bob"}, cursor: alice.position()})
	require.NoError(t, alice.socket.Close(websocket.StatusNormalClosure, ""))
	require.NoError(t, one.Cmd.Wait())

	// The next one is started, and the other one is stopped.
	one = testserver.Start(t, args...)
	require.Equal(t, "green", look(t, one, "alice", ""))
	openApp(t, two, appOptions{user: "carol"}).send(t, `{"leave":{}}`)
	bob.until(t, "carol", "left")
	require.Equal(t, []string{"never seen", "green"}, bob.all("alice"))
	require.NoError(t, two.Cmd.Process.Signal(syscall.SIGTERM))
	again.untilFrame(t, "bye", "")
	openApp(t, one, appOptions{user: "alice"})
	require.Equal(t, "green", look(t, one, "alice", ""))
	require.Equal(t, []string{"never seen", "green"}, bob.all("alice"))
}

// TestScenarioCrash: all servers are killed, and the state of their connections is lost. "restoreConnections": nobody
// is offline because of that. Users whom the messenger calls StatusPending, until they connect or 5 minutes have
// passed, are as they were: those who come back within the thresholds stay green, the others turn yellow and grey.
// Friends, and the availability of users, are there as well.
func TestScenarioCrash(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"file":  {"--store", filepath.Join(t.TempDir(), "data.db"), "--sync", "0"},
		"redis": onRedis(t),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := testserver.Start(t, args...)
			bob := openApp(t, s, appOptions{user: "bob", friends: []string{"alice", "carol"}})
			alice := openApp(t, s, appOptions{user: "alice"})
			openApp(t, s, appOptions{user: "carol"})
			bob.until(t, "alice", "green")
			bob.until(t, "carol", "green")
			s.Succeed(t, http.MethodPut, chatUsers+"alice/contacts", `{"users":["bob","dave","erin"]}`)
			s.Succeed(t, http.MethodPut, chatUsers+"dave/availability", `{"availability":"busy","note":"in a meeting"}`)
			seen := s.Post(t, chatUsers+"dave/ping", "")["last_seen"]
			s.Kill()
			alice.untilEnded(t)
			bob.untilEnded(t)

			// The server is back, and nobody is connected yet: what would be StatusPending is as it was.
			s = testserver.Start(t, args...)
			require.Equal(t, "green", look(t, s, "alice", ""))
			require.Equal(t, "green", look(t, s, "carol", ""))
			require.Equal(t, "green busy in a meeting", look(t, s, "dave", ""))
			require.Equal(t, seen, s.Get(t, chatUsers+"dave")["last_seen"])
			require.Equal(t, []string{"bob", "dave"}, onlineFriends(t, s, "alice"))

			// "reconnectWithBackoff": Alice and Bob come back. "RestoreState": Bob's app continues where it was, and is
			// sent nothing but what happens.
			openApp(t, s, appOptions{user: "alice"})
			cursor := bob.position()
			bob = openApp(t, s, appOptions{user: "bob", friends: []string{"alice", "carol"}, cursor: cursor})
			s.Post(t, chatUsers+"alice/leave", "") // on all devices: the app before the crash has not left
			bob.until(t, "alice", "left")
			require.Subset(t, []string{"green", "left"}, bob.all("alice"))
			require.Subset(t, []string{"green"}, bob.all("carol"))

			// Carol does not come back within 5 minutes, so she is StatusOffline: she turns yellow, and then grey, but
			// never "left".
			soon := func(d time.Duration) string { return "?as_of=" + time.Now().Add(d).UTC().Format(time.RFC3339) }
			require.Equal(t, "yellow", look(t, s, "carol", soon(2*time.Minute)))
			require.Equal(t, "grey", look(t, s, "carol", soon(6*time.Minute)))
		})
	}
}
