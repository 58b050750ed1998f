package main

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api"
	"github.com/lastseen/lastseen/cmd/lastseen/internal/config"
)

func TestMaxWebSockets(t *testing.T) {
	for _, c := range []struct{ setting, connections, want int }{
		{0, 65_536, 63_488},
		{0, 18_750, 18_165},
		{0, 2048, 1984},
		{0, 128, 64},
		{0, 20, 10},
		{0, 1, 1},
		{7, 100, 7},
		{100, 100, 100},
		{101, 100, 100},
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

// TestMaxConnections compares the limit of connections of processes that can open so many files.
func TestMaxConnections(t *testing.T) {
	for files, want := range map[uint64]int{
		0: maxAutoConnections, 1: 1, 100: 50, 256: 128, 1024: 896, 4096: 3840, 65_536: 61_440,
		1 << 20: maxAutoConnections, 1<<64 - 1: maxAutoConnections,
	} {
		require.Equal(t, want, maxConnections(0, files), files)
		require.Equal(t, 500, maxConnections(500, files), files)
	}
}
