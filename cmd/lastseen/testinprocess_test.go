package main

import (
	"context"
	"io"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/internal/testenv"
	"github.com/lastseen/lastseen/internal/testserver"
)

// startInProcess runs the service in this process. The function that it returns stops it and returns its exit code.
func startInProcess(t *testing.T, args []string) (s *testserver.Server, stop func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	out, announce := io.Pipe()
	s = &testserver.Server{Log: &testenv.Log{}}
	ended := make(chan int, 1)
	go func() { ended <- run(ctx, append([]string{"--listen", "127.0.0.1:0"}, args...), announce, s.Log) }()
	banner := make([]byte, 1<<10) // it is written in one piece
	n, err := out.Read(banner)
	require.NoError(t, err, "%s", s.Log)
	_, url, _ := strings.Cut(string(banner[:n]), "  API   ")
	s.URL, _, _ = strings.Cut(url, "/v1/namespaces")
	stopped := sync.OnceValue(func() int {
		cancel()
		return <-ended
	})
	t.Cleanup(func() { stopped() })
	return s, stopped
}

type footprint struct {
	goroutines, files int
	heap              uint64
}

func takeFootprint(t *testing.T) footprint {
	t.Helper()
	http.DefaultClient.CloseIdleConnections()
	files, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return footprint{runtime.NumGoroutine(), len(files), m.HeapAlloc}
}

// requireFootprint waits until the process holds no more than before, except a little that varies, such as the
// connections of a pool.
func requireFootprint(t *testing.T, before footprint) {
	t.Helper()
	var now footprint
	enough := func() bool {
		now = takeFootprint(t)
		return now.goroutines <= before.goroutines+10 && now.files <= before.files+10 && now.heap <= before.heap+8<<20
	}
	if !assert.Eventually(t, enough, time.Minute, 100*time.Millisecond) {
		buffer := make([]byte, 1<<20)
		t.Fatalf("%+v became %+v: %s", before, now, buffer[:runtime.Stack(buffer, true)])
	}
}
