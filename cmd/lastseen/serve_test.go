package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testserver"
	"github.com/lastseen/lastseen/store/storetest/redistest"
)

const alice = testserver.Alice

// TestTerminateUnderLoad stops a service that many clients ping; whatever was answered is there
// after the restart.
func TestTerminateUnderLoad(t *testing.T) {
	t.Parallel()
	store := filepath.Join(t.TempDir(), "data.db")
	s := testserver.Start(t, "--store", store, "--sync", "1h")
	pings := startLoad(s)
	require.Eventually(t, func() bool { return len(pings.acknowledged()) > 100 }, time.Minute, time.Millisecond)
	require.Zero(t, s.Terminate(t), s.Log)
	pings.wg.Wait()
	pings.requireKept(t, testserver.Start(t, "--store", store), pings.acknowledged())
}

// TestTerminateCutsOffSlowClients stops a service while a client never finishes its request.
func TestTerminateCutsOffSlowClients(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t)
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://"))
	require.NoError(t, err)
	defer conn.Close()
	fmt.Fprintf(conn, "POST %s/ping HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{", alice)
	s.Get(t, "/healthz") // the server is past accepting the connection before
	require.Zero(t, s.Terminate(t), s.Log)
}

// TestRefusesOldRedis ends at once, and says why.
func TestRefusesOldRedis(t *testing.T) {
	var out, log bytes.Buffer
	code := run(context.Background(), []string{"--store", redistest.StartImpostor(t, "redis_version:6.0.16\r\n")}, &out,
		&log)
	require.Equal(t, 1, code)
	require.Contains(t, log.String(), "version 6.0.16")
	require.Contains(t, log.String(), "6.2 or newer is required")
}

func TestRefusesOtherAndLockedFiles(t *testing.T) {
	foreign := filepath.Join(t.TempDir(), "notes.txt")
	require.NoError(t, os.WriteFile(foreign, bytes.Repeat([]byte("notes "), 4000), 0o600))
	code, _, stderr := execute(t, "--listen", "127.0.0.1:0", "--store", foreign)
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "not a lastseen data file")

	locked := filepath.Join(t.TempDir(), "data.db")
	testserver.Start(t, "--store", locked)
	code, _, stderr = execute(t, "--listen", "127.0.0.1:0", "--store", locked)
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "in use by another process")

	code, _, stderr = execute(t, "--listen", "127.0.0.1:0", "--store",
		filepath.Join(t.TempDir(), "no", "folder", "data.db"))
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "folder must exist")
}
