package main

import (
	"testing"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testserver"
)

// TestNamespacesHaveTheirSettings: what runs beside requests uses the settings of each namespace. In another one, alice
// would not be grey for five minutes.
func TestNamespacesHaveTheirSettings(t *testing.T) {
	testserver.EachStore(t, func(t *testing.T, args []string) {
		file := testserver.WriteConfig(t, "namespaces: {chat: {green: 1s, yellow: 2s, ping-interval: 500ms}}")
		s, stop := startInProcess(t, append(args, "--config", file, "--disconnect-grace", "0"))
		events := s.Follow(t, "/v1/namespaces/chat/changes?user=alice", "")
		events.Until(t, `"status":"grey"`)
		s.Post(t, alice+"/ping", "")
		events.Until(t, `"status":"green"`)
		events.Until(t, `"status":"grey"`) // on a busy machine, yellow can be over before it is looked for

		socket, response, err := websocket.Dial(t.Context(), s.URL+"/v1/namespaces/chat/connect", nil)
		require.NoError(t, err)
		if response.Body != nil {
			require.NoError(t, response.Body.Close())
		}
		require.NoError(t, socket.Write(t.Context(), websocket.MessageText, []byte(`{"hello":{"user":"alice"}}`)))
		events.Until(t, `"status":"green"`)
		s.Succeed(t, "POST", "/v1/namespaces/chat/calls", `{"from":"alice","to":"bob"}`)
		require.NoError(t, socket.Close(websocket.StatusNormalClosure, ""))
		require.Zero(t, stop(), s.Log)
	})
}
