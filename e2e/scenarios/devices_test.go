package scenarios

import (
	"net/http"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testserver"
)

// The scenarios in this file are those of a presence service on Redis that keeps each connection of a user, with the
// device (web, mobile or desktop), when it was connected and last seen, and the last activity (typing, idle or active),
// and for each user a status, online or offline, the last-seen time and the number of active connections. Connections
// expire 60 seconds after their last heartbeat. Users who are offline keep their last-seen time for 10 minutes. The
// names of its steps are in quotes.

// TestScenarioDevices: "Handle Multiple Devices". A user connects with a browser and a phone, and disconnects one after
// the other.
func TestScenarioDevices(t *testing.T) {
	t.Parallel()
	eachSite(t, func(t *testing.T, one, two *testserver.Server) {
		bob := openApp(t, two, appOptions{user: "bob", friends: []string{"alice"}})

		// "User connects": the connection is recorded, with "connectedAt", "lastSeen" and "device", and the user is
		// online.
		web := openApp(t, one, appOptions{user: "alice", kind: "web"})
		bob.until(t, "alice", "green")
		devices := two.Get(t, chatUsers+"alice/devices")
		require.Equal(t, []any{"web"}, devices["kinds"])
		device := devices["devices"].([]any)[0].(map[string]any)
		require.NotNil(t, device["since"])
		require.NotNil(t, device["last_seen"])

		// Another device connects to another server. "Get all connections for user": the kinds are those of all
		// connections.
		phone := openApp(t, two, appOptions{user: "alice", kind: "mobile"})
		untilDevices(t, one, 2, 0)
		require.ElementsMatch(t, []any{"web", "mobile"}, one.Get(t, chatUsers+"alice/devices")["kinds"])

		// "lastActivity": one is idle, the other one is active, and together they are active. Then both are idle.
		web.send(t, `{"activity":{"idle":true}}`)
		require.Equal(t, "active", two.Get(t, chatUsers+"alice/devices")["activity"])
		phone.send(t, `{"activity":{"idle":true}}`)
		bob.until(t, "alice", "green idle")
		phone.send(t, `{"activity":{"idle":false}}`)
		bob.until(t, "alice", "green")

		// "User disconnects" with the browser, "Check remaining connections": one remains, and the user is online.
		web.send(t, `{"leave":{}}`)
		untilDevices(t, one, 1, 1)
		require.Equal(t, "green", look(t, one, "alice", ""))
		require.Equal(t, []any{"mobile"}, one.Get(t, chatUsers+"alice/devices")["kinds"])

		// "User disconnects" with the last one: the user is offline at once, and "lastSeen" stays.
		phone.send(t, `{"leave":{}}`)
		bob.until(t, "alice", "left")
		require.Equal(t, []string{"never seen", "green", "green idle", "green", "left"}, bob.all("alice"))
		require.NotNil(t, two.Get(t, chatUsers+"alice")["last_seen"])
	})
}

// TestTerminateWritesLeaves checks that a leave that waits is written before the server ends.
func TestTerminateWritesLeaves(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data.db")
	s := testserver.Start(t, "--store", data)
	s.Post(t, alice+"/ping", `{"device":{"id":"tab"}}`)
	status, _ := s.Call(t, http.MethodPost, alice+"/leave", `{"device":{"id":"tab"},"after":"60s"}`)
	require.Equal(t, http.StatusAccepted, status)
	require.Equal(t, false, s.Get(t, alice)["left"])
	require.Zero(t, s.Terminate(t))
	s = testserver.Start(t, "--store", data)
	require.Equal(t, true, s.Get(t, alice)["left"])
}
