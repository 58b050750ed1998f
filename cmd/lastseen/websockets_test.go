package main

import (
	"errors"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api"
	"github.com/lastseen/lastseen/cmd/lastseen/internal/config"
)

func TestMaxWebSockets(t *testing.T) {
	for _, c := range []struct{ setting, connections, want int }{
		{0, 65_536, 63_488},
		{0, 18_750, 18_165},
		{0, 2048, 1984},
		{0, 128, 64},
		{0, 20, 10},
		{0, 1, 1},
		{7, 100, 7},
		{100, 100, 100},
		{101, 100, 100},
	} {
		require.Equal(t, c.want, maxWebSockets(c.setting, c.connections), "%+v", c)
	}
}

// TestWebSocketLimits checks that settings arrive, also those that change the defaults.
func TestWebSocketLimits(t *testing.T) {
	c, err := config.Loader{Flags: map[string]string{
		"max-connections": "1000", "disconnect-grace": "0", "max-key-websockets": "30", "max-address-websockets": "off",
		"connect-drain": "7s",
	}}.Load()
	require.NoError(t, err)
	require.Equal(t, api.WebSocketLimits{Max: 936, PerUser: 16, PerCaller: 30, Drain: 7 * time.Second},
		webSocketLimits(c))
}

func TestConnectDrainTime(t *testing.T) {
	for _, c := range []struct {
		want  time.Duration
		flags map[string]string
	}{
		{0, map[string]string{}},
		{30 * time.Second, map[string]string{"listen": ":8080", "auth": "none"}},
		{time.Second, map[string]string{"connect-drain": "1s"}},
		{0, map[string]string{"listen": ":8080", "auth": "none", "connect-drain": "0"}},
	} {
		loaded, err := config.Loader{Flags: c.flags}.Load()
		require.NoError(t, err)
		require.Equal(t, c.want, loaded.ConnectDrainTime(), "%v", c.flags)
	}
}

// TestEndWebSockets does not wait without WebSockets. It returns the error of a server that fails.
func TestEndWebSockets(t *testing.T) {
	shared := api.NewShared(api.Config{})
	require.NoError(t, endWebSockets(shared, time.Hour, nil))
	failed, broken := make(chan error, 1), errors.New("broken")
	failed <- broken
	if err := endWebSockets(shared, time.Hour, failed); err != nil { // either can be first
		require.Equal(t, broken, err)
	}
}

// TestTerminateWritesLeaves checks that a leave that waits is written before the server ends.
func TestTerminateWritesLeaves(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data.db")
	s := start(t, "--store", data)
	s.post(t, alice+"/ping", `{"device":{"id":"tab"}}`)
	status, _ := s.call(t, http.MethodPost, alice+"/leave", `{"device":{"id":"tab"},"after":"60s"}`)
	require.Equal(t, http.StatusAccepted, status)
	require.Equal(t, false, s.get(t, alice)["left"])
	require.Zero(t, s.terminate(t))
	s = start(t, "--store", data)
	require.Equal(t, true, s.get(t, alice)["left"])
}

// TestTerminateMovesConnections checks that a server that stops asks a client to connect elsewhere, ends as soon as the
// client has gone, and records no leave.
func TestTerminateMovesConnections(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data.db")
	s := start(t, "--store", data, "--connect-drain", "5s", "--disconnect-grace", "0")
	socket := s.connect(t, `{"hello":{"user":"alice","device":{"id":"tab","kind":"web"}}}`)
	require.Contains(t, receive(t, socket), `"welcome"`)
	require.Equal(t, "green", s.get(t, alice)["status"])
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGTERM))
	for !strings.Contains(receive(t, socket), `"bye"`) {
		continue
	}
	require.NoError(t, socket.Close(websocket.StatusNormalClosure, ""))
	require.NoError(t, s.cmd.Wait())
	s = start(t, "--store", data)
	require.Equal(t, false, s.get(t, alice)["left"])
	require.Equal(t, []any{"web"}, s.get(t, alice+"/devices")["kinds"])
}

// TestTerminateClosesConnections checks that a server that stops does not wait for a client that stays.
func TestTerminateClosesConnections(t *testing.T) {
	t.Parallel()
	s := start(t, "--connect-drain", "100ms")
	socket := s.connect(t, `{"hello":{"user":"alice"}}`)
	require.Contains(t, receive(t, socket), `"welcome"`)
	require.Zero(t, s.terminate(t))
}

// connect opens a WebSocket in the namespace chat and sends its first frame.
func (s *service) connect(t *testing.T, hello string) *websocket.Conn {
	t.Helper()
	socket, response, err := websocket.Dial(t.Context(), s.url+"/v1/namespaces/chat/connect", nil)
	require.NoError(t, err)
	if response.Body != nil {
		require.NoError(t, response.Body.Close())
	}
	t.Cleanup(func() { _ = socket.CloseNow() })
	require.NoError(t, socket.Write(t.Context(), websocket.MessageText, []byte(hello)))
	return socket
}

// receive returns the next frame.
func receive(t *testing.T, socket *websocket.Conn) string {
	t.Helper()
	_, frame, err := socket.Read(t.Context())
	require.NoError(t, err)
	return string(frame)
}
