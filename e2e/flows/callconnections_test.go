package flows

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testserver"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// callStates returns the states of the calls that a connection is sent, and answers pings until the connection ends.
func callStates(t *testing.T, socket *websocket.Conn) <-chan string {
	t.Helper()
	states := make(chan string, 10)
	go func() {
		defer close(states)
		for {
			_, frame, err := socket.Read(t.Context())
			if err != nil {
				return
			}
			var content struct{ Call struct{ State string } }
			if json.Unmarshal(frame, &content) == nil && content.Call.State != "" {
				states <- content.Call.State
			}
		}
	}()
	return states
}

// TestConnectionsKeepCalls: an active call goes on as long as a connection of each party is alive, also to different
// servers, and is lost soon after one is gone.
func TestConnectionsKeepCalls(t *testing.T) {
	t.Parallel()
	const green = 4 * time.Second
	url := redistest.Start(t)
	args := []string{
		"--store", url, "--redis-timeout", "30s", "--redis-dial-timeout", "30s",
		"--green", green.String(), "--yellow", "1m", "--ping-interval", "1s",
	}
	one, two := testserver.Start(t, args...), testserver.Start(t, args...)
	phone := connectWith(t, one, `{"hello":{"user":"alice","device":{"id":"phone","kind":"mobile"}}}`)
	tab := connectWith(t, two, `{"hello":{"user":"bob","device":{"id":"tab","kind":"web"}}}`)
	for _, socket := range []*websocket.Conn{phone, tab} {
		require.Contains(t, receive(t, socket), `"calls":[]`)
	}
	ofAlice, ofBob := callStates(t, phone), callStates(t, tab)
	both := func(want string) {
		t.Helper()
		require.Equal(t, want, <-ofAlice)
		require.Equal(t, want, <-ofBob)
	}
	call := one.Succeed(t, http.MethodPost, "/v1/namespaces/chat/calls", `{"from":"alice","to":"bob","device":"phone"}`)
	both("ringing")
	path := "/v1/namespaces/chat/calls/" + call["id"].(string)
	two.Post(t, path+"/accept", `{"user":"bob","device":"tab"}`)
	both("active")

	time.Sleep(5 * green / 2) // nothing but connections keeps it
	require.Equal(t, "active", one.Get(t, path)["state"])
	require.Equal(t, true, two.Get(t, alice)["in_call"])
	other := connectWith(t, two, `{"hello":{"user":"bob","device":{"id":"other","kind":"web"}}}`)
	require.Contains(t, receive(t, other), `"state":"active"`)
	ofOther := callStates(t, other)
	require.NoError(t, tab.CloseNow())
	require.Equal(t, "lost", <-ofAlice) // another device does not keep it
	require.Equal(t, "lost", <-ofOther)
	require.Eventually(t, func() bool { return two.Get(t, alice)["in_call"] == nil }, time.Minute, 10*time.Millisecond)
}
