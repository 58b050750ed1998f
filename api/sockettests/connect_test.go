package sockettests

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api/apitest"
	"github.com/lastseen/lastseen/api/apitest/kit"
	"github.com/lastseen/lastseen/api/live/transport"
	"github.com/lastseen/lastseen/api/problem"
)

// TestConnectIsPresence: a user who holds a connection is present until the leave. Without the ID of a device, the
// server makes one. A user has a limited number of connections.
func TestConnectIsPresence(t *testing.T) {
	w := apitest.NewSocketServer(t)
	alice, welcome := w.Hello(`{"user":"alice","device":{"id":"tab","kind":"web","meta":{"v":1}}}`)
	require.Equal(t, "tab", welcome["device"])
	require.NotEmpty(t, welcome["connection"])
	require.Subset(t, welcome["self"], map[string]any{"user": "alice", "status": "green", "valid_until": nil})
	require.NotContains(t, welcome, "cursor", "it watches nothing")
	require.NotContains(t, welcome, "expires_in_ms")
	require.EqualValues(t, 60_000, welcome["green_ms"])
	require.EqualValues(t, 300_000, welcome["yellow_ms"])
	require.Equal(t, "green", w.Get("/chat/users/alice")["status"])
	require.Equal(t, "web", kit.FirstOf(w.Get("/chat/users/alice/devices"), "devices")["kind"])
	alice.Quiet()
	alice.Asks(`{"leave":{}}`, "ok")
	alice.Closed(transport.CodeNormal, "")
	require.Equal(t, "grey", w.Get("/chat/users/alice")["status"])

	made := map[any]bool{}
	for _, device := range []string{"", `,"device":{"kind":"mobile"}`, "", ""} { // as many as held allows
		_, welcome := w.Hello(`{"user":"bob"` + device + `}`)
		require.NotEmpty(t, welcome["device"])
		made[welcome["device"]] = true
	}
	require.Len(t, made, 4)
	w.Greet(`{"user":"bob"}`).Fails(problem.RateLimited)
	w.Hello(`{"user":"carol"}`)
}

// TestConnectIdle: a hello says since when the person does not use the device. What follows counts.
func TestConnectIdle(t *testing.T) {
	w := apitest.NewSocketServer(t)
	alice, welcome := w.Hello(`{"user":"alice","device":{"id":"tab"},"activity":{"idle":true,"idle_ms":3600000}}`)
	require.Subset(t, welcome["self"], map[string]any{"status": "green"})
	since, err := time.Parse(time.RFC3339, w.Get("/chat/users/alice")["idle_since"].(string))
	require.NoError(t, err)
	require.Less(t, since, time.Now().Add(-time.Hour+time.Second))
	_, _ = w.Hello(`{"user":"alice","device":{"id":"tab"}}`)
	require.Equal(t, "idle", w.Get("/chat/users/alice")["activity"], "as the device was")
	_, _ = w.Hello(`{"user":"alice","device":{"id":"phone"},"activity":{"idle":false}}`)
	require.NotContains(t, w.Get("/chat/users/alice"), "activity")
	alice.Quiet()
}

// TestConnectEndsWithCloseFrame: a close frame is a leave, which is written after the grace, unless the user is back.
func TestConnectEndsWithCloseFrame(t *testing.T) {
	w := apitest.NewSocketServer(t)
	one, _ := w.Hello(`{"user":"alice","grace_ms":0}`)
	bye := websocket.FormatCloseMessage(websocket.CloseGoingAway, "")
	require.NoError(t, one.Conn.WriteMessage(websocket.CloseMessage, bye))
	one.Closed(websocket.CloseGoingAway, "")
	w.AwaitAlice("left", true)
}

// TestConnectRefusals: what is refused before the upgrade.
func TestConnectRefusals(t *testing.T) {
	w := apitest.NewSocketServer(t, apitest.Allowing("https://app.example.com", "capacitor://localhost"))
	const path = "/chat/connect"
	key := "Sec-WebSocket-Key: "
	for want, requests := range map[problem.Code][][]string{
		problem.UpgradeRequired: {
			nil,
			{"Connection: Upgrade"},
			{"Upgrade: websocket"},
			{"Connection: Upgrade", "Upgrade: h2c"},
			append(kit.UpgradeHeaders()[:2], "Sec-WebSocket-Version: 12"),
		},
		problem.InvalidParameter: {
			kit.UpgradeHeaders()[:3], append(kit.UpgradeHeaders()[:3], key+"c2hvcnQ="), kit.UpgradeHeaders(key +
				"dGhlIHNhbXBsZSBub25jZQ=="),
		},
	} {
		for _, headers := range requests {
			w.Fails(want, "GET", path, "", headers...)
		}
	}
	w.Fails(problem.InvalidParameter, "GET", path, "body", kit.UpgradeHeaders()...)
	w.Fails(problem.UnknownParameter, "GET", path+"?token=x", "", kit.UpgradeHeaders()...)
	w.Fails(problem.InvalidNamespace, "GET", "/.x/connect", "", kit.UpgradeHeaders()...)
	for _, origin := range []string{
		"https://evil.example", "null", "app://evil", "https://app.example.com.evil.example", "http://app.example.com",
		w.URL + ".evil.example", "file://", "", "ionic://localhost",
	} {
		w.Refused(problem.Forbidden, "Origin: "+origin)
	}
	w.Refused(problem.Forbidden, "Origin: https://app.example.com", "Origin: https://evil.example")
	for _, origin := range []string{"https://app.example.com", "capacitor://localhost", w.URL} {
		w.DialSocket("chat", "Origin: "+origin)
	}
	w.DialSocket("chat")
}

// TestConnectSubprotocol: a client gets the one that it offers, or none.
func TestConnectSubprotocol(t *testing.T) {
	w := apitest.NewSocketServer(t)
	for offered, want := range map[string]string{
		"": "", "lastseen.v1": "lastseen.v1", "other": "", "other, lastseen.v1": "lastseen.v1",
	} {
		headers := []string{}
		if offered != "" {
			headers = append(headers, "Sec-WebSocket-Protocol: "+offered)
		}
		require.Equal(t, want, w.DialSocket("chat", headers...).Conn.Subprotocol(), offered)
	}
	w.Refused(problem.InvalidParameter, "Sec-WebSocket-Protocol: a"+strings.Repeat(",b", kit.MaxHeaderLines))
}

// TestConnectDrain: a server that stops asks its clients to connect elsewhere, and closes those that do not.
func TestConnectDrain(t *testing.T) {
	w := apitest.NewSocketServer(t)
	one, _ := w.Hello(`{"user":"alice","grace_ms":0}`)
	two, _ := w.Hello(`{"watch":{"users":["alice"]}}`)
	waiting := w.DialSocket("chat")
	w.Config.Shared.Drain()
	require.Contains(t, one.Want("bye"), "reconnect_after_ms")
	two.Want("bye")
	w.Refused(problem.ShuttingDown)
	waiting.Want("bye")
	waiting.Send(`{"hello":{"user":"bob"}}`)
	waiting.Fails(problem.ShuttingDown)
	require.NoError(t, one.Conn.Close())
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	w.Config.Shared.EndWebSockets(ctx)
	two.Closed(4503, string(problem.ShuttingDown))
	w.AwaitSockets(0)
	w.Config.Shared.EndWebSockets(t.Context())
	w.Config.Connections.Stop(t.Context()) // writes the leaves that wait
	require.Equal(t, "green", w.Get("/chat/users/alice")["status"], "it was the server's wish")
}
