package deploy_test

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testserver"
)

// startProxy starts a proxy of the deployment in front of one server, until the test ends, and returns the server as
// clients of the proxy reach it. The command gets the name of a file with the configuration, which must have the texts
// that are replaced, by their replacements.
func startProxy(
	t *testing.T, name, listen string, replaced map[string]string, command func(file string) *exec.Cmd,
) *testserver.Server {
	t.Helper()
	text := string(read(t, name))
	for old, changed := range replaced {
		require.Contains(t, text, old)
		text = strings.ReplaceAll(text, old, changed)
	}
	proxy := command(testserver.WriteFile(t, name, []byte(text)))
	proxy.Stderr = os.Stderr
	require.NoError(t, proxy.Start())
	t.Cleanup(func() {
		_ = proxy.Process.Signal(syscall.SIGTERM) // its workers end with it
		_ = proxy.Wait()
	})
	url := "http://" + listen
	require.Eventually(t, func() bool {
		response, err := http.Get(url + testserver.Alice)
		return err == nil && response.Body.Close() == nil && response.StatusCode == http.StatusOK
	}, patience, 20*time.Millisecond)
	return &testserver.Server{URL: url}
}

func addressOf(s *testserver.Server) string { return strings.TrimPrefix(s.URL, "http://") }

func proxies() map[string]func(*testing.T, *testserver.Server) *testserver.Server {
	return map[string]func(*testing.T, *testserver.Server) *testserver.Server{
		"nginx": startNginx, "haproxy": startHAProxy,
	}
}

// TestProxiesPassChanges follows changes through each proxy: each event arrives before the next one happens, also for a
// client that continues.
func TestProxiesPassChanges(t *testing.T) {
	const changes = "/v1/namespaces/chat/changes?user=alice"
	for name, proxy := range proxies() {
		t.Run(name, func(t *testing.T) {
			s := proxy(t, startServer(t))
			stream := s.Follow(t, changes, "")
			stream.Until(t, `"status":"grey"`)
			s.Post(t, testserver.Alice+"/ping", "")
			stream.Until(t, `"status":"green"`)
			s.Post(t, testserver.Alice+"/leave", "")
			stream.Until(t, `"left":true`)

			again := s.Follow(t, changes, stream.ID)
			event, data := again.Any()
			require.Equal(t, "tick", event, "a client that continues has missed nothing: %s", data)
			s.Post(t, testserver.Alice+"/ping", "")
			again.Until(t, `"status":"green"`)
			poll := s.Get(t, changes+"&wait=1s&cursor="+again.ID)
			require.Empty(t, poll["users"], "the long poll continues after the stream")
			lookup := s.Get(t, "/v1/namespaces/chat/lookup?user=a%2Fb")
			require.Contains(t, fmt.Sprint(lookup), "a/b")
		})
	}
}
