package api

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestConnectDrain: a server that stops asks its clients to connect elsewhere, and closes those that do not.
func TestConnectDrain(t *testing.T) {
	w := newSocketServer(t)
	one, _ := w.hello(`{"user":"alice","grace_ms":0}`)
	two, _ := w.hello(`{"watch":{"users":["alice"]}}`)
	waiting := w.dialSocket("chat")
	w.config.Shared.Drain()
	require.Contains(t, one.want(frameBye), "reconnect_after_ms")
	two.want(frameBye)
	w.refused(codeShuttingDown)
	waiting.want(frameBye)
	waiting.send(`{"hello":{"user":"bob"}}`)
	waiting.fails(codeShuttingDown)
	require.NoError(t, one.conn.Close())
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	w.config.Shared.EndWebSockets(ctx)
	two.closed(4503, string(codeShuttingDown))
	require.Eventually(t, func() bool { return w.config.Shared.WebSockets() == 0 }, eventually, tick)
	w.config.Shared.EndWebSockets(t.Context())
	w.config.Connections.Stop(t.Context()) // writes the goodbyes that wait
	require.Equal(t, "green", w.get("/chat/users/alice")["status"], "it was the server's wish")
}
