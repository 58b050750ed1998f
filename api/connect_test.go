package api

import (
	"context"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lastseen/lastseen/api/live/transport"
	"github.com/lastseen/lastseen/api/problem"
)

// upgradeHeaders are the headers of a request for a WebSocket, as requests of package net/http need them.
func upgradeHeaders(more ...string) []string {
	return append([]string{
		"Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13",
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
	}, more...)
}

// upgrades provokes the responses of requests for WebSockets, and returns their kinds.
func upgrades(t *testing.T, w *testServer) map[string]bool {
	t.Helper()
	full := newTestServer(t, w.store.Store, behindProxy, func(c *Config) {
		c.WebSockets = WebSocketLimits{Max: 2, PerAddress: 1}
	})
	get := func(w *testServer, path string, headers ...string) {
		t.Helper()
		_ = w.sendTo("GET", path, "", headers...)
	}
	const path = "/v1/namespaces/chat/connect"
	get(full, path)
	get(full, "/v1/namespaces/.hidden/connect", upgradeHeaders()...)
	get(full, path+"?token=x", upgradeHeaders()...)
	get(full, path, append(upgradeHeaders(), "Sec-WebSocket-Key: again")...)
	get(full, path, upgradeHeaders("Origin: https://evil.example")...)
	full.dialSocket("chat", from("203.0.113.7"))
	get(full, path, upgradeHeaders(from("203.0.113.7"))...)
	full.dialSocket("chat")
	get(full, path, upgradeHeaders()...)
	full.config.Shared.Drain()
	get(full, path, upgradeHeaders()...)
	return responsesOf(full, "connect")
}

// responsesOf returns the kinds of response of an operation so far.
func responsesOf(w *testServer, operation string) map[string]bool {
	all := w.responses()
	maps.DeleteFunc(all, func(kind string, _ bool) bool { return !strings.HasPrefix(kind, operation+" ") })
	return all
}

// TestConnectIsPresence: a user who holds a connection is present until the goodbye. Without the ID of a device, the
// server makes one. A user has a limited number of connections.
func TestConnectIsPresence(t *testing.T) {
	w := newSocketServer(t)
	alice, welcome := w.hello(`{"user":"alice","device":{"id":"tab","kind":"web","meta":{"v":1}}}`)
	require.Equal(t, "tab", welcome["device"])
	require.NotEmpty(t, welcome["connection"])
	require.Subset(t, welcome["self"], map[string]any{"user": "alice", "status": "green", "valid_until": nil})
	require.NotContains(t, welcome, "cursor", "it watches nothing")
	require.NotContains(t, welcome, "expires_in_ms")
	require.EqualValues(t, 60_000, welcome["green_ms"])
	require.EqualValues(t, 300_000, welcome["yellow_ms"])
	require.Equal(t, "green", w.get("/chat/users/alice")["status"])
	require.Equal(t, "web", firstOf(w.get("/chat/users/alice/devices"), "devices")["kind"])
	alice.quiet()
	alice.asks(`{"leave":{}}`, frameOK)
	alice.closed(transport.CodeNormal, "")
	require.Equal(t, "grey", w.get("/chat/users/alice")["status"])

	made := map[any]bool{}
	for _, device := range []string{"", `,"device":{"kind":"mobile"}`, "", ""} { // as many as held allows
		_, welcome := w.hello(`{"user":"bob"` + device + `}`)
		require.NotEmpty(t, welcome["device"])
		made[welcome["device"]] = true
	}
	require.Len(t, made, 4)
	w.greet(`{"user":"bob"}`).fails(problem.RateLimited)
	w.hello(`{"user":"carol"}`)
}

// TestConnectIdle: a hello says since when the person does not use the device. What follows counts.
func TestConnectIdle(t *testing.T) {
	w := newSocketServer(t)
	alice, welcome := w.hello(`{"user":"alice","device":{"id":"tab"},"activity":{"idle":true,"idle_ms":3600000}}`)
	require.Subset(t, welcome["self"], map[string]any{"status": "green"})
	since, err := time.Parse(time.RFC3339, w.get("/chat/users/alice")["idle_since"].(string))
	require.NoError(t, err)
	require.Less(t, since, time.Now().Add(-time.Hour+time.Second))
	_, _ = w.hello(`{"user":"alice","device":{"id":"tab"}}`)
	require.Equal(t, "idle", w.get("/chat/users/alice")["activity"], "as the device was")
	_, _ = w.hello(`{"user":"alice","device":{"id":"phone"},"activity":{"idle":false}}`)
	require.NotContains(t, w.get("/chat/users/alice"), "activity")
	alice.quiet()
}

// TestConnectEndsWithCloseFrame: a close frame is a goodbye, which is written after the grace, unless the user is back.
func TestConnectEndsWithCloseFrame(t *testing.T) {
	w := newSocketServer(t)
	one, _ := w.hello(`{"user":"alice","grace_ms":0}`)
	bye := websocket.FormatCloseMessage(websocket.CloseGoingAway, "")
	require.NoError(t, one.conn.WriteMessage(websocket.CloseMessage, bye))
	one.closed(websocket.CloseGoingAway, "")
	w.awaitAlice("left", true)
}

// TestConnectRefusals: what is refused before the upgrade.
func TestConnectRefusals(t *testing.T) {
	w := newSocketServer(t, allowing("https://app.example.com", "capacitor://localhost"))
	const path = "/chat/connect"
	key := "Sec-WebSocket-Key: "
	for want, requests := range map[problem.Code][][]string{
		problem.UpgradeRequired: {
			nil,
			{"Connection: Upgrade"},
			{"Upgrade: websocket"},
			{"Connection: Upgrade", "Upgrade: h2c"},
			append(upgradeHeaders()[:2], "Sec-WebSocket-Version: 12"),
		},
		problem.InvalidParameter: {
			upgradeHeaders()[:3], append(upgradeHeaders()[:3], key+"c2hvcnQ="), upgradeHeaders(key +
				"dGhlIHNhbXBsZSBub25jZQ=="),
		},
	} {
		for _, headers := range requests {
			w.fails(want, "GET", path, "", headers...)
		}
	}
	w.fails(problem.InvalidParameter, "GET", path, "body", upgradeHeaders()...)
	w.fails(problem.UnknownParameter, "GET", path+"?token=x", "", upgradeHeaders()...)
	w.fails(problem.InvalidNamespace, "GET", "/.x/connect", "", upgradeHeaders()...)
	for _, origin := range []string{
		"https://evil.example", "null", "app://evil", "https://app.example.com.evil.example", "http://app.example.com",
		w.url + ".evil.example", "file://", "", "ionic://localhost",
	} {
		w.refused(problem.Forbidden, "Origin: "+origin)
	}
	w.refused(problem.Forbidden, "Origin: https://app.example.com", "Origin: https://evil.example")
	for _, origin := range []string{"https://app.example.com", "capacitor://localhost", w.url} {
		w.dialSocket("chat", "Origin: "+origin)
	}
	w.dialSocket("chat")
}

// TestConnectSubprotocol: a client gets the one that it offers, or none.
func TestConnectSubprotocol(t *testing.T) {
	w := newSocketServer(t)
	for offered, want := range map[string]string{
		"": "", "lastseen.v1": "lastseen.v1", "other": "", "other, lastseen.v1": "lastseen.v1",
	} {
		headers := []string{}
		if offered != "" {
			headers = append(headers, "Sec-WebSocket-Protocol: "+offered)
		}
		require.Equal(t, want, w.dialSocket("chat", headers...).conn.Subprotocol(), offered)
	}
	w.refused(problem.InvalidParameter, "Sec-WebSocket-Protocol: a"+strings.Repeat(",b", maxHeaderLines))
}

// TestConnectLimits: how many can be open.
func TestConnectLimits(t *testing.T) {
	w := newSocketServer(t, behindProxy, func(c *Config) {
		c.WebSockets = WebSocketLimits{Max: 3, PerAddress: 1}
		c.Limits.Caller = 100
	})
	one := w.dialSocket("chat", from("203.0.113.7"))
	w.refused(problem.RateLimited, from("203.0.113.7"))
	two := w.dialSocket("chat", from("203.0.113.8"))
	one.send(`{"hello":{}}`)
	one.want(frameWelcome)
	three := w.dialSocket("chat", from("203.0.113.7")) // the other one has said hello
	w.refused(problem.Overloaded, from("203.0.113.9"))
	require.Equal(t, 3, w.config.Shared.WebSockets())
	for _, s := range []*testSocket{one, two, three} {
		require.NoError(t, s.conn.Close())
	}
	w.awaitSockets(0)
	w.dialSocket("chat", from("203.0.113.7"))
	shared := w.config.Shared
	require.Empty(t, shared.sockets.callers)
}

// TestConnectDrain: a server that stops asks its clients to connect elsewhere, and closes those that do not.
func TestConnectDrain(t *testing.T) {
	w := newSocketServer(t)
	one, _ := w.hello(`{"user":"alice","grace_ms":0}`)
	two, _ := w.hello(`{"watch":{"users":["alice"]}}`)
	waiting := w.dialSocket("chat")
	w.config.Shared.Drain()
	require.Contains(t, one.want(frameBye), "reconnect_after_ms")
	two.want(frameBye)
	w.refused(problem.ShuttingDown)
	waiting.want(frameBye)
	waiting.send(`{"hello":{"user":"bob"}}`)
	waiting.fails(problem.ShuttingDown)
	require.NoError(t, one.conn.Close())
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	w.config.Shared.EndWebSockets(ctx)
	two.closed(4503, string(problem.ShuttingDown))
	w.awaitSockets(0)
	w.config.Shared.EndWebSockets(t.Context())
	w.config.Connections.Stop(t.Context()) // writes the goodbyes that wait
	require.Equal(t, "green", w.get("/chat/users/alice")["status"], "it was the server's wish")
}

// TestOnGrid checks that timers fire together, never later than asked for, and hardly earlier.
func TestOnGrid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := time.UnixMicro(rapid.Int64Range(0, 1e16).Draw(t, "now"))
		d := time.Duration(rapid.Int64Range(int64(minWake+wakeGrid), int64(time.Minute)).Draw(t, "d"))
		short := onGrid(now, d)
		require.LessOrEqual(t, short, d)
		require.Greater(t, short, d-wakeGrid)
		require.True(t, now.Add(short).Equal(now.Add(short).Truncate(wakeGrid)), "%s after %s", short, now)
	})
	require.Equal(t, minWake, onGrid(time.Now(), time.Millisecond))
}

// TestSendQueue: what waits for a slow client is bounded.
func TestSendQueue(t *testing.T) {
	t.Parallel()
	n := &session{ctx: t.Context()} // which is not welcome yet, so that nothing is sent
	for i := range maxQueued {
		require.True(t, n.enqueue([]byte{byte(i)}))
	}
	require.False(t, n.enqueue([]byte("one more")))
	n.wakeOwn()
	n.wakeOwn()
	own, frame := n.nextQueued()
	require.True(t, own)
	require.Nil(t, frame)
	for i := range maxQueued {
		own, frame = n.nextQueued()
		require.False(t, own)
		require.Equal(t, []byte{byte(i)}, frame)
	}
	_, frame = n.nextQueued()
	require.Nil(t, frame)
	require.Nil(t, n.sends, "it takes no memory")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	n = &session{ctx: ctx}
	n.wakeOwn()
	own, _ = n.nextQueued()
	require.False(t, own, "the client is gone")
}
