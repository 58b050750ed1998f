package deploy_test

import (
	"context"
	"encoding/json"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testenv"
)

// TestProxiesPassWebSockets holds a WebSocket through each proxy: frames arrive both ways, and the user is gone when
// the client has closed it.
func TestProxiesPassWebSockets(t *testing.T) {
	for name, proxy := range map[string]func(*testing.T, server) string{"nginx": startNginx, "haproxy": startHAProxy} {
		t.Run(name, func(t *testing.T) {
			testenv.Program(t, name, name)
			file := filepath.Join(t.TempDir(), "data.db")
			s := startServer(t, buildServer(t), "--store", file, "--disconnect-grace", "100ms")
			testWebSocket(t, proxy(t, s)+"/chat")
		})
	}
}

// testWebSocket holds a WebSocket to a namespace at a URL.
func testWebSocket(t *testing.T, url string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	options := &websocket.DialOptions{Subprotocols: []string{"lastseen.v1"}}
	connect := strings.Replace(url, "http", "ws", 1) + "/connect"
	socket, response, err := websocket.Dial(ctx, connect, options) //nolint:bodyclose // not needed
	require.NoError(t, err)
	defer func() { _ = socket.CloseNow() }()
	require.Equal(t, "lastseen.v1", response.Header.Get("Sec-WebSocket-Protocol"))
	hello := `{"hello":{"user":"alice","watch":{"users":["bob"]}}}`
	require.NoError(t, socket.Write(ctx, websocket.MessageText, []byte(hello)))
	require.Contains(t, nextFrame(ctx, t, socket, "welcome"), `"grey"`)
	require.Eventually(t, isStatus(t, url+"/users/alice", "green"), patience, 20*time.Millisecond)
	status, _ := request(t, http.MethodPost, url+"/users/bob/ping", "")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, nextFrame(ctx, t, socket, "changes"), `"green"`)
	require.NoError(t, socket.Close(websocket.StatusNormalClosure, ""))
	require.Eventually(t, isStatus(t, url+"/users/alice", "grey"), patience, 20*time.Millisecond)
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

// isStatus returns a function that reports whether a user has a status.
func isStatus(t *testing.T, url, want string) func() bool {
	return func() bool {
		_, body := request(t, http.MethodGet, url, "")
		return strings.Contains(body, `"status":"`+want+`"`)
	}
}
