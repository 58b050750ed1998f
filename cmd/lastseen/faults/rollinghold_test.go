//go:build faults

package faults

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// rollingArgs are the arguments of servers with many connections that are restarted one after the other.
func rollingArgs(drain string) []string {
	return append(calm(), "--green", "30s", "--yellow", "60s", "--ping-interval", "10s", "--drain", "2s",
		"--connect-drain", drain)
}

// TestRollingRestartWithConnections restarts three servers one after the other, behind nginx, while clients hold
// connections. All of them move when they are asked to: nobody turns yellow, and no goodbye is written.
func TestRollingRestartWithConnections(t *testing.T) {
	clients, drain := testenv.Choose(9000, 300), testenv.Choose(20*time.Second, 3*time.Second)
	redis := redistest.StartProcess(t)
	aside := startServer(t, redis.URL(), rollingArgs("1s")...) // not behind nginx, and not restarted
	beginFeed(t, redis, aside)
	var servers []*server
	for range 3 {
		servers = append(servers, startServer(t, redis.URL(), rollingArgs(drain.String())...))
	}
	awaitFeed(t, redis, aside)
	takes := measureConnects(t, aside, clients/9)
	tr := watch(t, aside)
	users := numbered("user", clients)
	c := startCrowd(t, users, testenv.Choose(300, 100), startNginx(t, servers))
	c.awaitOpen(t, clients)
	c.reset()
	for _, s := range servers {
		held := s.metric(t, "lastseen_connections")
		begun := time.Now()
		s.terminate(t)
		took := time.Since(begun)
		c.awaitOpen(t, clients)
		ends, opened, fastest := c.reset()
		t.Logf("%.0f connections, ended after %s, %d opened, at most %d within a second (one server takes %.0f), %v",
			held, took.Round(time.Millisecond), opened, fastest, takes, ends)
		require.GreaterOrEqual(t, opened, int(held), "each opens another one")
		if testenv.Full() {
			require.Less(t, float64(fastest), takes)
			require.Equal(t, map[string]int{"bye": opened}, ends, "connections that ended in other ways")
		}
		s.start(t)
		await(t, "/readyz to succeed", func() bool { return s.ready(t) })
	}
	requireAllGreen(t, tr, aside, users)
}

// measureConnects returns how many clients a second one server welcomes. They have left when it returns.
func measureConnects(t *testing.T, s *server, clients int) (perSecond float64) {
	t.Helper()
	users := numbered("probe", clients)
	begun := time.Now()
	c := startCrowd(t, users, 1_000_000, s.url)
	c.awaitOpen(t, clients)
	perSecond = float64(clients) / time.Since(begun).Seconds()
	c.end()
	await(t, "the last goodbye", func() bool { return s.metric(t, "lastseen_connections_waiting") == 0 })
	return perSecond
}

// requireAllGreen checks that a watcher of everyone was sent each of the users as green, and never as anything else,
// until they all end their connections now.
func requireAllGreen(t testing.TB, tr *trail, s *server, users []string) {
	t.Helper()
	marker := connect(t, socketOptions{url: s.url, hello: device("the last one", "", "other")})
	tr.await(t, "the last one", lastseen.Green)
	green := map[string]bool{}
	for _, p := range tr.everything(t) {
		if p.Status != lastseen.Green {
			require.NotContains(t, users, p.User, "%+v at %s", p.presence, p.received)
		}
		green[p.User] = true
	}
	for _, user := range users {
		require.True(t, green[user], user)
	}
	require.True(t, marker.open())
}
