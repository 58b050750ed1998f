package guard_test

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen/api/apitest"
	"github.com/lastseen/lastseen/api/apitest/kit"
	"github.com/lastseen/lastseen/api/guard"
)

// boundedServer serves a handler over a limited number of connections. It returns the server, its log
// and its metrics.
func boundedServer(t *testing.T, most int, encrypted bool, handler http.Handler) (server *httptest.Server,
	log *kit.Log, metrics *prometheus.Registry,
) {
	t.Helper()
	log, metrics = &kit.Log{}, prometheus.NewRegistry()
	logger := slog.New(slog.NewTextHandler(log, nil))
	server = httptest.NewUnstartedServer(nil)
	server.Config = guard.NewServer(handler, logger)
	server.Listener = guard.LimitConnections(server.Config, server.Listener, most, logger, metrics)
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
	server, log, metrics := boundedServer(t, most, false, http.HandlerFunc(func(_ http.ResponseWriter,
		r *http.Request,
	) {
		if r.URL.Path == "/slow" {
			busy <- struct{}{}
			<-let
		}
	}))
	dial := func() net.Conn { return dialTo(t, server.Listener) }
	idles := func(conn net.Conn, n int) { // the server notes it after the client has the response
		t.Helper()
		require.NoError(t, get(conn, "/"))
		kit.Await(t, func() bool { return guard.Connections(server.Listener).Idle == n })
	}
	var conns []net.Conn
	for n := range most {
		conns = append(conns, dial())
		idles(conns[n], n+1)
	}
	idles(conns[0], most) // now the second one has been idle longest
	another := dial()
	idles(another, most)
	require.Error(t, get(conns[1], "/"))
	require.NoError(t, get(conns[0], "/"))
	require.NoError(t, get(conns[2], "/"))
	require.Contains(t, log.String(), "idle connections closed")

	var served sync.WaitGroup
	for _, conn := range []net.Conn{conns[0], conns[2], another} {
		served.Go(func() { assert.NoError(t, get(conn, "/slow")) })
		<-busy
	}
	require.Error(t, get(dial(), "/"))
	require.Error(t, get(dial(), "/"))
	require.Equal(t, map[string]float64{"": most, "_refused_total": 2}, kit.Samples(t, metrics,
		"lastseen_http_connections"))
	close(let)
	served.Wait()
	require.Regexp(t, `level=ERROR msg="connections refused`, log.String())
	kit.Await(t, func() bool { return get(dial(), "/") == nil })
}

func dialTo(t *testing.T, listener net.Listener) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", listener.Addr().String())
	require.NoError(t, err)
	require.NoError(t, conn.SetDeadline(time.Now().Add(kit.Eventually)))
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// TestSilentConnections checks that connections without a request are closed for others.
func TestSilentConnections(t *testing.T) {
	const most = 3
	server, _, _ := boundedServer(t, most, false, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for range 10 * most {
		dialTo(t, server.Listener)
	}
	kit.Await(t, func() bool { return getOK(server) })
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
	read *atomic.Int64
	end  <-chan struct{}
}

func (c countingBody) Read(p []byte) (int, error) {
	select {
	case <-c.end:
		return 0, io.EOF
	default:
	}
	n := min(len(p), maxPiece) // which the client holds until it may send it
	c.read.Add(int64(n))
	return n, nil
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
	var sent atomic.Int64 // by all
	for range requests {
		all.Go(func() {
			if response, err := server.Client().Post(server.URL, "text/plain", countingBody{&sent, end}); err == nil {
				_ = response.Body.Close()
			}
		})
		<-arrived
	}
	kit.Await(t, func() bool { return sent.Load() >= kit.StreamBuffer })
	for before := int64(0); before != sent.Load(); time.Sleep(100 * time.Millisecond) { // until it sends no more
		before = sent.Load()
	}
	require.LessOrEqual(t, sent.Load(), int64(kit.StreamBuffer+requests*maxPiece))
	close(end)
	all.Wait()
}

// TestWebSocketsAreBounded checks that a WebSocket counts as a connection until it ends, and is not idle.
func TestWebSocketsAreBounded(t *testing.T) {
	w := apitest.NewSocketServer(t)
	server, _, _ := boundedServer(t, 1, false, w)
	w.URL = server.URL
	s, _ := w.Hello(`{"user":"alice"}`)
	require.Error(t, get(dialTo(t, server.Listener), "/healthz"))
	s.Quiet()
	s.Asks(`{"leave":{}}`, "ok")
	s.Closed(1000, "")
	kit.Await(t, func() bool {
		conn := dialTo(t, server.Listener)
		defer conn.Close()
		return get(conn, "/healthz") == nil
	})
}

// TestConnectionsWaitToBeServed: connections are accepted although the server does not take them yet, and are closed
// with the listener.
func TestConnectionsWaitToBeServed(t *testing.T) {
	t.Parallel()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l := guard.LimitConnections(&http.Server{}, inner, 2, slog.New(slog.DiscardHandler), nil)
	first, second := dialTo(t, inner), dialTo(t, inner)
	kit.Await(t, func() bool { return guard.Connections(l).Accepted == 2 })
	served, err := l.Accept()
	require.NoError(t, err)
	require.Equal(t, first.LocalAddr(), served.RemoteAddr(), "in order")
	require.NoError(t, l.Close())
	_, err = second.Read(make([]byte, 1))
	require.Error(t, err, "nobody serves it")
	_, err = l.Accept()
	require.ErrorIs(t, err, net.ErrClosed)
	require.NoError(t, served.Close())
	kit.Await(t, func() bool { return guard.Connections(l).Open == 0 })
}

// TestPanicsBelowEcho checks that a panic that no middleware catches is logged as an error with its stack.
func TestPanicsBelowEcho(t *testing.T) {
	server, log, _ := boundedServer(t, 10, false, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		panic("the cause")
	}))
	require.False(t, getOK(server))
	require.Contains(t, log.String(), "level=ERROR")
	require.Contains(t, log.String(), "the cause")
	require.Contains(t, log.String(), "connections_test.go", "the stack")
}
