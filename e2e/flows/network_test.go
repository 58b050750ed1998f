package flows

import (
	"bufio"
	"fmt"
	"math"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/internal/testserver"
)

// The flows in this file are those of apps and networks that fail, in an instant messenger whose clients send
// heartbeats every 30 seconds: a process is killed by force, a network is gone or changes, heartbeats are lost. The
// messenger's server watches connections first, then heartbeats, and then probes the client, before it sets
// StatusOffline. Names in quotes, and those of statuses, are the messenger's. Bob's app follows Alice.

// TestFlowKilledApp: the process of Alice's app is killed by force: by her, by the system for want of memory, or by a
// crash. It can send neither heartbeats nor a goodbye. "CloseNotify" reports that the connection is closed, and after
// the grace, "setOfflineStatus" has her offline.
func TestFlowKilledApp(t *testing.T) {
	t.Parallel()
	eachSite(t, func(t *testing.T, one, two *testserver.Server) {
		bob := openApp(t, two, appOptions{user: "bob", friends: []string{"alice"}})
		app := testenv.Command(os.Args[0])
		app.Env = append(os.Environ(), flowAppVar+"="+one.URL)
		app.Stderr = os.Stderr
		in, err := app.StdinPipe()
		require.NoError(t, err)
		defer in.Close()
		out, err := app.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, app.Start())
		line, err := bufio.NewReader(out).ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, "online\n", line)
		bob.until(t, "alice", "green")

		killed := time.Now()
		require.NoError(t, app.Process.Kill())
		_ = app.Wait() // reports the kill
		bob.until(t, "alice", "left")
		require.Equal(t, []string{"never seen", "green", "left"}, bob.all("alice"))
		seen, err := time.Parse(time.RFC3339, one.Get(t, chatUsers+"alice")["last_seen"].(string))
		require.NoError(t, err)
		require.False(t, seen.After(killed), "she was last seen before that: %s, %s", seen, killed)
	}, "--disconnect-grace", "500ms")
}

// TestFlowNoNetwork: the WLAN or the signal of Alice's phone is lost, and neither side learns it. After
// "HeartbeatTimeout", she is StatusAway, and after "FinalTimeout" StatusOffline, but has not left: she is StatusOnline
// again when the network is back. "cleanupConnection": the server ends the connection.
func TestFlowNoNetwork(t *testing.T) {
	t.Parallel()
	eachSite(t, func(t *testing.T, one, two *testserver.Server) {
		bob := openApp(t, two, appOptions{user: "bob", friends: []string{"alice"}})
		phone := openApp(t, one, appOptions{user: "alice"})
		bob.until(t, "alice", "green")
		phone.silence.Store(math.MaxInt64)
		bob.until(t, "alice", "yellow")
		bob.until(t, "alice", "grey")
		phone.untilEnded(t) // the server gives up a connection on which it hears nothing
		require.NotContains(t, bob.all("alice"), "left")
		openApp(t, two, appOptions{user: "alice"})
		bob.until(t, "alice", "green")
	}, "--green", "1s", "--yellow", "2s", "--ping-interval", "400ms", "--disconnect-grace", "0")
}

// TestFlowNetworkSwitch: Alice's phone changes from a WLAN to a mobile network, and the app connects again. She stays
// StatusOnline, and nobody sees anything of it.
func TestFlowNetworkSwitch(t *testing.T) {
	t.Parallel()
	eachSite(t, func(t *testing.T, one, two *testserver.Server) {
		bob := openApp(t, two, appOptions{user: "bob", friends: []string{"alice", "carol"}})
		carol := openApp(t, one, appOptions{user: "carol"})
		wlan := openApp(t, one, appOptions{user: "alice"})
		bob.until(t, "alice", "green")

		// The app has no network, and connects again over the other one, possibly to another server.
		wlan.silence.Store(math.MaxInt64)
		openApp(t, two, appOptions{user: "alice"})
		require.NoError(t, wlan.network.Close())
		untilDevices(t, two, 1, 1) // the end of the first connection is recorded
		carol.send(t, `{"leave":{}}`)
		bob.until(t, "carol", "left")
		require.Equal(t, []string{"never seen", "green"}, bob.all("alice"))
	}, "--disconnect-grace", "0")
}

// TestFlowReconnectInTime: the connection of Alice's app breaks, and "reconnectWithBackoff" connects again within the
// grace. She stays StatusOnline: statuses do not change to and fro.
func TestFlowReconnectInTime(t *testing.T) {
	t.Parallel()
	eachSite(t, func(t *testing.T, one, two *testserver.Server) {
		bob := openApp(t, two, appOptions{user: "bob", friends: []string{"alice", "carol"}})
		app := openApp(t, one, appOptions{user: "alice"})
		bob.until(t, "alice", "green")
		app.kill(t)
		openApp(t, one, appOptions{user: "alice"})
		untilDevices(t, two, 1, 1)
		openApp(t, one, appOptions{user: "carol"}).send(t, `{"leave":{}}`)
		bob.until(t, "carol", "left")
		require.Equal(t, []string{"never seen", "green"}, bob.all("alice"))
	}) // with the default grace, in which an app can connect also on a busy machine
}

// TestFlowLostPing: an app does not answer one ping of the server, "probeConnection", because the network was slow. It
// answers the next ones, and stays StatusOnline. Nobody sees anything.
func TestFlowLostPing(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, "--ping-interval", "400ms")
	bob := openApp(t, s, appOptions{user: "bob", friends: []string{"alice", "carol"}})
	phone := openApp(t, s, appOptions{user: "alice"})
	bob.until(t, "alice", "green")
	phone.silence.Store(1)
	before := phone.pings.Load()
	require.Eventually(t, func() bool { return phone.pings.Load() >= before+4 }, flowWait, 10*time.Millisecond)
	phone.send(t, `{"typing":{"to":["bob"]}}`) // its connection is open
	bob.untilFrame(t, "typing", `{"user":"alice","expires_in_ms":10000}`)
	require.Equal(t, []string{"never seen", "green"}, bob.all("alice"))
}

// TestFlowJitter: heartbeats every 30 seconds over HTTP that are lost, late, doubled and out of order. As with
// "MaxMissedHeartbeats", up to two in a row can be lost: the user is StatusAway from 90 seconds of silence on, and
// "shouldMarkOffline" holds from 30 minutes on.
func TestFlowJitter(t *testing.T) {
	t.Parallel()
	begin := time.Now().Add(-time.Hour).Truncate(time.Second)
	at := func(seconds int) string {
		return begin.Add(time.Duration(seconds) * time.Second).UTC().Format(time.RFC3339)
	}
	const none = -1
	testserver.EachStore(t, func(t *testing.T, args []string) {
		s := testserver.Start(t, append(args, "--green", "90s", "--yellow", "30m", "--ping-interval", "30s")...)
		for _, step := range []struct {
			beat int // when the app sent the heartbeat that arrives, in seconds; or none
			now  int
			want string
		}{
			{0, 0, "green"},
			{30, 30, "green"},
			{none, 119, "green"}, // those of 60 and 90 are lost
			{none, 120, "yellow"},
			{60, 125, "green"}, // one of them arrives late
			{30, 149, "green"}, // an older one arrives again: it changes nothing
			{none, 150, "yellow"},
			{150, 150, "green"},
			{120, 239, "green"}, // out of order
			{none, 240, "yellow"},
			{none, 150 + 30*60 - 1, "yellow"},
			{none, 150 + 30*60, "grey"},
			{3000, 3000, "green"},
		} {
			if step.beat != none {
				s.Succeed(t, http.MethodPost, chatUsers+"alice/ping", fmt.Sprintf(`{"at":%q}`, at(step.beat)))
			}
			require.Equal(t, step.want, look(t, s, "alice", "?as_of="+at(step.now)), "%+v", step)
		}
	})
}
