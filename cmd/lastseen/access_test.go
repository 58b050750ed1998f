package main

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testserver"
)

// TestAccessOfTheProcess checks the responses and the log of a server with keys, also after a reload.
func TestAccessOfTheProcess(t *testing.T) {
	file := testserver.WriteConfig(t, aKey)
	s := testserver.Start(t, "--config", file, "--listen", ":0")
	ask := func(key string) int { return statusOf(t, s, http.MethodGet, "/v1/namespaces/a/users/alice", key) }
	require.Equal(t, http.StatusOK, ask("ls_a"))
	require.Equal(t, http.StatusUnauthorized, ask("ls_b"))
	require.NotContains(t, s.Log.String(), "level=DEBUG")
	bKey := strings.ReplaceAll(aKey, testserver.HashOf("ls_a"), testserver.HashOf("ls_b"))
	hangup(t, s, file, "log-level: debug\n"+bKey)
	require.Eventually(t, func() bool { return ask("ls_a") == http.StatusUnauthorized }, time.Minute, time.Millisecond)
	require.Equal(t, http.StatusOK, ask("ls_b"))
	requireLogged(t, s, "level=DEBUG") // why ls_a is refused now
	require.NotContains(t, s.Log.String(), "ls_a")
	require.Zero(t, s.Terminate(t))
}
