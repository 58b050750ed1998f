package main

import (
	"net/http"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"
)

// The flows in this file are those of the statuses in a chat: online, offline, away, busy, invisible, asleep, and what
// a restart of servers does to them. In all of them, Bob's app follows Alice.

// TestFlowStatuses: Alice comes online, says that she is away and busy, types, hides, and goes offline.
func TestFlowStatuses(t *testing.T) {
	t.Parallel()
	eachSite(t, func(t *testing.T, one, two *service) {
		bob := two.openApp(t, appOptions{user: "bob", friends: []string{"alice"}})
		say := func(body string) { one.succeed(t, http.MethodPut, chatUsers+"alice/availability", body) }

		// Offline: nobody has seen Alice.
		require.Equal(t, []string{"never seen"}, bob.all("alice"))

		// Online, on two devices.
		phone := one.openApp(t, appOptions{user: "alice", kind: "mobile", friends: []string{"carol"}})
		laptop := two.openApp(t, appOptions{user: "alice", kind: "desktop"})
		bob.until(t, "alice", "green")
		require.ElementsMatch(t, []any{"mobile", "desktop"}, one.get(t, chatUsers+"alice/devices")["kinds"])

		// Away, busy, busy with a note. Her other devices show it, too.
		say(`{"availability":"away"}`)
		bob.until(t, "alice", "green away")
		say(`{"availability":"busy"}`)
		bob.until(t, "alice", "green busy")
		say(`{"availability":"busy","note":"in a meeting"}`)
		bob.until(t, "alice", "green busy in a meeting")
		const inMeeting = `{"availability":"busy","note":"in a meeting","until":null}`
		phone.untilFrame(t, "self", inMeeting)
		laptop.untilFrame(t, "self", inMeeting)

		// Away for some time: it ends by itself.
		say(`{"availability":"away","for":"2s"}`)
		bob.until(t, "alice", "green away")
		bob.until(t, "alice", "green")
		laptop.untilFrame(t, "self", `{"availability":null,"note":null,"until":null}`)

		// Alice types.
		phone.send(t, `{"typing":{"to":["bob"],"in":"room-7"}}`)
		bob.untilFrame(t, "typing", `{"user":"alice","in":"room-7","expires_in_ms":10000}`)

		// Invisible: she looks as if she had left. Her own devices know, and she still sees her friends.
		say(`{"availability":"invisible"}`)
		bob.until(t, "alice", "left")
		laptop.untilFrame(t, "self", `{"availability":"invisible","note":null,"until":null}`)
		two.openApp(t, appOptions{user: "carol"})
		phone.until(t, "carol", "green")
		two.post(t, chatUsers+"alice/ping", "")
		require.Equal(t, "left", two.look(t, "alice", ""))
		require.Empty(t, two.get(t, chatUsers+"alice/devices")["kinds"])

		// Visible again: her connections, which are still open, make her green.
		one.succeed(t, http.MethodDelete, chatUsers+"alice/availability", "")
		bob.until(t, "alice", "green")
		one.untilDevices(t, 2, 0)

		// Offline: she signs out on one device, then on the other. When she was last seen stays.
		phone.send(t, `{"leave":{}}`)
		<-phone.ended
		require.Equal(t, "green", two.look(t, "alice", ""))
		laptop.send(t, `{"leave":{}}`)
		bob.until(t, "alice", "left")
		require.NotNil(t, one.get(t, chatUsers+"alice")["last_seen"])
		require.Equal(t, []string{
			"never seen", "green", "green away", "green busy", "green busy in a meeting", "green away", "green", "left",
			"green", "left",
		}, bob.all("alice"))
	}, "--ping-interval", "1s")
}

// TestFlowSleep: Alice's phone is locked, then the system closes the connection of the app, which runs in the
// background.
func TestFlowSleep(t *testing.T) {
	t.Parallel()
	eachSite(t, func(t *testing.T, one, two *service) {
		bob := two.openApp(t, appOptions{user: "bob", friends: []string{"alice"}})
		phone := one.openApp(t, appOptions{user: "alice"})
		bob.until(t, "alice", "green")

		// The screen is locked: Alice is shown as idle. It is unlocked, and locked again.
		phone.send(t, `{"activity":{"idle":true}}`)
		bob.until(t, "alice", "green idle")
		phone.send(t, `{"activity":{"idle":false}}`)
		bob.until(t, "alice", "green")
		phone.send(t, `{"activity":{"idle":true}}`)
		bob.until(t, "alice", "green idle")

		// In the background, the app pings over HTTP from time to time. The end of its connection is not the end of it.
		one.post(t, chatUsers+"alice/ping", `{"device":{"id":"background","kind":"mobile"},"activity":"idle"}`)
		phone.kill()
		two.untilDevices(t, 1, 1)
		require.Equal(t, "green idle", two.look(t, "alice", ""))

		// The app is opened again.
		one.openApp(t, appOptions{user: "alice"})
		bob.until(t, "alice", "green")
		require.Equal(t, []string{
			"never seen", "green", "green idle", "green", "green idle", "green",
		}, bob.all("alice"))
	}, "--disconnect-grace", "0")
}

// TestFlowPlannedRestart: a server is restarted. It asks the apps to connect to another one, and nobody sees anything.
func TestFlowPlannedRestart(t *testing.T) {
	t.Parallel()
	args := append(onRedis(t), "--connect-drain", "30s", "--disconnect-grace", "0")
	one, two := start(t, args...), start(t, args...)
	bob := two.openApp(t, appOptions{user: "bob", friends: []string{"alice", "carol"}})
	alice := one.openApp(t, appOptions{user: "alice", friends: []string{"bob"}})
	bob.until(t, "alice", "green")

	// The server is stopped: the app connects to the other one, and then closes its first connection.
	require.NoError(t, one.cmd.Process.Signal(syscall.SIGTERM))
	alice.untilFrame(t, "bye", "")
	again := two.openApp(t, appOptions{user: "alice", friends: []string{"bob"}, cursor: alice.position()})
	require.NoError(t, alice.socket.Close(websocket.StatusNormalClosure, ""))
	require.NoError(t, one.cmd.Wait())

	// The next one is started, and the other one is stopped.
	one = start(t, args...)
	require.Equal(t, "green", one.look(t, "alice", ""))
	two.openApp(t, appOptions{user: "carol"}).send(t, `{"leave":{}}`)
	bob.until(t, "carol", "left")
	require.Equal(t, []string{"never seen", "green"}, bob.all("alice"))
	require.NoError(t, two.cmd.Process.Signal(syscall.SIGTERM))
	again.untilFrame(t, "bye", "")
	one.openApp(t, appOptions{user: "alice"})
	require.Equal(t, "green", one.look(t, "alice", ""))
	require.Equal(t, []string{"never seen", "green"}, bob.all("alice"))
}

// TestFlowCrash: all servers are killed. Nobody is offline because of that: those who come back within the thresholds
// stay green, the others turn yellow and grey.
func TestFlowCrash(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"file":  {"--store", filepath.Join(t.TempDir(), "data.db"), "--sync", "0"},
		"redis": onRedis(t),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, args...)
			bob := s.openApp(t, appOptions{user: "bob", friends: []string{"alice", "carol"}})
			alice := s.openApp(t, appOptions{user: "alice"})
			s.openApp(t, appOptions{user: "carol"})
			bob.until(t, "alice", "green")
			bob.until(t, "carol", "green")
			s.kill()
			<-alice.ended
			<-bob.ended

			// The server is back, and nobody is connected yet: the users are as they were.
			s = start(t, args...)
			require.Equal(t, "green", s.look(t, "alice", ""))
			require.Equal(t, "green", s.look(t, "carol", ""))

			// Alice and Bob come back. Bob's app continues where it was, and is sent nothing but what happens.
			s.openApp(t, appOptions{user: "alice"})
			cursor := bob.position()
			bob = s.openApp(t, appOptions{user: "bob", friends: []string{"alice", "carol"}, cursor: cursor})
			s.post(t, chatUsers+"alice/leave", "") // on all devices: the app before the crash has not said goodbye
			bob.until(t, "alice", "left")
			require.Subset(t, []string{"green", "left"}, bob.all("alice"))
			require.Subset(t, []string{"green"}, bob.all("carol"))

			// Carol does not come back: she turns yellow, and then grey, but never "left".
			soon := func(d time.Duration) string { return "?as_of=" + time.Now().Add(d).UTC().Format(time.RFC3339) }
			require.Equal(t, "yellow", s.look(t, "carol", soon(2*time.Minute)))
			require.Equal(t, "grey", s.look(t, "carol", soon(6*time.Minute)))
		})
	}
}
