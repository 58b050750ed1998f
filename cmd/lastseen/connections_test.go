package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestMaxConnections: how many connections are allowed to a process that may open so many files.
func TestMaxConnections(t *testing.T) {
	for files, want := range map[uint64]int{
		0: maxAutoConnections, 1: 1, 100: 50, 256: 128, 1024: 896, 4096: 3840, 65_536: 61_440,
		1 << 20: maxAutoConnections, 1<<64 - 1: maxAutoConnections,
	} {
		require.Equal(t, want, maxConnections(0, files), files)
		require.Equal(t, 500, maxConnections(500, files), files)
	}
}

// TestBodiesAreBounded sends 700 requests that lack their last byte, each on a connection of its own: the process
// takes no more memory than is set, and a bit for each connection.
func TestBodiesAreBounded(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it sends 700 MiB")
	}
	const bodies, size = 700, 1 << 20
	s := start(t, "--body-memory", "32MiB")
	s.post(t, alice+"/ping", "")
	before := s.memory(t)
	part := []byte(strings.Repeat(" ", size-1))
	status := map[int]int{}
	for range bodies {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		_, err = fmt.Fprintf(conn, "POST /v1/namespaces/chat/pings HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n",
			size)
		require.NoError(t, err)
		_, err = conn.Write(part)
		require.NoError(t, err)
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(5*time.Millisecond)))
		if response, err := http.ReadResponse(bufio.NewReader(conn), nil); err == nil {
			_, _ = io.Copy(io.Discard, response.Body)
			_ = response.Body.Close()
			status[response.StatusCode]++
		}
	}
	taken := s.memory(t) - before
	t.Logf("%d MiB for %d bodies; refused: %v", taken>>20, bodies, status)
	require.Less(t, taken, 2*32<<20+bodies*64<<10)
	s.post(t, alice+"/ping", `{"at":100123}`)
}
