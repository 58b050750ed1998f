//go:build faults

package faults

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
)

// TestHeldConnectionsEnd ends connections in all ways. A leave takes effect at once. The end of the TCP connection is
// one after the grace. Silence is none: the user turns yellow and grey.
func TestHeldConnectionsEnd(t *testing.T) {
	t.Parallel()
	ends := map[string]func(*testing.T, *socket){
		"closes":   func(_ *testing.T, c *socket) { c.close() },
		"resets":   func(t *testing.T, c *socket) { c.reset(t) },
		"hangs up": func(t *testing.T, c *socket) { c.hangUp(t) }, // as a process that is killed
		"leaves":   func(t *testing.T, c *socket) { require.Equal(t, "ok", c.ask(t, "leave", object{}).name) },
	}
	users := []string{"deaf"}
	for user := range ends {
		users = append(users, user)
	}
	servers, tr := startHeld(t, 2, users...)
	deaf := connect(t, socketOptions{url: servers[0].url, hello: device("deaf", "deaf", "mobile"), deaf: true})
	for user, end := range ends {
		t.Run(user, func(t *testing.T) {
			c := here(t, tr, servers[0], user)
			ended := time.Now()
			end(t, c)
			grey := tr.requireLeft(t, user)
			require.LessOrEqual(t, grey.at, lastseen.InstantOf(time.Now()))
			if user != "leaves" {
				require.GreaterOrEqual(t, grey.received.Sub(ended), holdGrace)
				require.LessOrEqual(t, grey.at, lastseen.InstantOf(grey.received.Add(-holdGrace)),
					"the time of its last heartbeat: a grace or more before the leave")
			}
		})
	}
	deaf.awaitEnd(t)
	tr.requireTurnsGrey(t, "deaf", holdThresholds())
	require.InDelta(t, 1, servers[0].metric(t, "lastseen_connections_lost_total"), 0)
	require.InDelta(t, len(ends), servers[0].metric(t, "lastseen_connections_goodbyes_total"), 0)
	require.Zero(t, servers[0].metric(t, "lastseen_connections"))
}

// TestHeldUserForgotten forgets a user on another server than that which holds their connections. They are closed, and
// the user stays forgotten. An operator can also close the connections alone.
func TestHeldUserForgotten(t *testing.T) {
	t.Parallel()
	servers, tr := startHeld(t, 2, "forgotten", "closed", "stays")
	forgotten, closed := here(t, tr, servers[0], "forgotten"), here(t, tr, servers[0], "closed")
	stays := here(t, tr, servers[0], "stays")
	for path, c := range map[string]*socket{
		userPath("forgotten"): forgotten, userPath("closed") + "/connections": closed,
	} {
		r := servers[1].request(t, http.MethodDelete, path)
		require.Equal(t, http.StatusNoContent, r.status, "%s", r.body)
		require.Equal(t, closedUser, c.awaitEnd(t), "%v", c.why())
	}
	tr.requireTurnsGrey(t, "closed", holdThresholds()) // after many heartbeats of the one who stays
	tr.requireOnlyGreen(t, "stays")
	require.True(t, stays.open())
	require.Equal(t, []string{"unknown", "green", "unknown"}, tr.course(t, "forgotten"))
	require.Nil(t, presenceOf(t, servers[1], "forgotten").LastSeen)
}
