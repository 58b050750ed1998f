package deploy_test

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// startProxy starts a proxy of the deployment in front of one server, until the test ends, and returns the URL of the
// API. The command gets the name of a file with the configuration, which must have the texts that are replaced, by
// their replacements.
func startProxy(
	t *testing.T, s server, name, listen string, replaced map[string]string, command func(file string) *exec.Cmd,
) (api string) {
	t.Helper()
	text := string(read(t, name))
	for old, changed := range replaced {
		require.Contains(t, text, old)
		text = strings.ReplaceAll(text, old, changed)
	}
	file := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	proxy := command(file)
	proxy.Stderr = os.Stderr
	require.NoError(t, proxy.Start())
	t.Cleanup(func() {
		_ = proxy.Process.Signal(syscall.SIGTERM) // its workers end with it
		_ = proxy.Wait()
	})
	_, path, _ := strings.Cut(strings.TrimPrefix(s.api, "http://"), "/")
	api = "http://" + listen + "/" + path
	require.Eventually(t, func() bool {
		response, err := http.Get(api + "/chat/users/alice")
		if err != nil {
			return false
		}
		return response.Body.Close() == nil && response.StatusCode == http.StatusOK
	}, patience, 20*time.Millisecond)
	return api
}

// addressOf returns the host and port of a server's API.
func addressOf(s server) string {
	address, _, _ := strings.Cut(strings.TrimPrefix(s.api, "http://"), "/")
	return address
}
