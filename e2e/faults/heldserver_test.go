//go:build faults

package faults

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// holdThresholds are those of servers whose clients hold connections: as short as a busy machine allows.
func holdThresholds() lastseen.Thresholds {
	return lastseen.Thresholds{Green: 6 * time.Second, Yellow: 8 * time.Second}
}

// holdGrace is the grace of these servers.
const holdGrace = time.Second

// holdArgs are the arguments of these servers.
func holdArgs(more ...string) []string {
	return append([]string{
		"--green", "6s", "--yellow", "8s", "--ping-interval", "1s", "--disconnect-grace", "1s", "--redis-timeout", "2s",
	}, more...)
}

// startHeld starts servers on a Redis, and a watcher of users at the last of them. All servers know of the feed, so
// that the watcher misses nothing by a reset.
func startHeld(t *testing.T, n int, users ...string) ([]*server, *trail) {
	t.Helper()
	redis := redistest.StartProcess(t, "--appendfsync", "always")
	var all []*server
	for i := range n {
		all = append(all, startServer(t, redis.URL(), holdArgs()...))
		if i == 0 {
			beginFeed(t, redis, all[0])
		}
	}
	awaitFeed(t, redis, all[0])
	return all, watch(t, all[n-1], users...)
}

// here connects a user with a device of the same name, and waits until a watcher knows.
func here(t testing.TB, tr *trail, s *server, user string) *socket {
	t.Helper()
	c := connect(t, socketOptions{url: s.url, hello: device(user, user, "web")})
	tr.await(t, user, lastseen.Green)
	return c
}

// passGrace returns when connections to a server that ended before have their leaves: those of a user who comes and
// goes now, and whom the watcher watches.
func passGrace(t testing.TB, tr *trail, s *server, user string, grace time.Duration) {
	t.Helper()
	hello := device(user, user, "web").with("grace_ms", grace.Milliseconds())
	c := connect(t, socketOptions{url: s.url, hello: hello})
	tr.await(t, user, lastseen.Green)
	c.close()
	tr.requireLeft(t, user)
}

// TestHeldServerKilled kills a server that holds connections. It writes nothing. Clients who connect to another server
// stay green; the others turn yellow and grey.
func TestHeldServerKilled(t *testing.T) {
	t.Parallel()
	users := numbered("returns", 20)
	servers, tr := startHeld(t, 2, append(users, "gone")...)
	c := startCrowd(t, users, 1000, servers[0], servers[1])
	c.awaitOpen(t, len(users))
	gone := here(t, tr, servers[0], "gone")
	servers[0].kill(t)
	gone.awaitEnd(t)
	c.awaitOpen(t, len(users))
	tr.requireTurnsGrey(t, "gone", holdThresholds())
	for _, user := range users {
		tr.requireOnlyGreen(t, user)
	}
	require.Zero(t, servers[1].metric(t, "lastseen_connections_goodbyes_total"))
}

// TestHeldServersRestart restarts three servers one after the other, behind nginx, while clients hold connections. All
// of them move when they are asked to: nobody turns yellow. One that ignores that is closed, which is not a leave.
func TestHeldServersRestart(t *testing.T) {
	t.Parallel()
	clients, drain := testenv.Choose(1000, 200), testenv.Choose("20s", "3s")
	args := append(calm(), "--green", "15s", "--yellow", "20s", "--ping-interval", "5s", "--drain", "2s")
	redis := redistest.StartProcess(t)
	aside := startServer(t, redis.URL(), args...) // not behind nginx, and not restarted
	beginFeed(t, redis, aside)
	var servers []*server
	for range 3 {
		servers = append(servers, startServer(t, redis.URL(), append(args, "--connect-drain", drain)...))
	}
	awaitFeed(t, redis, aside)
	tr := watch(t, aside)
	users := numbered("user", clients)
	c := startCrowd(t, users, testenv.Choose(300, 100), startNginx(t, servers))
	stays := here(t, tr, servers[0], "stays")
	c.awaitOpen(t, clients)
	c.reset()
	for _, s := range servers {
		held := s.metric(t, "lastseen_connections")
		s.terminate(t)
		c.awaitOpen(t, clients)
		ends, opened := c.reset()
		t.Logf("%.0f connections, %d opened, %v", held, opened, ends)
		require.GreaterOrEqual(t, opened+1, int(held), "each opens another one, but the one who stays")
		if testenv.Full() { // with time enough for all
			require.Equal(t, map[string]int{"bye": opened}, ends, "connections that ended in other ways")
		}
		s.start(t)
		s.awaitReady(t, true)
	}
	_, asked := stays.find("bye")
	require.True(t, asked, "the server asks all clients to connect again")
	require.False(t, stays.open())
	tr.requireTurnsGrey(t, "stays", lastseen.Thresholds{Green: 15 * time.Second, Yellow: 20 * time.Second})
	green := map[string]bool{}
	for _, p := range tr.everything(t) {
		if p.User != "stays" {
			require.Equal(t, lastseen.Green, p.Status, "%+v at %s", p.presence, p.received)
			green[p.User] = true
		}
	}
	require.Len(t, green, clients)
}

// TestHeldStoreStopped stops Redis. Connections stay open, and what was received meanwhile is written when it is back.
// A client that connects meanwhile is closed with 4503.
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
	s.awaitMetric(t, "lastseen_connections_unwritten", float64(len(users))) // each has a ping while Redis is away
	redis.Start(t)
	s.awaitMetric(t, "lastseen_connections_unwritten", 0)
	for i, user := range users {
		require.True(t, held[i].open(), "%s: %v", user, held[i].why())
		await(t, user+" to be written", func() bool {
			return s.request(t, "GET", userPath(user)).failure() == "" && presenceOf(t, s, user).at > stopped
		})
		require.Equal(t, lastseen.Green, presenceOf(t, s, user).Status)
	}
	require.Zero(t, s.metric(t, "lastseen_connections_goodbyes_total"))
	require.Zero(t, s.metric(t, "lastseen_connections_lost_total"))
}

// TestHeldNetworkCut drops everything that a server and its clients send each other. The server hears nothing, so it
// writes nothing: its users turn yellow and grey at the thresholds, on all servers. Clients who connect to another
// server meanwhile stay green.
func TestHeldNetworkCut(t *testing.T) {
	t.Parallel()
	i := newIsland(t)
	redis, url := i.startRedis(t)
	near := startServer(t, redis.URL(), holdArgs()...)
	beginFeed(t, redis, near)
	far := i.startServer(t, url, holdArgs()...)
	awaitFeed(t, redis, near)
	users := numbered("cut", 10)
	tr := watch(t, near, append(users, "elsewhere")...)
	for _, user := range users {
		here(t, tr, far, user)
	}
	here(t, tr, far, "elsewhere")
	i.clients.unplug(t)
	elsewhere := connect(t, socketOptions{url: near.url, hello: device("elsewhere", "again", "mobile")})
	for _, user := range users {
		tr.requireTurnsGrey(t, user, holdThresholds())
	}
	i.clients.plug(t)
	far.awaitMetric(t, "lastseen_connections_lost_total", float64(len(users)+1))
	require.Zero(t, far.metric(t, "lastseen_connections_goodbyes_total"))
	for _, user := range users {
		require.NotContains(t, tr.course(t, user), "left")
		require.Equal(t, lastseen.Grey, presenceOf(t, far, user).Status)
	}
	tr.requireOnlyGreen(t, "elsewhere")
	require.True(t, elsewhere.open())
}

// TestHeldFlood has a client that sends as many frames as it can. It is closed, and others do not notice.
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
	servers[0].requireLittleMemory(t)
	require.Equal(t, "ok", stays.ask(t, "activity", object{"idle": true}).name)
	tr.requireTurnsGrey(t, "flood", holdThresholds()) // the server ended it
	tr.requireOnlyGreen(t, "stays")
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
	servers[0].awaitMetric(t, "lastseen_connections", clients+1)
	await(t, "the server to close them", func() bool {
		servers[0].requireLittleMemory(t)
		return servers[0].metric(t, "lastseen_connections") == 1
	})
	tr.requireTurnsGrey(t, "stuck-0", holdThresholds())
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
