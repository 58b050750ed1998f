//go:build faults

package faults

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// island is a network namespace with two cables to this machine, on which nothing else is.
type island struct {
	name    string
	clients cable // for requests to its server
	redis   cable // for its server's connections to Redis
}

// cable is a pair of virtual interfaces.
type cable struct {
	device    string // the end on this machine
	here, far string // addresses
}

// newIsland makes a network namespace, until the test ends.
func newIsland(t testing.TB) island {
	t.Helper()
	requireRoot(t, "ip")
	i := island{name: fmt.Sprintf("lastseen-%d-%d", os.Getpid(), rand.IntN(1000))}
	runCommand(t, "ip", "netns", "add", i.name)
	t.Cleanup(func() { runCommand(t, "ip", "netns", "delete", i.name) }) // with both cables
	runCommand(t, "ip", "-n", i.name, "link", "set", "lo", "up")
	i.clients, i.redis = i.connect(t, 'c'), i.connect(t, 'r')
	return i
}

// connect adds a cable, with addresses from a range that is reserved for tests of networks.
func (i island) connect(t testing.TB, kind rune) cable {
	t.Helper()
	net := fmt.Sprintf("198.18.%d.%d", rand.IntN(256), 4*rand.IntN(63))
	id := fmt.Sprintf("%c%d-%d", kind, os.Getpid()%100_000, rand.IntN(1000))
	c := cable{device: "h" + id, here: next(net, 1), far: next(net, 2)}
	runCommand(t, "ip", "link", "add", c.device, "type", "veth", "peer", "name", "n"+id, "netns", i.name)
	runCommand(t, "ip", "address", "add", c.here+"/30", "dev", c.device)
	runCommand(t, "ip", "-n", i.name, "address", "add", c.far+"/30", "dev", "n"+id)
	runCommand(t, "ip", "link", "set", c.device, "up")
	runCommand(t, "ip", "-n", i.name, "link", "set", "n"+id, "up")
	return c
}

// next returns an address after the first one of a network.
func next(network string, n byte) string {
	ip := net.ParseIP(network).To4()
	ip[3] += n
	return ip.String()
}

// startRedis starts a Redis on this machine. The URL is that in the namespace.
func (i island) startRedis(t *testing.T) (redis *redistest.Process, url string) {
	t.Helper()
	redis = redistest.StartProcess(t, "--bind", "127.0.0.1", i.redis.here, "--protected-mode", "no")
	_, port, err := net.SplitHostPort(redis.Addr)
	require.NoError(t, err)
	return redis, "redis://" + net.JoinHostPort(i.redis.here, port)
}

// startServer starts a server in the namespace.
func (i island) startServer(t *testing.T, url string, args ...string) *server {
	t.Helper()
	s := newServerOn(t, i.clients.far, url, append(args, "--auth", "none")...)
	s.prefix = []string{"ip", "netns", "exec", i.name}
	s.start(t)
	return s
}

// startHeld is startHeld with one server on each side of the cable.
func (i island) startHeld(t *testing.T) (near, far *server) {
	t.Helper()
	redis, url := i.startRedis(t)
	near = startServer(t, redis.URL(), holdArgs()...)
	beginFeed(t, redis, near)
	far = i.startServer(t, url, holdArgs()...)
	awaitFeed(t, redis, near)
	return near, far
}

// unplug makes everything sent over the cable disappear.
func (c cable) unplug(t testing.TB) { runCommand(t, "ip", "link", "set", c.device, "down") }

func (c cable) plug(t testing.TB) { runCommand(t, "ip", "link", "set", c.device, "up") }

// TestPartition separates one of two servers from Redis. It returns errors until it can reach Redis again, and never
// an older state as the current one; the other server notices nothing.
func TestPartition(t *testing.T) {
	i := newIsland(t)
	redis, url := i.startRedis(t)
	near, far := startServer(t, redis.URL(), calm()...), i.startServer(t, url)
	both := startLoad(t, loadOptions{leaves: 0.1}, near.url, far.url)
	alone := startLoad(t, loadOptions{namespace: "alone"}, near.url)
	for range testenv.Choose(5, 1) {
		both.awaitPings(t, 200)
		i.redis.unplug(t)
		both.awaitFailures(t, 100)
		await(t, "/readyz to fail", func() bool { return !far.ready(t) })
		require.Equal(t, http.StatusServiceUnavailable,
			far.request(t, http.MethodGet, "/v1/namespaces/chat/users/user-1").status)
		require.True(t, near.ready(t))
		await(t, "the circuit breaker to open", func() bool { return far.metric(t, "lastseen_breaker_opened_total") > 0 })
		i.redis.plug(t)
		begin := time.Now()
		await(t, "the server to be ready", func() bool { return far.ready(t) })
		t.Logf("ready %s after the end of the partition", time.Since(begin))
	}
	far.awaitLog(t, "circuit breaker closed")
	require.Positive(t, far.metric(t, "lastseen_http_errors_total", "code", "store_unavailable"))
	failed := both.snapshot().failed()
	both.awaitPings(t, 200)
	t.Logf("%d more failures after it was ready", both.snapshot().failed()-failed)
	stats := both.stop(t)
	requireOnly(t, stats, "503 store_unavailable")
	require.Less(t, stats.slowestFailure, longestFailure)
	require.Empty(t, alone.stop(t).failures, "the other server fails, too")
	for _, s := range []*server{near, far} {
		both.verify(t, s.url)
		alone.verify(t, s.url)
	}
}
