package api

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// boundedServer serves a handler over at most so many connections. It returns how to connect, and the log.
func boundedServer(t *testing.T, most int, encrypted bool, handler http.Handler) (server *httptest.Server,
	log *lockedLog,
) {
	t.Helper()
	log = &lockedLog{}
	logger := slog.New(slog.NewTextHandler(log, nil))
	server = httptest.NewUnstartedServer(nil)
	server.Config = NewServer(handler, logger)
	server.Listener = LimitConnections(server.Config, server.Listener, most, logger)
	if encrypted {
		server.EnableHTTP2 = true
		server.StartTLS()
	} else {
		server.Start()
	}
	t.Cleanup(server.Close)
	return server, log
}

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

// get asks for a path over a connection, and returns an error if it does not get it.
func get(conn net.Conn, path string) error {
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: a\r\n\r\n", path); err != nil {
		return err
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	return err
}

// TestConnectionsAreBounded: the one that has been idle longest makes room, and as long as all are in use a new one is
// closed.
func TestConnectionsAreBounded(t *testing.T) {
	const most = 3
	busy, let := make(chan struct{}), make(chan struct{})
	server, log := boundedServer(t, most, false, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			busy <- struct{}{}
			<-let
		}
	}))
	dial := func() net.Conn {
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		require.NoError(t, err)
		require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	var conns []net.Conn
	for range most {
		conn := dial()
		require.NoError(t, get(conn, "/"))
		conns = append(conns, conn)
	}
	require.NoError(t, get(conns[0], "/"), "now the second one has been idle longest")
	another := dial()
	require.NoError(t, get(another, "/"))
	require.Error(t, get(conns[1], "/"))
	require.NoError(t, get(conns[0], "/"))
	require.NoError(t, get(conns[2], "/"))
	require.Contains(t, log.String(), "idle connections closed")

	var served sync.WaitGroup
	for _, conn := range []net.Conn{conns[0], conns[2], another} {
		served.Go(func() {
			if err := get(conn, "/slow"); err != nil {
				t.Error(err)
			}
		})
		<-busy
	}
	require.Error(t, get(dial(), "/"))
	require.Error(t, get(dial(), "/"))
	close(let)
	served.Wait()
	require.Regexp(t, `level=ERROR msg="connections refused`, log.String())
	require.Eventually(t, func() bool { return get(dial(), "/") == nil }, time.Minute, time.Millisecond)
}

// TestConnectionsThatSendNothing give way to those that do.
func TestConnectionsThatSendNothing(t *testing.T) {
	const most = 3
	server, _ := boundedServer(t, most, false, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for range 10 * most {
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		require.NoError(t, err)
		defer conn.Close()
	}
	require.Eventually(t, func() bool { return getOK(server) }, time.Minute, time.Millisecond)
}

// getOK reports whether a request of a new client is answered.
func getOK(server *httptest.Server) bool {
	response, err := server.Client().Get(server.URL)
	if err != nil {
		return false
	}
	return response.Body.Close() == nil
}

// TestBoundedConnectionsOverTLS: those of HTTP/2 count, and are idle when no request is in progress on them.
func TestBoundedConnectionsOverTLS(t *testing.T) {
	const most = 2
	server, log := boundedServer(t, most, true, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 {
			w.WriteHeader(http.StatusTeapot)
		}
	}))
	for range 3 * most {
		transport := server.Client().Transport.(*http.Transport).Clone()
		client := &http.Client{Transport: transport}
		t.Cleanup(transport.CloseIdleConnections)
		response, err := client.Get(server.URL)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, response.StatusCode)
		require.NoError(t, response.Body.Close())
	}
	require.Contains(t, log.String(), "idle connections closed")
	require.NotContains(t, log.String(), "refused")
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
	require.Contains(t, log.String(), "connections_test.go", "the stack")
}

const maxPiece = 1 << 10

// counting is an endless body that counts what is read of it.
type counting struct {
	mu   sync.Mutex
	read int
	end  <-chan struct{}
}

func (c *counting) Read(p []byte) (int, error) {
	select {
	case <-c.end:
		return 0, io.EOF
	default:
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	n := min(len(p), maxPiece) // which the client holds until it may send it
	c.read += n
	return n, nil
}

func (c *counting) total() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.read
}

// TestHTTP2BodiesThatNobodyReads: what arrives before it is read is bounded, for all requests of a connection together.
func TestHTTP2BodiesThatNobodyReads(t *testing.T) {
	arrived, end := make(chan struct{}), make(chan struct{})
	server, _ := boundedServer(t, 10, true, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		arrived <- struct{}{}
		<-end
	}))
	const requests = 20
	var all sync.WaitGroup
	var bodies []*counting
	for range requests {
		body := &counting{end: end}
		bodies = append(bodies, body)
		all.Go(func() {
			if response, err := server.Client().Post(server.URL, "text/plain", body); err == nil {
				_ = response.Body.Close()
			}
		})
		<-arrived
	}
	sent := func() (total int) {
		for _, body := range bodies {
			total += body.total()
		}
		return total
	}
	require.Eventually(t, func() bool { return sent() >= streamBuffer }, time.Minute, time.Millisecond)
	before := 0
	require.Eventually(t, func() bool { now := sent(); same := now == before; before = now; return same }, time.Minute,
		100*time.Millisecond)
	require.LessOrEqual(t, sent(), streamBuffer+requests*maxPiece)
	close(end)
	all.Wait()
}
