package privacy

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"
)

// clientSocket is a connection to a server, whose pings it answers.
type clientSocket struct {
	*websocket.Conn
	frames  chan string
	address string // of this end
}

// dial opens a connection to a server, until the test ends, and sends a frame.
func (s site) dial(t testing.TB, server int, frame string) *clientSocket {
	t.Helper()
	url := "ws" + strings.TrimPrefix(s.server(server), "http") + s.namespace + "/connect"
	var address string
	socket, _, err := websocket.Dial(withAddress(t.Context(), &address), url, nil) //nolint:bodyclose // not needed
	require.NoError(t, err)
	socket.SetReadLimit(1 << 20)
	opened := &clientSocket{socket, make(chan string, 1000), address}
	t.Cleanup(func() { _ = opened.CloseNow() })
	go func() {
		defer close(opened.frames)
		for {
			_, frame, err := socket.Read(context.Background())
			if err != nil {
				return
			}
			opened.frames <- string(frame)
		}
	}()
	opened.write(t, frame)
	return opened
}

// connect opens a connection of a user to a server, with more fields of the hello.
func (s site) connect(t testing.TB, server int, user, fields string) *clientSocket {
	t.Helper()
	socket := s.dial(t, server, fmt.Sprintf(`{"hello":{"user":%q%s%s}}`, user, fields, tokenField(s.tokenOf(t, user))))
	socket.await(t, "welcome")
	return socket
}

// connectQuietly connects a user to a server, whatever the connection is sent.
func (s site) connectQuietly(t testing.TB, server int, user string) {
	t.Helper()
	socket := s.connect(t, server, user, `,"device":{"id":"phone","kind":"mobile"}`)
	go func() {
		for range socket.frames { // nothing has to be in them
		}
	}()
}

// tokenField returns the field of a hello with a credential, or nothing.
func tokenField(credential string) string {
	if credential == "" {
		return ""
	}
	return fmt.Sprintf(`,"token":%q`, credential)
}

func (s *clientSocket) write(t testing.TB, frame string) {
	t.Helper()
	require.NoError(t, s.Write(t.Context(), websocket.MessageText, []byte(frame)))
}

func (s *clientSocket) ask(t testing.TB, frame, want string) {
	t.Helper()
	s.write(t, frame)
	s.await(t, want)
}

func (s *clientSocket) await(t testing.TB, want string) string {
	t.Helper()
	for {
		frame := s.next(t, want)
		if strings.HasPrefix(frame, `{"`+want+`"`) {
			return frame
		}
		require.NotContains(t, frame, "problem")
	}
}

// next returns the next frame. What is waited for is in the message if there is none.
func (s *clientSocket) next(t testing.TB, what string) string {
	t.Helper()
	select {
	case frame, ok := <-s.frames:
		require.True(t, ok, "the connection ended before %s", what)
		return frame
	case <-time.After(testWait):
		t.Fatalf("no frame %s", what)
		return ""
	}
}

// hangUp ends a connection without a leave. The server has noticed that when it returns.
func (s *clientSocket) hangUp(t *testing.T) {
	t.Helper()
	require.NoError(t, s.Close(websocket.StatusNormalClosure, ""))
}
