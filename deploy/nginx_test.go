package deploy_test

import (
	"bufio"
	"context"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

// startNginx starts the nginx of the deployment in front of one server, until the test ends, and returns the URL of the
// API. Its files are in a folder of the test, and the server has an address instead of a name in Docker's DNS.
func startNginx(t *testing.T, s server) (api string) {
	t.Helper()
	nginx, listen := testenv.Program(t, "nginx", "nginx"), redistest.FreeAddr(t, "127.0.0.1")
	return startProxy(t, s, "nginx.conf", listen, map[string]string{
		" /tmp/": " " + t.TempDir() + "/", "listen 8080;": "listen " + listen + ";",
		"access_log /dev/stdout plain;": "access_log off;", "error_log stderr warn;": "error_log stderr crit;",
		"set $servers lastseen:8080;": "set $servers " + addressOf(s) + ";",
	}, func(file string) *exec.Cmd {
		return testenv.CommandUntil(syscall.SIGTERM, nginx, "-c", file, "-g", "daemon off;", "-e", "stderr")
	})
}

// TestNginxPassesChanges follows changes through a real nginx: each event arrives before the next one happens.
func TestNginxPassesChanges(t *testing.T) {
	testenv.Program(t, "nginx", "nginx")
	s := startServer(t, buildServer(t), "--store", filepath.Join(t.TempDir(), "data.db"))
	url := startNginx(t, s) + "/chat"
	stream := followThrough(t, url+"/changes?user=alice", "")
	require.Contains(t, stream.next(t, "changes"), `"status":"grey"`)
	status, _ := request(t, http.MethodPost, url+"/users/alice/ping", "")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, stream.next(t, "changes"), `"status":"green"`)
	status, _ = request(t, http.MethodPost, url+"/users/alice/leave", "")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, stream.next(t, "changes"), `"left":true`)

	again := followThrough(t, url+"/changes?user=alice", stream.id)
	require.NotEmpty(t, again.next(t, "tick"), "a client that continues has missed nothing")
	status, _ = request(t, http.MethodPost, url+"/users/alice/ping", "")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, again.next(t, "changes"), `"status":"green"`)

	status, body := request(t, http.MethodGet, url+"/changes?user=alice&wait=1s&cursor="+again.id, "")
	require.Equal(t, http.StatusOK, status, body)
	require.Contains(t, body, `"users":[]`, "the long poll continues after the stream")
}

// events is a stream of Server-Sent Events.
type events struct {
	lines *bufio.Scanner
	id    string // of the last event
}

// followThrough opens a stream, which continues after the event of an ID unless that is empty.
func followThrough(t *testing.T, url, after string) *events {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	require.NoError(t, err)
	r.Header.Set("Accept", "text/event-stream")
	if after != "" {
		r.Header.Set("Last-Event-ID", after)
	}
	response, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	t.Cleanup(func() { _ = response.Body.Close() })
	require.Equal(t, http.StatusOK, response.StatusCode)
	require.Equal(t, "text/event-stream", response.Header.Get("Content-Type"))
	return &events{lines: bufio.NewScanner(response.Body)}
}

// next returns the data of the next event with a name. A tick can come before a change; it is skipped.
func (e *events) next(t *testing.T, name string) (data string) {
	t.Helper()
	found := ""
	for e.lines.Scan() {
		field, value, _ := strings.Cut(e.lines.Text(), ": ")
		switch field {
		case "event":
			found = value
		case "id":
			e.id = value
		case "data":
			data = value
		case "":
			if found == name {
				return data
			}
			require.Contains(t, []string{"", "tick"}, found, data)
		}
	}
	t.Fatalf("the stream ended before an event %s: %v", name, e.lines.Err())
	return ""
}
