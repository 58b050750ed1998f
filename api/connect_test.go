package api

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestConnectIsPresence(t *testing.T) {
	w := newSocketServer(t)
	alice, welcome := w.hello(`{"user":"alice","device":{"id":"tab","kind":"web","meta":{"v":1}}}`)
	require.Equal(t, "tab", welcome["device"])
	require.Equal(t, "green", welcome["self"].(map[string]any)["status"])
	require.Equal(t, "green", w.get("/chat/users/alice")["status"])
	alice.asks(`{"leave":{}}`, frameOK)
	alice.closed(1000, "")
	require.Equal(t, "grey", w.get("/chat/users/alice")["status"])
}

func TestConnectWatches(t *testing.T) {
	w := newSocketServer(t)
	bob, welcome := w.hello(`{"watch":{"users":["alice","zoe"]}}`)
	require.Equal(t, []string{"alice grey", "zoe grey"}, statuses(welcome))
	w.post("/chat/users/alice/ping", "")
	require.Equal(t, []string{"alice green"}, statuses(bob.want(frameChanges)))
	alice, _ := w.hello(`{"user":"alice","grace_ms":0}`)
	require.NoError(t, alice.conn.Close())
	require.Equal(t, []string{"alice grey"}, statuses(bob.want(frameChanges)))
}
