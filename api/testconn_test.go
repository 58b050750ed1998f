package api

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store"
)

// dial connects to the server, for requests that Go's client would send differently.
func (w *testServer) dial() net.Conn {
	w.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
	require.NoError(w.t, err)
	w.t.Cleanup(func() { _ = conn.Close() })
	require.NoError(w.t, conn.SetDeadline(time.Now().Add(time.Minute)))
	return conn
}

// readResponse reads the final response from a connection.
func readResponse(t *testing.T, conn net.Conn) testResponse {
	t.Helper()
	from := bufio.NewReader(conn)
	response, err := http.ReadResponse(from, nil)
	require.NoError(t, err)
	if response.StatusCode == http.StatusContinue {
		response, err = http.ReadResponse(from, nil)
		require.NoError(t, err)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return testResponse{response.StatusCode, response.Header, string(content)}
}

// exchange sends bytes unchanged and returns all responses until the connection ends. The server may end it before
// it has read everything.
func (w *testServer) exchange(raw string) (responses []testResponse) {
	w.t.Helper()
	conn := w.dial()
	go io.WriteString(conn, raw)
	from := bufio.NewReader(conn)
	for {
		response, err := http.ReadResponse(from, nil)
		if err != nil {
			return responses
		}
		body, _ := io.ReadAll(response.Body) // what of it there is
		response.Body.Close()
		if response.StatusCode != http.StatusContinue {
			responses = append(responses, testResponse{response.StatusCode, response.Header, string(body)})
		}
	}
}

// The beginning of a ping of alice, without the end of its header, and a whole ping of mallory: the last request
// on its connection.
const (
	pingStart = "POST /v1/namespaces/chat/users/alice/ping HTTP/1.1\r\nHost: lastseen\r\n"
	smuggled  = "POST /v1/namespaces/chat/users/mallory/ping HTTP/1.1\r\nHost: lastseen\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
)

// pipeListener is a listener of in-memory connections, whose deadlines use the clock of the test.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (p *pipeListener) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipeListener) Close() error {
	close(p.closed)
	return nil
}

func (p *pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

// withFakeClock runs a test against a server with the usual limits and a clock that advances only when every
// goroutine waits.
func withFakeClock(t *testing.T, test func(t *testing.T, dial func() net.Conn)) {
	t.Helper()
	withFakeClockOn(t, fileStore, test)
}

// withFakeClockOn does the same with a store of the test.
func withFakeClockOn(t *testing.T, open func(*testing.T) store.Store, test func(t *testing.T, dial func() net.Conn)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		logger := slog.New(slog.NewTextHandler(&log, nil))
		server := NewServer(New(Config{
			Store: open(t), Logger: logger,
			Settings: Settings{Thresholds: lastseen.Thresholds{Green: time.Minute, Yellow: time.Hour}},
		}), logger)
		p := &pipeListener{make(chan net.Conn), make(chan struct{})}
		served := make(chan error, 1)
		go func() { served <- server.Serve(p) }()
		defer func() {
			require.NoError(t, server.Close())
			require.ErrorIs(t, <-served, http.ErrServerClosed)
			synctest.Wait()
			require.Empty(t, log.String(), "who is slow is no matter for the log")
		}()
		test(t, func() net.Conn {
			ours, theirs := net.Pipe()
			p.conns <- theirs
			return ours
		})
	})
}

// sendSlowly sends one part a second until the connection ends, and returns how long that took and all responses.
func sendSlowly(t *testing.T, conn net.Conn, parts func(i int) string) (took time.Duration, responses string) {
	t.Helper()
	begun := time.Now()
	read := make(chan string)
	go func() {
		all, _ := io.ReadAll(conn)
		read <- string(all)
	}()
	for i := 0; ; i++ {
		if _, err := io.WriteString(conn, parts(i)); err != nil {
			require.ErrorIs(t, err, io.ErrClosedPipe)
			break
		}
		time.Sleep(time.Second)
		require.Less(t, i, 1000, "nobody ended the connection")
	}
	return time.Since(begun), <-read
}

// after returns the parts to send: the beginning, then the same part forever.
func after(beginning, part string) func(int) string {
	return func(i int) string {
		if i == 0 {
			return beginning
		}
		return part
	}
}

// start sends the head of a bulk request that announces a length, and the beginning of its body.
func start(t *testing.T, conn net.Conn, length int, begin string) {
	t.Helper()
	_, err := fmt.Fprintf(conn, "POST /v1/namespaces/chat/pings HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s",
		length, begin)
	require.NoError(t, err)
}
