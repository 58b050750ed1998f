//go:build faults

package faults

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// TestHeldConnectionsEnd ends connections in all ways. A leave is a goodbye at once. The end of the TCP connection is
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
					"the time at which it was heard last: a grace or more before the goodbye")
			}
		})
	}
	deaf.awaitEnd(t)
	tr.requireDecay(t, "deaf", holdThresholds())
	require.InDelta(t, 1, servers[0].metric(t, "lastseen_connections_lost_total"), 0)
	require.InDelta(t, len(ends), servers[0].metric(t, "lastseen_connections_goodbyes_total"), 0)
	require.Zero(t, servers[0].metric(t, "lastseen_connections"))
}

// TestHeldTabs has tabs of alice that come and go, one with the device ID of another one, and a page that is loaded
// again within the grace. All who watch her agree: she stays green until the last one is closed.
func TestHeldTabs(t *testing.T) {
	t.Parallel()
	servers, tr := startHeld(t, 2, "alice", "first", "second", "third")
	everyone := watch(t, servers[0])
	onlyGreen := func(devices ...string) {
		t.Helper()
		tr.requireOnlyGreen(t, "alice")
		everyone.requireOnlyGreen(t, "alice")
		require.Equal(t, lastseen.Green, presenceOf(t, servers[0], "alice").Status)
		require.ElementsMatch(t, devices, liveDevices(t, servers[0]))
	}
	first, second := here(t, tr, servers[0], "alice"), here(t, tr, servers[1], "alice")
	require.Equal(t, first.welcome.Device, second.welcome.Device)
	require.NotEqual(t, first.welcome.Connection, second.welcome.Connection)
	first.close()
	passGrace(t, tr, servers[0], "first", holdGrace)
	onlyGreen("alice")

	const grace = 3 * time.Second // in which a page can be loaded also on a busy machine; shorter than green
	hello := device("alice", "page", "web").with("grace_ms", grace.Milliseconds())
	page := connect(t, socketOptions{url: servers[0].url, hello: hello})
	second.close()
	passGrace(t, tr, servers[1], "second", holdGrace)
	onlyGreen("page")

	page.close() // it is loaded again: another device
	again := connect(t, socketOptions{url: servers[1].url, hello: device("alice", "again", "web")})
	passGrace(t, tr, servers[0], "third", grace)
	onlyGreen("again")

	again.close()
	tr.requireLeft(t, "alice")
	everyone.await(t, "alice", lastseen.Grey)
	require.Equal(t, []string{"green", "left"}, everyone.course(t, "alice"))
	require.Empty(t, liveDevices(t, servers[0]))
}

// liveDevices returns the IDs of the devices of alice that count.
func liveDevices(t testing.TB, s *server) (ids []string) {
	t.Helper()
	found := decode[struct {
		Devices []struct {
			ID   string `json:"id"`
			Live bool   `json:"live"`
		} `json:"devices"`
	}](t, s.request(t, http.MethodGet, userPath("alice")+"/devices"))
	for _, d := range found.Devices {
		if d.Live {
			ids = append(ids, d.ID)
		}
	}
	return ids
}

// TestHeldAccessEnds ends what lets clients hold connections: a token ends, and a key is removed. Both close
// connections, and neither is a goodbye.
func TestHeldAccessEnds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	config, secret := filepath.Join(dir, "lastseen.yaml"), filepath.Join(dir, "secret")
	require.NoError(t, os.WriteFile(secret, []byte(strings.Repeat("secret", 10)), 0o600))
	base := "jwt-secret-file: " + secret + "\njwt-issuer: faults\njwt-audience: lastseen\njwt-leeway: 0s\nkeys:\n"
	keys := map[string]string{}
	lines := func(name string) string {
		made := regexp.MustCompile(`(ls_\S+)[\s\S]*hash: (\S+)`).FindStringSubmatch(
			runCommand(t, program(), "key", "new"))
		require.Len(t, made, 3)
		keys[name] = made[1]
		return "  " + name + ":\n    hash: " + made[2] + "\n    scopes: [ping, read, admin]\n    namespaces: [\"*\"]\n"
	}
	write := func(text string) { require.NoError(t, os.WriteFile(config, []byte(text), 0o600)) }
	base += lines("stays")
	write(base + lines("removed"))
	s := startServer(t, redistest.StartProcess(t).URL(), holdArgs("--config", config)...)
	token := func(user string, ttl time.Duration) string {
		return runCommand(t, program(), "token", "new", "--config", config, "--user", user, "--namespaces",
			"chat", "--ttl", ttl.String())
	}
	open := func(user, token string) *socket {
		return connect(t, socketOptions{url: s.url, hello: device(user, user, "mobile").with("token", token)})
	}
	expires, renews := open("expires", token("expires", 5*time.Second)), open("renews", token("renews", 15*time.Second))
	stays, removed := open("stays", keys["stays"]), open("removed", keys["removed"])
	require.Equal(t, "ok", renews.ask(t, "token", object{"token": token("renews", time.Hour)}).name)
	require.Equal(t, closedToken, expires.awaitEnd(t), "%v", expires.why())
	write(base)
	s.signal(t, syscall.SIGHUP)
	require.Equal(t, closedKey, removed.awaitEnd(t), "%v", removed.why())
	late := object{"user": "late", "token": keys["removed"]}
	_, err := openSocket(t.Context(), socketOptions{url: s.url, hello: late})
	require.Contains(t, []string{"4401", "4403", "HTTP 401"}, endOf(err))
	// A watcher sees how those who were closed decay: they said no goodbye.
	tr := &trail{connect(t, socketOptions{url: s.url, hello: object{
		"token": keys["stays"], "watch": object{"users": []string{"expires", "removed"}},
	}}), "watcher"}
	for _, user := range []string{"expires", "removed"} {
		tr.await(t, user, lastseen.Grey)
		require.NotContains(t, tr.course(t, user), "left")
	}
	for _, c := range []*socket{stays, renews} {
		require.True(t, c.open(), "%v", c.why())
	}
	require.Zero(t, s.metric(t, "lastseen_connections_goodbyes_total"))
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
	tr.requireDecay(t, "closed", holdThresholds()) // after many heartbeats of the one who stays
	tr.requireOnlyGreen(t, "stays")
	require.True(t, stays.open())
	require.Equal(t, []string{"unknown", "green", "unknown"}, tr.course(t, "forgotten"))
	require.Nil(t, presenceOf(t, servers[1], "forgotten").LastSeen)
}
