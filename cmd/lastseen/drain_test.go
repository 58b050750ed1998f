package main

import (
	"errors"
	"io"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/cmd/lastseen/internal/config"
	"github.com/lastseen/lastseen/internal/testserver"
)

// TestDrainTimes of requests and of WebSockets, which depend on who can reach the server unless they are set.
func TestDrainTimes(t *testing.T) {
	for _, c := range []struct {
		drain, connect time.Duration
		flags          map[string]string
	}{
		{0, 0, map[string]string{}},
		{0, 0, map[string]string{"listen": "[::1]:8080"}},
		{2 * time.Second, 30 * time.Second, map[string]string{"listen": ":8080", "auth": "none"}},
		{3 * time.Second, time.Second, map[string]string{"drain": "3s", "connect-drain": "1s"}},
		{0, 0, map[string]string{"listen": ":8080", "auth": "none", "drain": "0", "connect-drain": "0"}},
		{time.Minute, 0, map[string]string{"drain": "1m"}},
	} {
		loaded, err := config.Loader{Flags: c.flags}.Load()
		require.NoError(t, err)
		require.Equal(t, c.drain, loaded.DrainTime(), "%v", c.flags)
		require.Equal(t, c.connect, loaded.ConnectDrainTime(), "%v", c.flags)
	}
}

// TestDrainWaits as long as set, unless the server fails.
func TestDrainWaits(t *testing.T) {
	r := newReloadTest(t, "drain: 7s\n")
	var waited time.Duration
	elapsed := make(chan time.Time, 1)
	after := func(d time.Duration) <-chan time.Time {
		require.True(t, r.shared.Draining())
		waited = d
		return elapsed
	}
	failed, broken := make(chan error, 1), errors.New("broken")
	failed <- broken
	require.Equal(t, broken, drain(r.runtimeConfig, after, failed))
	require.Equal(t, 7*time.Second, waited)
	elapsed <- time.Time{}
	require.NoError(t, drain(r.runtimeConfig, after, failed))
	require.Contains(t, r.log.String(), "msg=stopping drain=7s")
}

// TestTerminateDrains: after SIGTERM, a server that drains refuses nothing but says on both listeners that it is not
// ready. A second signal ends it at once.
func TestTerminateDrains(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, "--drain", "1h", "--admin-listen", "127.0.0.1:0")
	ready := func(server string) (int, string) {
		response, err := http.Get(server + "/readyz")
		require.NoError(t, err)
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		return response.StatusCode, string(body)
	}
	for _, server := range []string{s.URL, s.Admin} {
		status, _ := ready(server)
		require.Equal(t, http.StatusOK, status)
	}
	require.NoError(t, s.Cmd.Process.Signal(syscall.SIGTERM))
	requireLogged(t, s, "msg=stopping drain=1h")
	require.Eventually(t, func() bool {
		status, _ := ready(s.URL)
		return status == http.StatusServiceUnavailable
	}, time.Minute, time.Millisecond)
	status, body := ready(s.Admin)
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Equal(t, "shutting down\n", body)
	s.Post(t, alice+"/ping", "")
	s.Get(t, "/healthz")
	response, err := http.Get(s.Admin + "/metrics")
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, http.StatusOK, response.StatusCode, "the end can be observed")

	require.NoError(t, s.Cmd.Process.Signal(syscall.SIGTERM))
	require.Error(t, s.Cmd.Wait())
	require.Equal(t, syscall.SIGTERM, s.Cmd.ProcessState.Sys().(syscall.WaitStatus).Signal())
}
