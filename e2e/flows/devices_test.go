package flows

import (
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testserver"
)

// The flows in this file are those of a presence service on Redis that keeps each connection of a user, with the device
// (web, mobile or desktop), when it was connected and last seen, and the last activity (typing, idle or active), and
// for each user a status, online or offline, the last-seen time and the number of active connections. Connections
// expire 60 seconds after their last heartbeat. Users who are offline keep their last-seen time for 10 minutes. The
// names of its steps are in quotes.

// TestFlowDevices: "Handle Multiple Devices". A user connects with a browser and a phone, and disconnects one after the
// other.
func TestFlowDevices(t *testing.T) {
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

// TestFlowHeartbeatsEnd: "Heartbeat". Devices send one every 30 seconds over HTTP, each "Refresh connection", and stop
// without a goodbye. Each keeps the user online; 60 seconds after the last one of all devices, the user is not, and 10
// minutes after it the user is offline.
func TestFlowHeartbeatsEnd(t *testing.T) {
	t.Parallel()
	begin := time.Now().Add(-time.Hour).Truncate(time.Second)
	at := func(seconds int) string {
		return begin.Add(time.Duration(seconds) * time.Second).UTC().Format(time.RFC3339)
	}
	testserver.EachStore(t, func(t *testing.T, args []string) {
		s := testserver.Start(t, append(args, "--green", "60s", "--yellow", "10m")...)
		beat := func(device string, seconds int) {
			s.Post(t, chatUsers+"alice/ping", `{"device":{"id":"`+device+`"},"at":"`+at(seconds)+`"}`)
		}
		look := func(seconds int) string { return look(t, s, "alice", "?as_of="+at(seconds)) }
		beat("web", 0)
		beat("phone", 10)
		beat("web", 30) // its last one
		beat("phone", 40)
		beat("phone", 70) // its last one
		require.Equal(t, "green", look(129))
		require.Equal(t, "yellow", look(130))
		require.Equal(t, "yellow", look(669))
		require.Equal(t, "grey", look(670))
		require.Equal(t, begin.Add(70*time.Second).UTC().Format("2006-01-02T15:04:05.000Z"),
			s.Get(t, chatUsers+"alice")["last_seen"])
	})
}

// TestFlowLastSeenKept: "Offline Presence". When a user was last seen, and whether the user left, stays through a
// restart, also for "Check if user is online" and "Batch check multiple users".
func TestFlowLastSeenKept(t *testing.T) {
	t.Parallel()
	store := filepath.Join(t.TempDir(), "data.db")
	s := testserver.Start(t, "--store", store)
	app := openApp(t, s, appOptions{user: "alice"})
	app.send(t, `{"leave":{}}`)
	app.untilEnded(t)
	before := s.Get(t, chatUsers+"alice")
	require.Equal(t, "left", testserver.InWords(before))
	require.Zero(t, s.Terminate(t))
	s = testserver.Start(t, "--store", store)
	after := s.Get(t, chatUsers+"alice")
	require.Equal(t, before["last_seen"], after["last_seen"])
	require.Equal(t, "left", testserver.InWords(after))
	found := s.Succeed(t, http.MethodGet, "/v1/namespaces/chat/lookup?user=alice", "")["users"].([]any)
	require.Equal(t, before["last_seen"], found[0].(map[string]any)["last_seen"])
}
