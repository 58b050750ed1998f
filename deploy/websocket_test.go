package deploy_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testserver"
)

// TestProxiesPassWebSockets holds a WebSocket through each proxy: frames arrive both ways, and the user is gone when
// the client has closed it.
func TestProxiesPassWebSockets(t *testing.T) {
	for name, proxy := range proxies() {
		t.Run(name, func(t *testing.T) {
			testWebSocket(t, proxy(t, startServer(t, "--disconnect-grace", "100ms")))
		})
	}
}

// testWebSocket holds a WebSocket to a namespace.
func testWebSocket(t *testing.T, s *testserver.Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	options := &websocket.DialOptions{Subprotocols: []string{"lastseen.v1"}}
	connect := strings.Replace(s.URL, "http", "ws", 1) + "/v1/namespaces/chat/connect"
	socket, response, err := websocket.Dial(ctx, connect, options) //nolint:bodyclose // not needed
	require.NoError(t, err)
	defer func() { _ = socket.CloseNow() }()
	require.Equal(t, "lastseen.v1", response.Header.Get("Sec-WebSocket-Protocol"))
	hello := `{"hello":{"user":"alice","watch":{"users":["bob"]}}}`
	require.NoError(t, socket.Write(ctx, websocket.MessageText, []byte(hello)))
	require.Contains(t, nextFrame(ctx, t, socket, "welcome"), `"grey"`)
	require.Eventually(t, isStatus(t, s, "green"), patience, 20*time.Millisecond)
	s.Post(t, "/v1/namespaces/chat/users/bob/ping", "")
	require.Contains(t, nextFrame(ctx, t, socket, "changes"), `"green"`)
	require.NoError(t, socket.Close(websocket.StatusNormalClosure, ""))
	require.Eventually(t, isStatus(t, s, "grey"), patience, 20*time.Millisecond)
}

// nextFrame returns the next frame with a name. A tick can come before it.
func nextFrame(ctx context.Context, t *testing.T, socket *websocket.Conn, name string) string {
	t.Helper()
	for {
		_, data, err := socket.Read(ctx)
		require.NoError(t, err)
		var frame map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(data, &frame))
		if frame[name] != nil {
			return string(data)
		}
		require.Contains(t, frame, "tick", string(data))
	}
}

// isStatus returns a function that reports whether alice has a status.
func isStatus(t *testing.T, s *testserver.Server, want string) func() bool {
	return func() bool { return s.Get(t, testserver.Alice)["status"] == want }
}
