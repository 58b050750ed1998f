package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"
)

// twinHello follows the users who leave, and others.
const twinHello = `{"hello":{"watch":{"users":["alice","davey","erica","bobby"]}%s}}`

// compareFrames compares the first frame of connections that follow the users, and how those end that may not.
func (w twins) compareFrames(t *testing.T, phase, server string) {
	t.Helper()
	for _, caller := range w.callers(t) {
		ask := func(namespace, other, credential string) func() response {
			return func() response {
				socket := dialTwin(t, server, namespace)
				defer socket.CloseNow()
				writeFrame(t, socket, fmt.Sprintf(twinHello, tokenField(credential)))
				_, frame, err := socket.Read(t.Context())
				require.NoError(t, err)
				return response{body: maskOwn(string(frame), namespace, other)}
			}
		}
		same(t, phase+": frames to "+caller.name,
			ask(w.left, w.hidden, caller.left), ask(w.hidden, w.left, caller.hidden))
	}
}

func tokenField(credential string) string {
	if credential == "" {
		return ""
	}
	return fmt.Sprintf(`,"token":%q`, credential)
}

func dialTwin(t *testing.T, server, namespace string) *websocket.Conn {
	t.Helper()
	url := "ws" + strings.TrimPrefix(server, "http") + "/v1/namespaces/" + namespace + "/connect"
	socket, _, err := websocket.Dial(t.Context(), url, nil) //nolint:bodyclose // not needed
	require.NoError(t, err)
	socket.SetReadLimit(1 << 20)
	return socket
}

func writeFrame(t *testing.T, socket *websocket.Conn, frame string) {
	t.Helper()
	require.NoError(t, socket.Write(t.Context(), websocket.MessageText, []byte(frame)))
}
