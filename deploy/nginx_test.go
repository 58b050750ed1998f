package deploy_test

import (
	"os/exec"
	"syscall"
	"testing"

	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/internal/testserver"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// startNginx starts the nginx of the deployment in front of one server, until the test ends, and returns it.
// Its files are in a folder of the test, and the server has an address instead of a name in Docker's DNS.
func startNginx(t *testing.T, s *testserver.Server) *testserver.Server {
	t.Helper()
	nginx, listen := testenv.Program(t, "nginx", "nginx"), redistest.FreeAddr(t, "127.0.0.1")
	return startProxy(t, "nginx.conf", listen, map[string]string{
		" /tmp/": " " + t.TempDir() + "/", "listen 8080;": "listen " + listen + ";",
		"access_log /dev/stdout plain;": "access_log off;", "error_log stderr warn;": "error_log stderr crit;",
		"set $servers lastseen:8080;": "set $servers " + addressOf(s) + ";",
	}, func(file string) *exec.Cmd {
		return testenv.CommandUntil(syscall.SIGTERM, nginx, "-c", file, "-g", "daemon off;", "-e", "stderr")
	})
}
