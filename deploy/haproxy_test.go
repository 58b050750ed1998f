package deploy_test

import (
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/internal/testserver"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// startHAProxy starts the HAProxy of the deployment in front of one server, until the test ends, and returns it.
// The two other servers of the file are left out.
func startHAProxy(t *testing.T, s *testserver.Server) *testserver.Server {
	t.Helper()
	haproxy, listen := testenv.Program(t, "haproxy", "haproxy"), redistest.FreeAddr(t, "127.0.0.1")
	return startProxy(t, "haproxy.cfg", listen, map[string]string{
		"bind :8080\n": "bind " + listen + "\n", "127.0.0.1:8081": addressOf(s),
		"    server lastseen2 127.0.0.1:8082 check\n": "", "    server lastseen3 127.0.0.1:8083 check\n": "",
		"log stdout format raw local0 notice": "log stdout format raw local0 emerg",
	}, func(file string) *exec.Cmd { return testenv.Command(haproxy, "-db", "-q", "-f", file) })
}

// TestHAProxyChecksItself: HAProxy accepts the file as it is, without a warning.
func TestHAProxyChecksItself(t *testing.T) {
	require.Empty(t, run(t, ".", testenv.Program(t, "haproxy", "haproxy"), "-c", "-q", "-dW", "-f", "haproxy.cfg"))
}

// TestProxiesWaitLongEnough: each proxy waits longer than a long poll takes, and than the time between two events of a
// stream or between two pings of a WebSocket.
func TestProxiesWaitLongEnough(t *testing.T) {
	for name, pattern := range map[string]string{
		"nginx.conf changes":     `/changes\$ \{\s+limit_conn followers \d+;\s+proxy_read_timeout (\d+)s;`,
		"nginx.conf connect":     `/connect\$ \{\s+limit_conn followers \d+;\s+proxy_read_timeout (\d+)s;`,
		"haproxy.cfg of clients": `(?m)^    timeout client (\d+)s$`,
		"haproxy.cfg of servers": `(?m)^    timeout server (\d+)s$`,
		"haproxy.cfg of tunnels": `(?m)^    timeout tunnel (\d+)s$`,
	} {
		file, _, _ := strings.Cut(name, " ")
		timeout, err := strconv.Atoi(find(t, file, pattern))
		require.NoError(t, err)
		require.GreaterOrEqual(t, timeout, 60, name)
	}
	require.NotContains(t, string(read(t, "nginx.conf")), "proxy_ignore_headers", "X-Accel-Buffering must have an effect")
}

// TestNginxPassesNoOtherUpgrade: only upgrades to WebSocket reach the servers.
func TestNginxPassesNoOtherUpgrade(t *testing.T) {
	require.Equal(t, "websocket", find(t, "nginx.conf", `"~\*\^websocket\$" (\w+);`))
	require.Equal(t, "$upgrade", find(t, "nginx.conf", `proxy_set_header Upgrade (\S+);`))
}
