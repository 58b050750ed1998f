package scenarios

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testserver"
)

// The scenarios in this file are those of apps and networks that fail, in an instant messenger whose clients send
// heartbeats every 30 seconds: a process is killed by force, a network is gone or changes, heartbeats are lost. The
// messenger's server watches connections first, then heartbeats, and then probes the client, before it sets
// StatusOffline. Names in quotes, and those of statuses, are the messenger's. Bob's app follows Alice.

// TestScenarioKilledApp: the process of Alice's app is killed by force: by her, by the system for want of memory, or by
// a crash. It can send neither heartbeats nor a leave. "CloseNotify" reports that the connection is closed, and after
// the grace, "setOfflineStatus" has her offline.
func TestScenarioKilledApp(t *testing.T) {
	t.Parallel()
	eachSite(t, func(t *testing.T, one, two *testserver.Server) {
		bob := openApp(t, two, appOptions{user: "bob", friends: []string{"alice"}})
		app := openApp(t, one, appOptions{user: "alice"})
		bob.until(t, "alice", "green")
		killed := time.Now()
		app.kill(t)
		bob.until(t, "alice", "left")
		require.Equal(t, []string{"never seen", "green", "left"}, bob.all("alice"))
		seen, err := time.Parse(time.RFC3339, one.Get(t, chatUsers+"alice")["last_seen"].(string))
		require.NoError(t, err)
		require.False(t, seen.After(killed), "she was last seen before that: %s, %s", seen, killed)
	}, "--disconnect-grace", "500ms")
}

// TestScenarioNoNetwork: the WLAN or the signal of Alice's phone is lost, and neither side learns it. After
// "HeartbeatTimeout", she is StatusAway, and after "FinalTimeout" StatusOffline, but has not left: she is StatusOnline
// again when the network is back. "cleanupConnection": the server ends the connection.
func TestScenarioNoNetwork(t *testing.T) {
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

// TestScenarioNetworkSwitch: Alice's phone changes from a WLAN to a mobile network, and the app connects again. She
// stays StatusOnline, and nobody sees anything of it.
func TestScenarioNetworkSwitch(t *testing.T) {
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

// TestScenarioReconnectInTime: the connection of Alice's app breaks, and "reconnectWithBackoff" connects again within
// the grace. She stays StatusOnline: statuses do not change to and fro.
func TestScenarioReconnectInTime(t *testing.T) {
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

// TestScenarioLostPing: an app does not answer one ping of the server, "probeConnection", because the network was slow.
// It answers the next ones, and stays StatusOnline. Nobody sees anything.
func TestScenarioLostPing(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, "--ping-interval", "400ms")
	bob := openApp(t, s, appOptions{user: "bob", friends: []string{"alice", "carol"}})
	phone := openApp(t, s, appOptions{user: "alice"})
	bob.until(t, "alice", "green")
	phone.silence.Store(1)
	before := phone.pings.Load()
	require.Eventually(t, func() bool { return phone.pings.Load() >= before+4 }, scenarioWait, 10*time.Millisecond)
	phone.send(t, `{"typing":{"to":["bob"]}}`) // its connection is open
	bob.untilFrame(t, "typing", `{"user":"alice","expires_in_ms":10000}`)
	require.Equal(t, []string{"never seen", "green"}, bob.all("alice"))
}
