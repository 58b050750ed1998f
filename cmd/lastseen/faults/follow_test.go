//go:build faults

package faults

import (
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// followThresholds are so short that many users decay while a test runs.
func followThresholds() lastseen.Thresholds {
	return lastseen.Thresholds{Green: 2 * time.Second, Yellow: 6 * time.Second}
}

// followArgs are the arguments of servers with these thresholds.
func followArgs() []string {
	return []string{"--green", "2s", "--yellow", "6s", "--ping-interval", "1s"}
}

// startFollowed starts servers on a store, a load of users who come, decay and leave, and watchers. The Redis is nil
// for the embedded store.
func startFollowed(t *testing.T, servers int, store string, redis *redistest.Process) (all []*server, ws *watchers) {
	t.Helper()
	var urls []string
	for i := range servers {
		s := startServer(t, store, followArgs()...)
		all, urls = append(all, s), append(urls, s.url)
		if i == 0 && redis != nil {
			beginFeed(t, redis, s)
		}
	}
	l := startLoad(t, loadOptions{users: 300, rate: 100, leaves: 0.2, timeout: longestFailure}, urls...)
	l.awaitPings(t, 10)
	if redis != nil {
		awaitFeed(t, redis, all[0])
	}
	ws = startWatchers(t, l, testenv.Choose(3, 1), followThresholds())
	ws.awaitUpdates(t, 10)
	return all, ws
}

// feedKey is what Redis has of the feed of the namespace chat besides its entries. While its field s is there, servers
// may not know of the feed yet; it restarts, with a reset, when they do.
const feedKey = "presence:feed:{presence:chat}"

// beginFeed begins the feed before other servers start, which then know of it from the start. So short tests do not
// wait until servers that run would know.
func beginFeed(t testing.TB, redis *redistest.Process, s *server) {
	t.Helper()
	await(t, "the feed", func() bool {
		return s.request(t, http.MethodGet, "/v1/namespaces/chat/changes").status == http.StatusOK
	})
	if !testenv.Full() {
		require.NoError(t, redis.Client(t).HDel(t.Context(), feedKey, "s").Err())
	}
}

// awaitFeed waits until all servers know of the feed.
func awaitFeed(t testing.TB, redis *redistest.Process, s *server) {
	t.Helper()
	client := redis.Client(t)
	await(t, "a feed that all servers know of", func() bool {
		r := s.request(t, http.MethodGet, "/v1/namespaces/chat/changes") // so that it is swept
		fields, err := client.HGetAll(t.Context(), feedKey).Result()
		return r.status == http.StatusOK && err == nil && fields["w"] != "" && fields["s"] == ""
	})
}

// TestFollowers breaks what is between the writers of a namespace and those who watch it over Server-Sent Events. Each
// watcher misses no change and gets none twice, or is told to begin again by a reset.
func TestFollowers(t *testing.T) {
	for name, test := range map[string]func(*testing.T){
		"server killed": followServersKilled, "embedded server killed": followEmbeddedKilled,
		"Redis killed": followRedisKilled, "failover": followFailover, "slow Redis": followSlowRedis,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t)
		})
	}
}

// followServersKilled kills one of three servers after the other. Watchers continue on another one where they were:
// the feed is in Redis, so there is no reset.
func followServersKilled(t *testing.T) {
	redis := redistest.StartProcess(t)
	servers, ws := startFollowed(t, 3, redis.URL(), redis)
	for i := range testenv.Choose(12, 3) {
		s := servers[i%len(servers)]
		s.kill(t)
		ws.awaitUpdates(t, 5)
		s.start(t)
		ws.load.awaitPings(t, 20)
	}
	most, _ := ws.finish(t, servers[0].url)
	require.Zero(t, most, "resets")
	for _, w := range ws.all {
		require.Greater(t, w.snapshot().connects, 1, w.name)
	}
	t.Log(ws.takeLags())
}

// followEmbeddedKilled kills the only server, which keeps the feed in memory: each watcher gets a reset.
func followEmbeddedKilled(t *testing.T) {
	servers, ws := startFollowed(t, 1, filepath.Join(t.TempDir(), "lastseen.db"), nil)
	kills := testenv.Choose(5, 1)
	for range kills {
		ws.load.mayLose(time.Second+longestFlush, func() { servers[0].kill(t) })
		servers[0].start(t)
		ws.awaitUpdates(t, 5)
	}
	ws.load.awaitPings(t, 200) // whose users are certain again
	_, fewest := ws.finish(t, servers[0].url)
	require.GreaterOrEqual(t, fewest, kills, "resets")
}

// followRedisKilled kills Redis and starts it again with its data.
func followRedisKilled(t *testing.T) {
	redis := redistest.StartProcess(t, "--appendfsync", "always")
	servers, ws := startFollowed(t, 2, redis.URL(), redis)
	for range testenv.Choose(5, 1) {
		redis.Stop(t)
		ws.load.awaitFailures(t, 20)
		redis.Start(t)
		ws.awaitUpdates(t, 10)
	}
	most, _ := ws.finish(t, servers[0].url)
	t.Logf("resets: %d at most", most)
}

// followFailover kills the primary of a Redis with Sentinels. What it had not sent to its replica is lost, also from
// the feed.
func followFailover(t *testing.T) {
	watched := redistest.StartSentinel(t)
	servers, ws := startFollowed(t, 2, watched.URL(), watched.Nodes[0])
	ws.load.mayLose(replicationWindow, func() {
		watched.Nodes[0].Stop(t)
		await(t, "the replica to be the primary", func() bool { return watched.Primary() == watched.Nodes[1] })
		ws.load.awaitPings(t, 50)
	})
	ws.awaitUpdates(t, 10)
	ws.load.awaitPings(t, 200) // whose users are certain again
	most, _ := ws.finish(t, servers[0].url)
	t.Logf("resets: %d at most", most)
}

// followSlowRedis spoils the connections of one server to Redis. The other server is not affected.
func followSlowRedis(t *testing.T) {
	redis := redistest.StartProcess(t)
	p := startProxy(t, redis.Addr)
	_, ws := startFollowed(t, 1, p.url(), redis)
	other := startServer(t, redis.URL(), followArgs()...)
	for _, how := range spoils()[:testenv.Choose(len(spoils()), 1)] {
		p.spoil(t, how.toxic, "downstream", how.attributes)
		ws.load.awaitFailures(t, 20)
		time.Sleep(testenv.Choose(5*time.Second, 0))
		p.heal(t)
		ws.awaitUpdates(t, 10)
	}
	most, _ := ws.finish(t, other.url)
	t.Logf("resets: %d at most", most)
}
