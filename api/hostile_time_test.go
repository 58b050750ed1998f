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

// pipes is a listener of connections in memory, whose deadlines go by the clock of the test.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	close(p.closed)
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

// slowly runs a test against a server with the limits of a real one, with a clock that moves only when everybody
// waits.
func slowly(t *testing.T, test func(t *testing.T, dial func() net.Conn)) {
	t.Helper()
	slowlyOn(t, fileStore, test)
}

// slowlyOn does the same on a store of the test.
func slowlyOn(t *testing.T, open func(*testing.T) store.Store, test func(t *testing.T, dial func() net.Conn)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		logger := slog.New(slog.NewTextHandler(&log, nil))
		server := NewServer(New(Config{
			Store: open(t), Logger: logger,
			Settings: Settings{Thresholds: lastseen.Thresholds{Green: time.Minute, Yellow: time.Hour}},
		}), logger)
		p := &pipes{make(chan net.Conn), make(chan struct{})}
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

// drip sends one part a second until the connection ends, and returns how long that took. Nothing is left unread.
func drip(t *testing.T, conn net.Conn, parts func(i int) string) (took time.Duration, answers string) {
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

// after returns what is sent: the beginning, and then the same for ever.
func after(beginning, part string) func(int) string {
	return func(i int) string {
		if i == 0 {
			return beginning
		}
		return part
	}
}

// TestSlowSenders: whoever sends a little now and then is cut off when the time for it is over.
func TestSlowSenders(t *testing.T) {
	const ping = "POST /v1/namespaces/chat/users/alice/ping HTTP/1.1\r\nHost: a\r\n"
	const pings = "POST /v1/namespaces/chat/pings HTTP/1.1\r\nHost: a\r\n"
	const long, chunked = "Content-Length: 10000\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n"
	const begun = time.Second + rateWindow // the first byte of a body comes after a second
	for _, c := range []struct {
		name  string
		parts func(int) string
		most  time.Duration // that it may go on
		code  code          // of the answer; "" if there is none
	}{
		{"a request line", after("G", "E"), headerTimeout, ""},
		{"a header", after("GET /healthz HTTP/1.1\r\n", "X: y\r\n"), headerTimeout, ""},
		{"a body", after(ping+long, " "), begun + drainTimeout, codeInvalidJSON},
		{"chunks", after(ping+chunked, "1\r\n \r\n"), begun + drainTimeout, codeInvalidJSON},
		{"a chunk's extension", after(ping+chunked+"1;", "x"), readTimeout + drainTimeout, codeInvalidJSON},
		{"many pings", after(pings+long, " "), begun + drainTimeout, codeInvalidJSON},
		{
			"a body that was asked for", after(ping+"Expect: 100-continue\r\n"+long, " "), begun + drainTimeout,
			codeInvalidJSON,
		},
		{"a line", after(pings+ndjson+"\r\n"+long+`{"user":"`, "a"), lineTimeout + drainTimeout, codeInvalidJSON},
		{
			"what is not read any more", after("POST /nothing HTTP/1.1\r\nHost: a\r\n"+long, " "), drainTimeout,
			codeNotFound,
		},
		{"what follows a bad line", after(pings+ndjson+"\r\n"+long+"{}\n", " "), drainTimeout, codeInvalidUser},
		{"what nobody reads", after("GET /healthz HTTP/1.1\r\nHost: a\r\n"+long, " "), readTimeout, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			slowly(t, func(t *testing.T, dial func() net.Conn) {
				took, answers := drip(t, dial(), c.parts)
				require.LessOrEqual(t, took, c.most+time.Second, "%s", answers)
				if c.code == "" {
					require.NotContains(t, answers, "problem+json")
				} else {
					require.Contains(t, answers, fmt.Sprintf("%q:%q", "code", c.code))
				}
			})
		})
	}
}

// TestIdleConnections end: at once soon when nothing was ever asked, and later when something was.
func TestIdleConnections(t *testing.T) {
	slowly(t, func(t *testing.T, dial func() net.Conn) {
		for request, most := range map[string]time.Duration{
			"": headerTimeout,
			"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n": idleTimeout,
		} {
			conn, begun := dial(), time.Now()
			_, err := io.WriteString(conn, request)
			require.NoError(t, err)
			_, err = io.Copy(io.Discard, conn)
			require.NoError(t, err)
			require.LessOrEqual(t, time.Since(begun), most, "%q", request)
		}
	})
}

// TestSlowLinesGoOn: a stream of lines may take as long as it likes, if only its lines come.
func TestSlowLinesGoOn(t *testing.T) {
	slowly(t, func(t *testing.T, dial func() net.Conn) {
		conn := dial()
		_, err := fmt.Fprintf(conn,
			"POST /v1/namespaces/chat/pings HTTP/1.1\r\nHost: a\r\n%s\r\nTransfer-Encoding: chunked\r\n\r\n", ndjson)
		require.NoError(t, err)
		line := "{\"user\":\"alice\"}\n"
		const lines = 100
		for range lines {
			time.Sleep(lineTimeout - time.Second)
			_, err := fmt.Fprintf(conn, "%x\r\n%s\r\n", len(line), line)
			require.NoError(t, err)
		}
		go io.WriteString(conn, "0\r\n\r\n")
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err)
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		require.JSONEq(t, fmt.Sprintf(`{"recorded":%d}`, lines), string(body))
	})
}

// TestSlowReaders: whoever does not read the answer is cut off, however many more were asked for.
func TestSlowReaders(t *testing.T) {
	slowly(t, func(t *testing.T, dial func() net.Conn) {
		many := strings.Repeat("GET /docs/swagger-ui-bundle.js HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n",
			1000)
		conn, begun := dial(), time.Now()
		_, err := io.WriteString(conn, many) // a pipe holds nothing: the server would have to take it all
		require.ErrorIs(t, err, io.ErrClosedPipe)
		require.LessOrEqual(t, time.Since(begun), readTimeout+writeTimeout)
		_, err = conn.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)

		conn, begun = dial(), time.Now()
		_, err = io.WriteString(conn, many[:len(many)/1000])
		require.NoError(t, err)
		for range 100 { // reads a byte a second
			if _, err = conn.Read(make([]byte, 1)); err != nil {
				break
			}
			time.Sleep(time.Second)
		}
		require.Error(t, err)
		require.LessOrEqual(t, time.Since(begun), readTimeout+writeTimeout+time.Second)
	})
}
