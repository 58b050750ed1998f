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
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lastseen/lastseen"
	"github.com/lastseen/lastseen/store/filestore"
)

func TestServerLimits(t *testing.T) {
	t.Parallel()
	w := newLimitedServer(t)
	server := NewServer(http.NotFoundHandler(), slog.New(slog.DiscardHandler))
	for _, limit := range []time.Duration{
		server.ReadHeaderTimeout, server.ReadTimeout, server.WriteTimeout,
		server.IdleTimeout,
	} {
		require.Positive(t, limit)
	}
	query := strings.Repeat("&user="+strings.Repeat("%C3%BC", 128), 100)
	require.Len(t, names(w.get("/chat/lookup?"+query[1:])), 100, "the longest lookup fits")
	large := w.send(http.MethodGet, "/chat", "", "X-Large: "+strings.Repeat("x", 200<<10))
	require.Equal(t, http.StatusRequestHeaderFieldsTooLarge, large.status)
}

// TestSlowSenders checks that a client that sends very slowly is cut off in time.
func TestSlowSenders(t *testing.T) {
	const ping = "POST /v1/namespaces/chat/users/alice/ping HTTP/1.1\r\nHost: a\r\n"
	const pings = "POST /v1/namespaces/chat/pings HTTP/1.1\r\nHost: a\r\n"
	const long, chunked = "Content-Length: 10000\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n"
	const begun = time.Second + rateWindow // the first byte of a body comes after a second
	for _, c := range []struct {
		name  string
		parts func(int) string
		most  time.Duration // that it may go on
		code  code          // of the response; "" if there is none
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
			withFakeClock(t, func(t *testing.T, dial func() net.Conn) {
				took, responses := sendSlowly(t, dial(), c.parts)
				require.LessOrEqual(t, took, c.most+time.Second, "%s", responses)
				if c.code == "" {
					require.NotContains(t, responses, "problem+json")
				} else {
					require.Contains(t, responses, fmt.Sprintf("%q:%q", "code", c.code))
				}
			})
		})
	}
}

// TestIdleConnections checks that connections are closed: soon before the first request, and later after one.
func TestIdleConnections(t *testing.T) {
	withFakeClock(t, func(t *testing.T, dial func() net.Conn) {
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

// TestSlowReaders checks that a client that does not read its responses is cut off, however many it requested.
func TestSlowReaders(t *testing.T) {
	withFakeClock(t, func(t *testing.T, dial func() net.Conn) {
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

// fuzzHandler serves a store whose clock stands still.
func fuzzHandler(f *testing.F) http.Handler {
	f.Helper()
	s, err := filestore.Open(filestore.Options{Path: filepath.Join(f.TempDir(), "fuzz.db"), Sync: time.Hour})
	require.NoError(f, err)
	f.Cleanup(func() { _ = s.Close() })
	return New(Config{
		Store: &clockStore{Store: s, now: testNow}, Logger: slog.New(slog.DiscardHandler),
		Random: func() float64 { return 0 },
		Settings: Settings{
			Thresholds:   lastseen.Thresholds{Green: time.Minute, Yellow: time.Hour},
			PingInterval: time.Second,
		},
	})
}

// script is a connection on which a client sends everything at once and then nothing more.
type script struct {
	net.Conn // for the addresses
	input    *bytes.Reader
	output   bytes.Buffer
	closed   func()
}

func (s *script) Read(p []byte) (int, error)       { return s.input.Read(p) }
func (s *script) Write(p []byte) (int, error)      { return s.output.Write(p) }
func (s *script) SetDeadline(time.Time) error      { return nil }
func (s *script) SetReadDeadline(time.Time) error  { return nil }
func (s *script) SetWriteDeadline(time.Time) error { return nil }
func (s *script) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (s *script) LocalAddr() net.Addr              { return &net.TCPAddr{} }

func (s *script) Close() error {
	s.closed()
	return nil
}

// FuzzConnection checks that any data on a connection gets a response without a server error, or ends the
// connection.
func FuzzConnection(f *testing.F) {
	for _, seed := range []string{
		pingStart + "\r\n" + smuggled, pingStart + "Content-Length: 2\r\n\r\n{}",
		pingStart + "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
		"GET /v1/namespaces/chat/users?limit=1&cursor=A HTTP/1.1\r\nHost: a\r\nIf-None-Match: *\r\nPrefer: return=minimal\r\n\r\n",
		"POST /v1/namespaces/chat/pings HTTP/1.1\r\nHost: a\r\n" + ndjson +
			"\r\nContent-Length: 17\r\n\r\n{\"user\":\"alice\"}\n",
		"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", "DELETE /v1/namespaces/chat?confirm=chat HTTP/1.0\r\n\r\n",
		"\x16\x03\x01",
		"GET http://u:p@h/docs/%2e%2e HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n",
	} {
		f.Add([]byte(seed))
	}
	server := NewServer(fuzzHandler(f), slog.New(slog.DiscardHandler))
	p := &pipeListener{make(chan net.Conn), make(chan struct{})}
	go server.Serve(p)
	f.Cleanup(func() { _ = server.Close() })
	f.Fuzz(func(t *testing.T, data []byte) {
		done := make(chan struct{})
		conn := &script{input: bytes.NewReader(data), closed: sync.OnceFunc(func() { close(done) })}
		p.conns <- conn
		<-done
		responses := bufio.NewReader(&conn.output)
		for {
			response, err := http.ReadResponse(responses, nil)
			if err != nil {
				require.True(t, errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
					bytes.Contains(data, []byte("HEAD")), "%v", err)
				return
			}
			require.NotEqual(t, http.StatusInternalServerError, response.StatusCode,
				"503 is for clients that have gone")
			_, err = io.Copy(io.Discard, response.Body)
			_ = response.Body.Close()
			if err != nil || bytes.Contains(data, []byte("HEAD")) {
				return
			}
		}
	})
}
