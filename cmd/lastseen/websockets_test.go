package main

import (
	"errors"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api"
	"github.com/lastseen/lastseen/cmd/lastseen/internal/config"
)

func TestMaxWebSockets(t *testing.T) {
	for _, c := range []struct{ setting, connections, want int }{
		{0, 65_536, 63_488}, {0, 18_750, 18_165}, {0, 2048, 1984}, {0, 128, 64}, {0, 20, 10}, {0, 1, 1},
		{7, 100, 7}, {100, 100, 100}, {101, 100, 100},
	} {
		require.Equal(t, c.want, maxWebSockets(c.setting, c.connections), "%+v", c)
	}
}

// TestWebSocketLimits checks that settings arrive, also those that change the defaults.
func TestWebSocketLimits(t *testing.T) {
	c, err := config.Loader{Flags: map[string]string{
		"max-connections": "1000", "disconnect-grace": "0", "max-key-websockets": "30", "max-address-websockets": "off",
		"connect-drain": "7s",
	}}.Load()
	require.NoError(t, err)
	require.Equal(t, api.WebSocketLimits{Max: 936, PerUser: 16, PerCaller: 30, Drain: 7 * time.Second},
		webSocketLimits(c))
}

func TestConnectDrainTime(t *testing.T) {
	for _, c := range []struct {
		want  time.Duration
		flags map[string]string
	}{
		{0, map[string]string{}},
		{30 * time.Second, map[string]string{"listen": ":8080", "auth": "none"}},
		{time.Second, map[string]string{"connect-drain": "1s"}},
		{0, map[string]string{"listen": ":8080", "auth": "none", "connect-drain": "0"}},
	} {
		loaded, err := config.Loader{Flags: c.flags}.Load()
		require.NoError(t, err)
		require.Equal(t, c.want, loaded.ConnectDrainTime(), "%v", c.flags)
	}
}

// TestEndWebSockets does not wait without WebSockets. It returns the error of a server that fails.
func TestEndWebSockets(t *testing.T) {
	shared := api.NewShared(api.Config{})
	require.NoError(t, endWebSockets(shared, time.Hour, nil))
	failed, broken := make(chan error, 1), errors.New("broken")
	failed <- broken
	if err := endWebSockets(shared, time.Hour, failed); err != nil { // either can be first
		require.Equal(t, broken, err)
	}
}

// TestTerminateWritesLeaves checks that a leave that waits is written before the server ends.
func TestTerminateWritesLeaves(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data.db")
	s := start(t, "--store", data)
	s.post(t, alice+"/ping", `{"device":{"id":"tab"}}`)
	status, _ := s.call(t, http.MethodPost, alice+"/leave", `{"device":{"id":"tab"},"after":"60s"}`)
	require.Equal(t, http.StatusAccepted, status)
	require.Equal(t, false, s.get(t, alice)["left"])
	require.Zero(t, s.terminate(t))
	s = start(t, "--store", data)
	require.Equal(t, true, s.get(t, alice)["left"])
}
