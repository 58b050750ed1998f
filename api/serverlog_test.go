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

// lockedLog is a log that is read while it is written.
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

// outOfFiles is a listener that fails, as one does whose process may open no more files: that cannot be had on demand
// without failing the test, too.
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

// TestServerLog: what fails on the side of the server is an error in the log, once a minute; what clients do is not.
func TestServerLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log lockedLog
		logger := slog.New(slog.NewTextHandler(&log, nil))
		server := NewServer(http.NotFoundHandler(), logger)
		require.ErrorIs(t, server.Serve(LimitConnections(server, &outOfFiles{&pipes{closed: make(chan struct{})}, 30},
			10, logger)), net.ErrClosed)
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

// TestPanicsBelowEcho: one that no middleware catches is an error in the log, with its stack.
func TestPanicsBelowEcho(t *testing.T) {
	server, log := boundedServer(t, 10, false, http.HandlerFunc(func(http.ResponseWriter,
		*http.Request,
	) {
		panic("the cause")
	}))
	require.False(t, getOK(server))
	require.Contains(t, log.String(), "level=ERROR")
	require.Contains(t, log.String(), "the cause")
	require.Contains(t, log.String(), "serverlog_test.go", "the stack")
}
