//go:build faults

package faults

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// startNginx starts the nginx of the deployment in front of servers, until the test ends, and returns its URL. It
// sends a request to another server if one refuses it, but does not avoid that one for 10 s, as it would by default.
func startNginx(t testing.TB, servers []*server) (url string) {
	t.Helper()
	path := testenv.Program(t, "nginx", "nginx")
	config, err := os.ReadFile("../../../deploy/nginx.conf")
	require.NoError(t, err)
	upstream := "http {\n    upstream lastseen {\n"
	for _, s := range servers {
		upstream += "        server " + strings.TrimPrefix(s.url, "http://") + " max_fails=0;\n"
	}
	listen, dir := redistest.FreeAddr(t, "127.0.0.1"), t.TempDir()
	text := string(config)
	for old, changed := range map[string]string{
		" /tmp/": " " + dir + "/", "listen 8080;": "listen " + listen + ";",
		"access_log /dev/stdout plain;": "access_log off;", "error_log stderr warn;": "error_log stderr crit;",
		"set $servers lastseen:8080;": "set $servers lastseen;", "http {\n": upstream + "    }\n",
	} {
		require.Contains(t, text, old, "deploy/nginx.conf has changed")
		text = strings.ReplaceAll(text, old, changed)
	}
	file := filepath.Join(dir, "nginx.conf")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	cmd := testenv.CommandUntil(syscall.SIGTERM, path, "-c", file, "-g", "daemon off;", "-e", "stderr")
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	front := &server{url: "http://" + listen}
	await(t, "nginx to respond", front.healthy)
	return front.url
}

// TestRollingRestart restarts three servers one after the other, under a load through nginx. No request fails.
func TestRollingRestart(t *testing.T) {
	redis := redistest.StartProcess(t)
	var servers []*server
	for range 3 {
		servers = append(servers, startServer(t, redis.URL(), append(calm(), "--drain", "2s")...))
	}
	l := startLoad(t, loadOptions{leaves: 0.1}, startNginx(t, servers))
	for range testenv.Choose(3, 1) {
		for _, s := range servers {
			l.awaitPings(t, 100)
			begin := time.Now()
			s.terminate(t)
			t.Logf("ended after %s", time.Since(begin))
			s.start(t)
			await(t, "/readyz to succeed", func() bool { return s.ready(t) })
		}
	}
	l.awaitPings(t, 100)
	require.Empty(t, l.stop(t).failures)
	t.Logf("%d users verified", l.verify(t, servers[0].url))
}
