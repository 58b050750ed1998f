//go:build faults

package faults

import (
	"context"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
)

// TestHeldFlood has a client that sends as many frames as it can, and one that sends what is not a frame. Each is
// closed, and others do not notice.
func TestHeldFlood(t *testing.T) {
	t.Parallel()
	servers, tr := startHeld(t, 1, "flood", "stays")
	stays, flood := here(t, tr, servers[0], "stays"), here(t, tr, servers[0], "flood")
	for i := 0; flood.open(); i++ {
		if flood.write(t.Context(), object{"activity": object{"idle": i%2 == 0}}) != nil {
			break
		}
	}
	require.Equal(t, closedFlood, flood.awaitEnd(t), "%v", flood.why())
	wrong := connect(t, socketOptions{url: servers[0].url, hello: device("wrong", "", "web").with("device", nil)})
	require.NoError(t, wrong.conn.Write(t.Context(), websocket.MessageText, []byte("{")))
	require.Equal(t, websocket.StatusCode(4400), wrong.awaitEnd(t), "%v", wrong.why())

	require.Less(t, servers[0].memory(t), int64(mostMemory))
	require.Equal(t, "ok", stays.ask(t, "activity", object{"idle": true}).name)
	tr.requireOnlyGreen(t, "stays")
	tr.requireDecay(t, "flood", holdThresholds()) // the server ended it
}

// TestHeldReaderTakesNothing has clients that ask for much and read nothing. The server closes them, keeps little for
// them, and goes on serving others.
func TestHeldReaderTakesNothing(t *testing.T) {
	t.Parallel()
	servers, tr := startHeld(t, 1, "stuck-0", "stays")
	stays := here(t, tr, servers[0], "stays")
	const clients = 10
	for _, user := range numbered("stuck", clients) {
		takeNothing(t, servers[0], user)
	}
	await(t, "the clients to be there", func() bool {
		return servers[0].metric(t, "lastseen_connections") >= clients+1
	})
	awaitLong(t, "the server to close them", func() bool {
		require.Less(t, servers[0].memory(t), int64(mostMemory))
		return servers[0].metric(t, "lastseen_connections") == 1
	})
	tr.requireDecay(t, "stuck-0", holdThresholds())
	require.Equal(t, "ok", stays.ask(t, "activity", object{"idle": true}).name)
	tr.requireOnlyGreen(t, "stays")
}

// takeNothing connects a client that asks for users again and again, and reads nothing of what it gets.
func takeNothing(t testing.TB, s *server, user string) {
	t.Helper()
	c, err := openUnread(t.Context(), socketOptions{url: s.url, hello: device(user, user, "web"), buffer: 4096})
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.conn.CloseNow() })
	users := numbered("a user with a name that is rather long, so that responses about them are large", 400)
	go func() {
		for i := 0; ; i++ {
			what := map[bool]string{true: "add", false: "remove"}[i%2 == 0]
			if c.write(context.Background(), object{"watch": object{what: users}}) != nil {
				return
			}
			time.Sleep(100 * time.Millisecond) // within the limit of frames
		}
	}()
}

// cutUsers are how many users hold connections through the cable that is unplugged.
const cutUsers = 10

// TestHeldNetworkCut drops everything that a server and its clients send each other. The server hears nothing, so it
// writes nothing: its users turn yellow and grey at the thresholds, on all servers. Clients who connect to another
// server meanwhile stay green.
func TestHeldNetworkCut(t *testing.T) {
	t.Parallel()
	i := newIsland(t)
	near, far := i.startHeld(t)
	users := numbered("cut", cutUsers)
	tr := watch(t, near, append(users, "elsewhere")...)
	for _, user := range users {
		here(t, tr, far, user)
	}
	here(t, tr, far, "elsewhere")
	i.clients.unplug(t)
	elsewhere := connect(t, socketOptions{url: near.url, hello: device("elsewhere", "again", "mobile")})
	for _, user := range users {
		tr.requireDecay(t, user, holdThresholds())
	}
	i.clients.plug(t)
	await(t, "the server to close the connections", func() bool {
		return far.metric(t, "lastseen_connections_lost_total") == cutUsers+1
	})
	require.Zero(t, far.metric(t, "lastseen_connections_goodbyes_total"))
	for _, user := range users {
		require.NotContains(t, tr.course(t, user), "left")
		require.Equal(t, lastseen.Grey, presenceOf(t, far, user).Status)
	}
	tr.requireOnlyGreen(t, "elsewhere")
	require.True(t, elsewhere.open())
}
