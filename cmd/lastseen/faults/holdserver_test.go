//go:build faults

package faults

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// TestHeldServerKilled kills a server that holds connections. It writes nothing. Clients who connect to another server
// stay green; the others turn yellow and grey.
func TestHeldServerKilled(t *testing.T) {
	t.Parallel()
	users := numbered("returns", 20)
	servers, tr := startHeld(t, 2, append(users, "gone")...)
	c := startCrowd(t, users, 1000, servers[0].url, servers[1].url)
	c.awaitOpen(t, len(users))
	gone := here(t, tr, servers[0], "gone")
	for _, user := range users {
		tr.await(t, user, lastseen.Green)
	}
	servers[0].kill(t)
	gone.awaitEnd(t)
	c.awaitOpen(t, len(users))
	tr.requireDecay(t, "gone", holdThresholds())
	for _, user := range users {
		tr.requireOnlyGreen(t, user)
	}
	require.Zero(t, servers[1].metric(t, "lastseen_connections_goodbyes_total"))
}

// TestHeldServerStopped stops a server that holds connections, in order. Clients open another connection when it asks
// them to, and stay green. One that ignores that is closed, which is not a goodbye.
func TestHeldServerStopped(t *testing.T) {
	t.Parallel()
	redis := redistest.StartProcess(t)
	stopped := startServer(t, redis.URL(), holdArgs("--connect-drain", "3s", "--drain", "1s")...)
	other := startServer(t, redis.URL(), holdArgs()...)
	users := numbered("moves", 20)
	tr := watch(t, other, append(users, "stays")...)
	c := startCrowd(t, users, 1000, stopped.url, other.url)
	c.awaitOpen(t, len(users))
	stays := here(t, tr, stopped, "stays")
	for _, user := range users {
		tr.await(t, user, lastseen.Green)
	}
	c.reset()
	stopped.terminate(t)
	stays.awaitEnd(t)
	_, asked := stays.find("bye")
	require.True(t, asked, "the server asks all clients to connect again")
	c.awaitOpen(t, len(users))
	ends, opened, _ := c.reset()
	t.Logf("%d connections opened, ends: %v", opened, ends)
	tr.requireDecay(t, "stays", holdThresholds())
	for _, user := range users {
		tr.requireOnlyGreen(t, user)
	}
}

// TestHeldStoreStopped stops Redis. Connections stay open, and what was heard meanwhile is written when it is back. A
// client that connects meanwhile is closed with 4503.
func TestHeldStoreStopped(t *testing.T) {
	t.Parallel()
	redis := redistest.StartProcess(t, "--appendfsync", "always")
	s := startServer(t, redis.URL(), holdArgs()...)
	users := numbered("held", 20)
	var held []*socket
	for _, user := range users {
		held = append(held, connect(t, socketOptions{url: s.url, hello: device(user, user, "web")}))
	}
	redis.Stop(t)
	stopped := lastseen.InstantOf(time.Now())
	_, err := openSocket(t.Context(), socketOptions{url: s.url, hello: device("late", "late", "web")})
	require.Equal(t, "4503", endOf(err), "%v", err)
	await(t, "each connection to be heard while Redis is away", func() bool {
		return s.metric(t, "lastseen_connections_unwritten") == float64(len(users))
	})
	redis.Start(t)
	await(t, "what was heard to be written", func() bool { return s.metric(t, "lastseen_connections_unwritten") == 0 })
	for i, user := range users {
		require.True(t, held[i].open(), "%s: %v", user, held[i].why())
		await(t, user+" to be written", func() bool {
			r := s.request(t, "GET", "/v1/namespaces/chat/users/"+user)
			return r.status == 200 && presenceOf(t, s, user).at > stopped
		})
		require.Equal(t, lastseen.Green, presenceOf(t, s, user).Status)
	}
	require.Zero(t, s.metric(t, "lastseen_connections_goodbyes_total"))
	require.Zero(t, s.metric(t, "lastseen_connections_lost_total"))
}

// testHeldClocks has servers whose clocks differ by a second, and then by an hour. Times are those of Redis, so users
// who hold connections to both do not notice.
func testHeldClocks(t *testing.T, binary string) {
	right, wrong := newSteppedClock(t), newSteppedClock(t)
	redis := redistest.StartProcess(t)
	servers := []*server{
		right.startOn(t, binary, redis.URL(), holdArgs()...), wrong.startOn(t, binary, redis.URL(), holdArgs()...),
	}
	for _, off := range []time.Duration{time.Second, -time.Second, time.Hour} {
		wrong.set(t, off)
		user, marker := "user "+off.String(), "marker "+off.String()
		trails := []*trail{watch(t, servers[0], user, marker), watch(t, servers[1], user, marker)}
		first, second := here(t, trails[0], servers[0], user), here(t, trails[1], servers[1], user)
		first.close()
		passGrace(t, trails[1], servers[0], marker, holdGrace)
		trails[1].requireOnlyGreen(t, user)
		second.close()
		for _, tr := range trails {
			require.True(t, tr.await(t, user, lastseen.Grey).Left)
			require.Equal(t, []string{"unknown", "green", "left"}, tr.course(t, user))
		}
	}
}
