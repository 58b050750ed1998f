package api

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
)

// boundedServer serves a handler over a limited number of connections. It returns the server, its log
// and its metrics.
func boundedServer(t *testing.T, most int, encrypted bool, handler http.Handler) (server *httptest.Server,
	log *lockedLog, metrics *prometheus.Registry,
) {
	t.Helper()
	log, metrics = &lockedLog{}, prometheus.NewRegistry()
	logger := slog.New(slog.NewTextHandler(log, nil))
	server = httptest.NewUnstartedServer(nil)
	server.Config = NewServer(handler, logger)
	server.Listener = LimitConnections(server.Config, server.Listener, most, logger, metrics)
	if encrypted {
		server.EnableHTTP2 = true
		server.StartTLS()
	} else {
		server.Start()
	}
	t.Cleanup(server.Close)
	return server, log, metrics
}

// get requests a path over a connection, and returns an error if there is no response.
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

// TestConnectionsAreBounded checks that the connection that has been idle longest is closed for a new one, and that
// a new one is closed while all others are busy.
func TestConnectionsAreBounded(t *testing.T) {
	const most = 3
	busy, let := make(chan struct{}), make(chan struct{})
	server, log, metrics := boundedServer(t, most, false, http.HandlerFunc(func(
		_ http.ResponseWriter, r *http.Request,
	) {
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
	listener := server.Listener.(*limitedListener)
	waitForIdle := func(n int) { // the server notes it after the client has the response
		require.Eventually(t, func() bool {
			listener.mu.Lock()
			defer listener.mu.Unlock()
			return listener.idle.Len() == n
		}, 30*time.Second, time.Millisecond)
	}
	var conns []net.Conn
	for n := range most {
		conn := dial()
		require.NoError(t, get(conn, "/"))
		waitForIdle(n + 1)
		conns = append(conns, conn)
	}
	require.NoError(t, get(conns[0], "/"), "now the second one has been idle longest")
	waitForIdle(most)
	another := dial()
	require.NoError(t, get(another, "/"))
	waitForIdle(most)
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
	require.Equal(t, map[string]float64{"": most, "_refused_total": 2},
		samples(t, metrics, "lastseen_http_connections"))
	close(let)
	served.Wait()
	require.Regexp(t, `level=ERROR msg="connections refused`, log.String())
	require.Eventually(t, func() bool { return get(dial(), "/") == nil }, time.Minute, time.Millisecond)
}

// TestSilentConnections checks that connections without a request are closed for others.
func TestSilentConnections(t *testing.T) {
	const most = 3
	server, _, _ := boundedServer(t, most, false, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for range 10 * most {
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		require.NoError(t, err)
		defer conn.Close()
	}
	require.Eventually(t, func() bool { return getOK(server) }, time.Minute, time.Millisecond)
}

// getOK reports whether a request of a new client gets a response.
func getOK(server *httptest.Server) bool {
	response, err := server.Client().Get(server.URL)
	if err != nil {
		return false
	}
	return response.Body.Close() == nil
}

// TestBoundedConnectionsOverTLS checks that HTTP/2 connections count, and are idle when they have no request in
// progress.
func TestBoundedConnectionsOverTLS(t *testing.T) {
	const most = 2
	server, log, _ := boundedServer(t, most, true, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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

const maxPiece = 1 << 10

// countingBody is an endless body that counts the bytes read of it.
type countingBody struct {
	mu   sync.Mutex
	read int
	end  <-chan struct{}
}

func (c *countingBody) Read(p []byte) (int, error) {
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

func (c *countingBody) total() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.read
}

// TestUnreadHTTP2Bodies checks that the data that arrives before it is read is bounded, for all requests of a
// connection together.
func TestUnreadHTTP2Bodies(t *testing.T) {
	arrived, end := make(chan struct{}), make(chan struct{})
	server, _, _ := boundedServer(t, 10, true, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		arrived <- struct{}{}
		<-end
	}))
	const requests = 20
	var all sync.WaitGroup
	var bodies []*countingBody
	for range requests {
		body := &countingBody{end: end}
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

// TestWebSocketsAreBounded checks that a WebSocket counts as a connection until it ends, and is not idle.
func TestWebSocketsAreBounded(t *testing.T) {
	w := newSocketServer(t)
	server, _, _ := boundedServer(t, 1, false, w)
	w.url = server.URL
	s, _ := w.hello(`{"user":"alice"}`)
	refused, err := net.Dial("tcp", server.Listener.Addr().String())
	require.NoError(t, err)
	defer refused.Close()
	require.NoError(t, refused.SetDeadline(time.Now().Add(time.Minute)))
	require.Error(t, get(refused, "/healthz"))
	s.asks(`{"activity":{"idle":true}}`, frameOK)
	s.asks(`{"leave":{}}`, frameOK)
	s.closed(1000, "")
	require.Eventually(t, func() bool {
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		require.NoError(t, err)
		defer conn.Close()
		return get(conn, "/healthz") == nil
	}, eventually, tick)
}

// TestConnectionsWaitToBeServed: connections are accepted although the server does not take them yet, and are closed
// with the listener.
func TestConnectionsWaitToBeServed(t *testing.T) {
	t.Parallel()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l := LimitConnections(&http.Server{}, inner, 2, slog.New(slog.DiscardHandler), nil).(*limitedListener)
	dial := func() net.Conn {
		conn, err := net.Dial("tcp", inner.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	first, second := dial(), dial()
	require.Eventually(t, func() bool { return len(l.accepted) == 2 }, eventually, tick)
	served, err := l.Accept()
	require.NoError(t, err)
	require.Equal(t, first.LocalAddr(), served.RemoteAddr(), "in order")
	require.NoError(t, l.Close())
	_, err = second.Read(make([]byte, 1))
	require.Error(t, err, "nobody serves it")
	_, err = l.Accept()
	require.ErrorIs(t, err, net.ErrClosed)
	require.NoError(t, served.Close())
	require.Eventually(t, func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.open == 0
	}, eventually, tick)
}
