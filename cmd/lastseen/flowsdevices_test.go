package main

import (
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The flows in this file are those of users with several connections: what each of them is, what they are together, and
// what stays when they have ended.

// TestFlowDevices: a user connects with a browser and a phone, and disconnects one after the other.
func TestFlowDevices(t *testing.T) {
	t.Parallel()
	eachSite(t, func(t *testing.T, one, two *service) {
		bob := two.openApp(t, appOptions{user: "bob", friends: []string{"alice"}})

		// The user connects: the connection is recorded, and the user is online.
		web := one.openApp(t, appOptions{user: "alice", kind: "web"})
		bob.until(t, "alice", "green")
		devices := two.get(t, chatUsers+"alice/devices")
		require.Equal(t, []any{"web"}, devices["kinds"])
		device := devices["devices"].([]any)[0].(map[string]any)
		require.NotNil(t, device["since"])
		require.NotNil(t, device["last_seen"])

		// Another device connects to another server. The kinds are those of all connections.
		phone := two.openApp(t, appOptions{user: "alice", kind: "mobile"})
		one.untilDevices(t, 2, 0)
		require.ElementsMatch(t, []any{"web", "mobile"}, one.get(t, chatUsers+"alice/devices")["kinds"])

		// One is idle, the other one is used: together they are active. Then both are idle.
		web.send(t, `{"activity":{"idle":true}}`)
		require.Equal(t, "active", two.get(t, chatUsers+"alice/devices")["activity"])
		phone.send(t, `{"activity":{"idle":true}}`)
		bob.until(t, "alice", "green idle")
		phone.send(t, `{"activity":{"idle":false}}`)
		bob.until(t, "alice", "green")

		// The browser disconnects: one connection remains, and the user is online.
		web.send(t, `{"leave":{}}`)
		one.untilDevices(t, 1, 1)
		require.Equal(t, "green", one.look(t, "alice", ""))
		require.Equal(t, []any{"mobile"}, one.get(t, chatUsers+"alice/devices")["kinds"])

		// The last one disconnects: the user is offline at once, and when they were last seen stays.
		phone.send(t, `{"leave":{}}`)
		bob.until(t, "alice", "left")
		require.Equal(t, []string{"never seen", "green", "green idle", "green", "left"}, bob.all("alice"))
		require.NotNil(t, two.get(t, chatUsers+"alice")["last_seen"])
	})
}

// TestFlowHeartbeatsEnd: devices send heartbeats over HTTP, and stop without a goodbye. Each keeps the user online; the
// user decays when all have stopped.
func TestFlowHeartbeatsEnd(t *testing.T) {
	t.Parallel()
	begin := time.Now().Add(-time.Hour).Truncate(time.Second)
	at := func(seconds int) string {
		return begin.Add(time.Duration(seconds) * time.Second).UTC().Format(time.RFC3339)
	}
	eachStore(t, func(t *testing.T, args []string) {
		s := start(t, append(args, "--green", "60s", "--yellow", "10m")...)
		beat := func(device string, seconds int) {
			s.post(t, chatUsers+"alice/ping", `{"device":{"id":"`+device+`"},"at":"`+at(seconds)+`"}`)
		}
		look := func(seconds int) string { return s.look(t, "alice", "?as_of="+at(seconds)) }
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
			s.get(t, chatUsers+"alice")["last_seen"])
	})
}

// TestFlowLastSeenKept: when a user was last seen, and whether they left, stays through a restart.
func TestFlowLastSeenKept(t *testing.T) {
	t.Parallel()
	store := filepath.Join(t.TempDir(), "data.db")
	s := start(t, "--store", store)
	app := s.openApp(t, appOptions{user: "alice"})
	app.send(t, `{"leave":{}}`)
	<-app.ended
	before := s.get(t, chatUsers+"alice")
	require.Equal(t, "left", inWords(before))
	require.Zero(t, s.terminate(t))
	s = start(t, "--store", store)
	after := s.get(t, chatUsers+"alice")
	require.Equal(t, before["last_seen"], after["last_seen"])
	require.Equal(t, "left", inWords(after))
	found := s.succeed(t, http.MethodGet, "/v1/namespaces/chat/lookup?user=alice", "")["users"].([]any)
	require.Equal(t, before["last_seen"], found[0].(map[string]any)["last_seen"])
}
