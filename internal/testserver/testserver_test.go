package testserver

import (
	"net/http"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMain sets a variable with which no server starts.
func TestMain(m *testing.M) {
	os.Setenv("LASTSEEN_GREEN", "no duration")
	os.Exit(Main(m))
}

// TestServer starts a server that does not see the variable, and ends it.
func TestServer(t *testing.T) {
	s := Start(t, "--admin-listen", "127.0.0.1:0")
	s.Post(t, Alice+"/ping", "")
	require.Equal(t, "green", InWords(s.Get(t, Alice)))
	s.Succeed(t, http.MethodPut, Alice+"/availability", `{"availability":"busy"}`)
	require.Equal(t, "green busy", InWords(s.Get(t, Alice)))
	require.Contains(t, s.Operations(t), "GET /v1/namespaces/{namespace}/users/{user}")
	require.Contains(t, s.Metrics(t), "lastseen_")
	events := s.Follow(t, "/v1/namespaces/chat/changes?user=alice", "")
	events.Until(t, "busy")
	require.NotEmpty(t, events.ID)
	require.Zero(t, s.Terminate(t), s.Log)
	require.NotEmpty(t, s.Log.String())
}

// TestBuildOnce: the second test that asks for a program gets the file that the first one has built.
func TestBuildOnce(t *testing.T) {
	file := Binary(t)
	before, err := os.Stat(file)
	require.NoError(t, err)
	require.Equal(t, file, Binary(t))
	after, err := os.Stat(file)
	require.NoError(t, err)
	require.Equal(t, before.ModTime(), after.ModTime())
}
