//go:build faults

package faults

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
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

// passGrace returns when connections to a server that ended before have their goodbyes: those of a user who comes and
// goes now, and whom the watcher watches.
func passGrace(t testing.TB, tr *trail, s *server, user string, grace time.Duration) {
	t.Helper()
	hello := device(user, user, "web").with("grace_ms", grace.Milliseconds())
	c := connect(t, socketOptions{url: s.url, hello: hello})
	tr.await(t, user, lastseen.Green)
	c.close()
	tr.await(t, user, lastseen.Grey)
}

// TestHeldConnectionsEnd ends connections in all ways. A leave is a goodbye at once. The end of the TCP connection is
// one after the grace. Silence is none: the user turns yellow and grey.
func TestHeldConnectionsEnd(t *testing.T) {
	t.Parallel()
	ends := map[string]func(*testing.T, *socket){
		"closes":   func(_ *testing.T, c *socket) { c.close() },
		"resets":   func(t *testing.T, c *socket) { c.reset(t) },
		"hangs up": func(t *testing.T, c *socket) { c.hangUp(t) },
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
			grey := tr.await(t, user, lastseen.Grey)
			require.True(t, grey.Left)
			require.Equal(t, []string{"unknown", "green", "left"}, tr.course(t, user))
			require.LessOrEqual(t, grey.at, lastseen.InstantOf(time.Now()))
			t.Logf("grey after %s", grey.received.Sub(ended).Round(time.Millisecond))
			if user != "leaves" {
				require.GreaterOrEqual(t, grey.received.Sub(ended), holdGrace)
				require.LessOrEqual(t, grey.at, lastseen.InstantOf(ended), "the time at which it was heard last")
			}
		})
	}
	deaf.awaitEnd(t)
	tr.requireDecay(t, "deaf", holdThresholds())
	require.InDelta(t, 1, servers[0].metric(t, "lastseen_connections_lost_total"), 0)
	require.InDelta(t, len(ends), servers[0].metric(t, "lastseen_connections_goodbyes_total"), 0)
	require.Zero(t, servers[0].metric(t, "lastseen_connections"))
}

// clientVar is the environment variable with the URL of the server to which this program, started again, holds
// connections: see holdAsChild.
const clientVar = "FAULTS_CLIENT"

// childUsers is the number of users of such a process.
const childUsers = 20

// holdAsChild holds connections until the process is killed, and prints a line when they are open.
func holdAsChild(url string) int {
	for _, user := range numbered("child", childUsers) {
		o := socketOptions{url: url, hello: device(user, "app", "desktop")}
		if _, err := openSocket(context.Background(), o); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin) // until the parent ends
	return 0
}

// TestHeldClientKilled kills a client process, whose machine closes its connections: after the grace, its users have
// left.
func TestHeldClientKilled(t *testing.T) {
	t.Parallel()
	users := numbered("child", childUsers)
	servers, tr := startHeld(t, 2, users...)
	child := testenv.Command(os.Args[0])
	child.Env = append(os.Environ(), clientVar+"="+servers[0].url)
	child.Stderr = os.Stderr
	in, err := child.StdinPipe()
	require.NoError(t, err)
	defer in.Close()
	out, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "ready", strings.TrimSpace(line))
	for _, user := range users {
		tr.await(t, user, lastseen.Green)
	}
	killed := time.Now()
	require.NoError(t, child.Process.Kill())
	_ = child.Wait() // reports the kill
	for _, user := range users {
		grey := tr.await(t, user, lastseen.Grey)
		require.Equal(t, []string{"unknown", "green", "left"}, tr.course(t, user))
		require.GreaterOrEqual(t, grey.received.Sub(killed), holdGrace)
	}
}

// TestHeldTabs has tabs of one user that come and go, one with the device ID of another one, and a page that is loaded
// again within the grace. The user stays green until the last one is closed.
func TestHeldTabs(t *testing.T) {
	t.Parallel()
	servers, tr := startHeld(t, 2, "alice", "first", "second", "third")
	first, second := here(t, tr, servers[0], "alice"), here(t, tr, servers[1], "alice")
	require.Equal(t, first.welcome.Device, second.welcome.Device)
	require.NotEqual(t, first.welcome.Connection, second.welcome.Connection)
	const grace = 10 * time.Second // in which a page can be loaded also on a busy machine
	first.close()
	passGrace(t, tr, servers[0], "first", holdGrace)
	tr.requireOnlyGreen(t, "alice")

	hello := device("alice", "page", "web").with("grace_ms", grace.Milliseconds())
	page := connect(t, socketOptions{url: servers[0].url, hello: hello})
	second.close()
	passGrace(t, tr, servers[0], "second", holdGrace)
	tr.requireOnlyGreen(t, "alice")

	page.close() // it is loaded again: another device
	again := connect(t, socketOptions{url: servers[1].url, hello: device("alice", "again", "web")})
	passGrace(t, tr, servers[0], "third", grace)
	tr.requireOnlyGreen(t, "alice")
	require.Equal(t, lastseen.Green, presenceOf(t, servers[0], "alice").Status)

	again.close()
	require.True(t, tr.await(t, "alice", lastseen.Grey).Left)
	require.Equal(t, []string{"unknown", "green", "left"}, tr.course(t, "alice"))
}
