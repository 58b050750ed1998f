package api

import (
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api/stream"
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
		_ = w.sendTo(http.MethodGet, path, "", headers...)
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

// TestConnectIsPresence: a user who holds a connection is present until the goodbye.
func TestConnectIsPresence(t *testing.T) {
	w := newSocketServer(t)
	alice, welcome := w.hello(`{"user":"alice","device":{"id":"tab","kind":"web","meta":{"v":1}}}`)
	require.Equal(t, "tab", welcome["device"])
	require.NotEmpty(t, welcome["connection"])
	self := welcome["self"].(map[string]any)
	require.Equal(t, "alice", self["user"])
	require.Equal(t, "green", self["status"])
	require.Nil(t, self["valid_until"])
	require.NotContains(t, welcome, "cursor", "it watches nothing")
	require.NotContains(t, welcome, "expires_in_ms")
	require.EqualValues(t, 60_000, welcome["green_ms"])
	require.EqualValues(t, 300_000, welcome["yellow_ms"])
	require.Equal(t, "green", w.get("/chat/users/alice")["status"])
	devices := w.get("/chat/users/alice/devices")["devices"].([]any)
	require.Equal(t, "web", devices[0].(map[string]any)["kind"])
	alice.asks(`{"activity":{"idle":true}}`, frameOK)
	alice.asks(`{"leave":{}}`, frameOK)
	alice.closed(stream.CodeNormal, "")
	require.Equal(t, "grey", w.get("/chat/users/alice")["status"])
}

// TestConnectTwoTabs: closing one of two tabs changes nothing, also if they share the ID of a device.
func TestConnectTwoTabs(t *testing.T) {
	w := newSocketServer(t)
	const tab = `{"user":"alice","device":{"id":"tab"},"grace_ms":0}`
	one, _ := w.hello(tab)
	two, _ := w.hello(tab)
	one.asks(`{"leave":{}}`, frameOK)
	require.Equal(t, "green", w.get("/chat/users/alice")["status"])
	require.NoError(t, two.conn.Close())
	require.Eventually(t, func() bool { return w.get("/chat/users/alice")["status"] == "grey" }, eventually, tick)
}

// TestConnectDeviceIsMade: without the ID of a device, the server makes one.
func TestConnectDeviceIsMade(t *testing.T) {
	w := newSocketServer(t)
	_, one := w.hello(`{"user":"alice"}`)
	_, two := w.hello(`{"user":"alice","device":{"kind":"mobile"}}`)
	require.NotEmpty(t, one["device"])
	require.NotEmpty(t, two["device"])
	require.NotEqual(t, one["device"], two["device"])
}

// TestConnectEndsWithCloseFrame: a close frame is a goodbye, which is written after the grace, unless the user is back.
func TestConnectEndsWithCloseFrame(t *testing.T) {
	w := newSocketServer(t)
	one, _ := w.hello(`{"user":"alice","grace_ms":0}`)
	bye := websocket.FormatCloseMessage(websocket.CloseGoingAway, "")
	require.NoError(t, one.conn.WriteMessage(websocket.CloseMessage, bye))
	one.closed(websocket.CloseGoingAway, "")
	require.Eventually(t, func() bool { return w.get("/chat/users/alice")["left"] == true }, eventually, tick)
}

// TestConnectRefusals: what is refused before the upgrade.
func TestConnectRefusals(t *testing.T) {
	w := newSocketServer(t, func(c *Config) {
		c.CORSOrigins = []string{"https://app.example.com", "capacitor://localhost"}
	})
	const path = "/chat/connect"
	for _, headers := range [][]string{
		nil,
		{"Connection: Upgrade"},
		{"Upgrade: websocket"},
		append(upgradeHeaders()[:2], "Sec-WebSocket-Version: 12"),
		{"Connection: Upgrade", "Upgrade: h2c"},
	} {
		w.fails(codeUpgradeRequired, http.MethodGet, path, "", headers...)
	}
	for _, headers := range [][]string{
		upgradeHeaders()[:3], append(upgradeHeaders()[:3], "Sec-WebSocket-Key: c2hvcnQ="),
		upgradeHeaders("Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="),
	} {
		w.fails(codeInvalidParameter, http.MethodGet, path, "", headers...)
	}
	w.fails(codeInvalidParameter, http.MethodGet, path, "body", upgradeHeaders()...)
	w.fails(codeUnknownParameter, http.MethodGet, path+"?token=x", "", upgradeHeaders()...)
	w.fails(codeInvalidNamespace, http.MethodGet, "/.x/connect", "", upgradeHeaders()...)
	for _, origin := range []string{
		"https://evil.example", "null", "app://evil", "https://app.example.com.evil.example", "http://app.example.com",
		w.url + ".evil.example", "file://", "", "ionic://localhost",
	} {
		w.refused(codeForbidden, "Origin: "+origin)
	}
	w.refused(codeForbidden, "Origin: https://app.example.com", "Origin: https://evil.example")
	for _, origin := range []string{"https://app.example.com", "capacitor://localhost", w.url} {
		w.dialSocket("chat", "Origin: "+origin)
	}
	w.dialSocket("chat")
}

func TestIsOriginOf(t *testing.T) {
	for _, c := range []struct {
		origin, host string
		want         bool
	}{
		{"https://chat.example", "chat.example", true},
		{"https://chat.example", "Chat.Example:443", true},
		{"http://chat.example", "chat.example:80", true},
		{"http://chat.example:8080", "chat.example:8080", true},
		{"http://[::1]:8080", "[::1]:8080", true},
		{"http://chat.example:8080", "chat.example", false},
		{"http://chat.example", "chat.example:443", false},
		{"https://chat.example/", "chat.example", false},
		{"https://a@chat.example", "chat.example", false},
		{"https://evil.example", "chat.example", false},
		{"app://chat.example", "chat.example", false},
		{"null", "null", false},
		{"", "", false},
		{"https://", "", false},
	} {
		require.Equal(t, c.want, isOriginOf(c.origin, c.host), "%q of %q", c.origin, c.host)
	}
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
	w.refused(codeInvalidParameter, "Sec-WebSocket-Protocol: a"+strings.Repeat(",b", maxHeaderLines))
}

// TestConnectLimits: how many can be open.
func TestConnectLimits(t *testing.T) {
	w := newSocketServer(t, behindProxy, func(c *Config) {
		c.WebSockets = WebSocketLimits{Max: 3, PerAddress: 1}
		c.Limits.Caller = 100
	})
	one := w.dialSocket("chat", from("203.0.113.7"))
	w.refused(codeRateLimited, from("203.0.113.7"))
	two := w.dialSocket("chat", from("203.0.113.8"))
	one.send(`{"hello":{}}`)
	one.want(frameWelcome)
	three := w.dialSocket("chat", from("203.0.113.7")) // the other one has said hello
	w.refused(codeOverloaded, from("203.0.113.9"))
	require.Equal(t, 3, w.config.Shared.WebSockets())
	for _, s := range []*testSocket{one, two, three} {
		require.NoError(t, s.conn.Close())
	}
	require.Eventually(t, func() bool { return w.config.Shared.WebSockets() == 0 }, eventually, tick)
	w.dialSocket("chat", from("203.0.113.7"))
	shared := w.config.Shared
	require.Empty(t, shared.sockets.callers)
}

// TestConnectUserLimit: a user has a limited number of connections.
func TestConnectUserLimit(t *testing.T) {
	w := newSocketServer(t)
	for range 4 { // see held
		w.hello(`{"user":"alice"}`)
	}
	fifth := w.dialSocket("chat")
	fifth.send(`{"hello":{"user":"alice"}}`)
	fifth.fails(codeRateLimited)
	w.hello(`{"user":"bob"}`)
}

// TestConnectTicksWithoutWatch: scripts in browsers do not see pings, so that a connection which watches nothing gets
// ticks.
func TestConnectTicksWithoutWatch(t *testing.T) {
	w := newSocketServer(t, func(c *Config) { c.Settings.PingInterval = 50 * time.Millisecond })
	s, welcome := w.hello(`{"user":"alice"}`)
	require.EqualValues(t, maxSocketPing.Milliseconds(), welcome["tick_ms"])
	require.Empty(t, s.want(frameTick))
	require.Empty(t, s.want(frameTick))
}
