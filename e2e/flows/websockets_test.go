package flows

import (
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testserver"
)

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

// TestTerminateMovesConnections checks that a server that stops asks a client to connect elsewhere, ends as soon as the
// client has gone, and records no leave.
func TestTerminateMovesConnections(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data.db")
	s := testserver.Start(t, "--store", data, "--connect-drain", "5s", "--disconnect-grace", "0")
	socket := connectWith(t, s, `{"hello":{"user":"alice","device":{"id":"tab","kind":"web"}}}`)
	require.Contains(t, receive(t, socket), `"welcome"`)
	require.Equal(t, "green", s.Get(t, alice)["status"])
	require.NoError(t, s.Cmd.Process.Signal(syscall.SIGTERM))
	for !strings.Contains(receive(t, socket), `"bye"`) {
		continue
	}
	require.NoError(t, socket.Close(websocket.StatusNormalClosure, ""))
	require.NoError(t, s.Cmd.Wait())
	s = testserver.Start(t, "--store", data)
	require.Equal(t, false, s.Get(t, alice)["left"])
	require.Equal(t, []any{"web"}, s.Get(t, alice+"/devices")["kinds"])
}

// connectWith opens a WebSocket in the namespace chat and sends its first frame.
func connectWith(t *testing.T, s *testserver.Server, hello string) *websocket.Conn {
	t.Helper()
	socket, response, err := websocket.Dial(t.Context(), s.URL+"/v1/namespaces/chat/connect", nil)
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
