package api

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// lockedLog is a log that can be read while it is written.
type lockedLog struct {
	mu sync.Mutex
	bytes.Buffer
}

func (l *lockedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Buffer.Write(p)
}

func (l *lockedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Buffer.String()
}

// outOfFiles is a listener that fails like one whose process has too many open files. A real one would make the test
// fail, too.
type outOfFiles struct {
	net.Listener
	left int
}

func (o *outOfFiles) Accept() (net.Conn, error) {
	if o.left--; o.left < 0 {
		return nil, net.ErrClosed
	}
	return nil, &net.OpError{Op: "accept", Net: "tcp", Err: temporary{errors.New("too many open files")}}
}

type temporary struct{ error }

func (temporary) Temporary() bool { return true }
func (temporary) Timeout() bool   { return false }

// TestServerLog checks that failures of the server are logged as errors, once a minute, and those of clients are
// not.
func TestServerLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log lockedLog
		logger := slog.New(slog.NewTextHandler(&log, nil))
		server := NewServer(http.NotFoundHandler(), logger)
		require.ErrorIs(t, server.Serve(LimitConnections(server,
			&outOfFiles{&pipeListener{closed: make(chan struct{})}, 30},
			10, logger, nil)), net.ErrClosed)
		require.Equal(t, 1, bytes.Count([]byte(log.String()),
			[]byte("level=ERROR msg=\"http: Accept error: accept tcp: too many open files\"")), log.String())
		time.Sleep(throttleTime)
		synctest.Wait()
		require.Contains(t, log.String(), "times=29 within=1m0s")

		log.Reset()
		server.ErrorLog.Print("http: TLS handshake error from 203.0.113.7:1234: EOF")
		require.Empty(t, log.String())
		for client := range 3 {
			server.ErrorLog.Printf("http: panic serving 203.0.113.%d:1234: out of range\ngoroutine 1 [running]", client)
		}
		require.Equal(t, 1, bytes.Count([]byte(log.String()), []byte("level=ERROR msg=\"http: panic out of range\"")),
			log.String())
		require.Contains(t, log.String(), "goroutine 1 [running]")
		time.Sleep(2 * throttleTime)
		synctest.Wait()
		require.Contains(t, log.String(), "times=2")
		log.Reset()
		server.ErrorLog.Print("http: panic serving 203.0.113.7:1234: out of range")
		require.NotEmpty(t, log.String(), "after a minute without one it is logged at once")
		for n := range 10_000 {
			server.ErrorLog.Printf("http: panic serving 203.0.113.7:1234: %d", n)
		}
		require.LessOrEqual(t, bytes.Count([]byte(log.String()), []byte("\n")), maxThrottled+1)
		time.Sleep(3 * throttleTime)
	})
}

// TestPanicsBelowEcho checks that a panic that no middleware catches is logged as an error with its stack.
func TestPanicsBelowEcho(t *testing.T) {
	server, log, _ := boundedServer(t, 10, false, http.HandlerFunc(func(http.ResponseWriter,
		*http.Request,
	) {
		panic("the cause")
	}))
	require.False(t, getOK(server))
	require.Contains(t, log.String(), "level=ERROR")
	require.Contains(t, log.String(), "the cause")
	require.Contains(t, log.String(), "serverlog_test.go", "the stack")
}
